"""Decide whether a job can be run: its condition Accepted. Pure; called by the kopf handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from podium_core.acceptance.finding import Finding
from podium_core.acceptance.findings import errors_of, findings
from podium_core.schema.base import StatusModel
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.jobs.warm_start import NO_WARM_START, WarmStart
from podium_searchers.registry import missing_packages

ACCEPTED_MESSAGE = "The search can be run."
CLAIM_FIELD = "spec.checkpoint.volume.claimName"
SHARED = "ReadWriteMany"


class _AccessModes(StatusModel):
    access_modes: list[str] = Field(default_factory=list)


class ClaimModes(StatusModel):
    """PersistentVolumeClaim: the access modes that were requested and, once it is bound, those it has."""

    spec: _AccessModes = Field(default_factory=_AccessModes)
    status: _AccessModes = Field(default_factory=_AccessModes)

    @property
    def modes(self) -> tuple[str, ...]:
        """Access modes: those it has, else those that were requested."""
        return tuple(self.status.access_modes or self.spec.access_modes)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that a job names; `modes` is None if the claim does not exist."""

    name: str
    modes: tuple[str, ...] | None


def claim_name(manifest: Mapping[str, Any]) -> str | None:
    """Return the name of the claim to check before the job can be accepted, or None."""
    parsed = parse_job(manifest)
    if isinstance(parsed, Refusal) or parsed.spec.checkpoint is None:
        return None
    return parsed.spec.checkpoint.volume.claim_name


def condition(
    manifest: Mapping[str, Any],
    now: str,
    claim: Claim | None = None,
    warm_start: WarmStart = NO_WARM_START,
    *,
    reserved_gpus: bool = False,
) -> Mapping[str, Any]:
    """Return the condition Accepted of a job; an unchanged status keeps the time of its last transition.

    The status is Unknown while the claim does not exist or an earlier search of `warmStart` has not ended: then nothing
    can be decided.
    """
    found = findings(manifest, reserved_gpus=reserved_gpus, missing_packages=_missing_packages(manifest))
    wrong = errors_of(found)
    status: Literal["True", "False", "Unknown"] = "True"
    if not wrong and claim is not None:
        if claim.modes is None:
            wrong, status = (_missing(claim.name),), "Unknown"
        elif SHARED not in claim.modes:
            wrong = (_not_shared(claim.name, claim.modes),)
    if not wrong and warm_start.obstacle is not None:
        wrong, status = (warm_start.obstacle,), "Unknown" if warm_start.waits else "False"
    if wrong:
        status = "Unknown" if status == "Unknown" else "False"
        reason, message = wrong[0].code, "; ".join(map(str, wrong))
    else:
        reason, message = (
            "Valid",
            " ".join((ACCEPTED_MESSAGE, *_note(warm_start), *(f"Warning: {one.rstrip()}" for one in map(str, found)))),
        )
    before = _present_condition(manifest)
    unchanged = before is not None and before.get("status") == status
    return {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message[:32768],
        "observedGeneration": manifest["metadata"].get("generation", 0),
        "lastTransitionTime": before["lastTransitionTime"] if unchanged and before else now,
    }


def _note(warm_start: WarmStart) -> tuple[str, ...]:
    message = warm_start.status.get("message")
    return (str(message),) if message else ()


def _missing_packages(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    parsed = parse_job(manifest)
    return () if isinstance(parsed, Refusal) else missing_packages(parsed.spec.search.algorithm)


def _missing(name: str) -> Finding:
    message = f"PersistentVolumeClaim {name} does not exist in the job's namespace; the search starts once it exists"
    return Finding("VolumeNotFound", "error", CLAIM_FIELD, message)


def _not_shared(name: str, modes: tuple[str, ...]) -> Finding:
    message = (
        f"claim {name} supports {', '.join(modes) or 'no known access mode'}, but trials run on several nodes and "
        f"write to it: use a claim with {SHARED}, or a hostPath"
    )
    return Finding("VolumeNotShared", "error", CLAIM_FIELD, message)


def _present_condition(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = (manifest.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Accepted"), None)
