"""Whether a job can be run, as its condition Accepted: pure. Called by the kopf handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from podium_core.policies.registry import PolicyError, create
from podium_core.schema.base import StatusModel
from podium_core.schema.checkpointing import APP_CHECKPOINT, can_checkpoint
from podium_core.schema.job import HyperParamJob
from podium_core.schema.validation import Refusal, check, notes, parse_job

ACCEPTED_MESSAGE = "The search can be run."
CLAIM_FIELD = "spec.checkpoint.volume.claimName"
SHARED = "ReadWriteMany"
MOVES = "cuda-checkpoint"


class _Modes(StatusModel):
    access_modes: list[str] = Field(default_factory=list)


class ClaimModes(StatusModel):
    """A PersistentVolumeClaim, as far as it matters: what was asked for, and once it is bound what it has."""

    spec: _Modes = Field(default_factory=_Modes)
    status: _Modes = Field(default_factory=_Modes)

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(self.status.access_modes or self.spec.access_modes)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that a job names; `modes` None: it is not there."""

    name: str
    modes: tuple[str, ...] | None


def refusals(manifest: Mapping[str, Any], *, leases: bool = False) -> tuple[Refusal, ...]:
    """Everything that is wrong with the job itself; empty = accepted, if its volume will do. `leases`: the GPUs are
    not Podium's own.
    """
    parsed = parse_job(manifest)
    if isinstance(parsed, Refusal):
        return (parsed,)
    return (*check(parsed.spec), *_policy(parsed), *(_leaves(parsed) if leases else ()))


def claim_name(manifest: Mapping[str, Any]) -> str | None:
    """The claim that has to be looked at before the job can be accepted."""
    parsed = parse_job(manifest)
    if isinstance(parsed, Refusal) or parsed.spec.checkpoint is None:
        return None
    return parsed.spec.checkpoint.volume.claim_name


def condition(
    manifest: Mapping[str, Any], now: str, claim: Claim | None = None, *, leases: bool = False
) -> Mapping[str, Any]:
    """The condition Accepted of a job, with the moment of its last change kept where nothing changed.

    Unknown: a claim is not there yet, so nothing can be said.
    """
    wrong = refusals(manifest, leases=leases)
    status: Literal["True", "False", "Unknown"] = "True"
    if not wrong and claim is not None:
        if claim.modes is None:
            wrong, status = (_missing(claim.name),), "Unknown"
        elif SHARED not in claim.modes:
            wrong = (_not_shared(claim.name, claim.modes),)
    if wrong:
        status = "Unknown" if status == "Unknown" else "False"
        reason, message = wrong[0].code, "; ".join(map(str, wrong))
    else:
        parsed = parse_job(manifest)
        said = notes(parsed.spec) if isinstance(parsed, HyperParamJob) else ()
        reason, message = "Valid", " ".join((ACCEPTED_MESSAGE, *said))
    before = _before(manifest)
    unchanged = before is not None and before.get("status") == status
    return {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message[:32768],
        "observedGeneration": manifest["metadata"].get("generation", 0),
        "lastTransitionTime": before["lastTransitionTime"] if unchanged and before else now,
    }


def _missing(name: str) -> Refusal:
    message = f"there is no PersistentVolumeClaim {name} in the job's namespace yet: the search begins once it is there"
    return Refusal("VolumeNotFound", CLAIM_FIELD, message)


def _not_shared(name: str, modes: tuple[str, ...]) -> Refusal:
    message = (
        f"claim {name} can be mounted {', '.join(modes) or 'in no known way'}, but trials run on several nodes and "
        f"change them: use a claim with {SHARED}, or a hostPath"
    )
    return Refusal("VolumeNotShared", CLAIM_FIELD, message)


def _policy(job: HyperParamJob) -> tuple[Refusal, ...]:
    try:
        create(job.spec.policy.name, job.spec.policy.settings)
    except PolicyError as error:
        return (Refusal(error.code, "spec.policy.settings", str(error)),)
    return ()


def _leaves(job: HyperParamJob) -> tuple[Refusal, ...]:
    """A trial that is frozen keeps its memory on the GPU, which is somebody else's once the lease has ended."""
    spec = job.spec
    if spec.gpus.per_trial == 0 or MOVES in spec.suspension.methods or can_checkpoint(spec):
        return ()
    methods = ", ".join(spec.suspension.methods)
    message = (
        f"{methods}: Podium's GPUs are leased here, and none of these takes a trial's memory off a GPU when its lease "
        f"ends. Name {MOVES}, or {APP_CHECKPOINT} together with a checkpoint volume that outlives the pod"
    )
    return (Refusal("GPUMemoryNotMovable", "spec.suspension.methods", message),)


def _before(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = (manifest.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Accepted"), None)
