"""Whether a job can be run, as its condition Accepted: pure. Called by the kopf handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podium.policies.registry import PolicyError, create
from podium.schema.job import HyperParamJob
from podium.schema.validation import Refusal, check, notes, parse_job

ACCEPTED_MESSAGE = "The search can be run."


def refusals(manifest: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Everything that is wrong with the job; empty = accepted."""
    parsed = parse_job(manifest)
    if isinstance(parsed, Refusal):
        return (parsed,)
    return (*check(parsed.spec), *_policy(parsed))


def condition(manifest: Mapping[str, Any], now: str) -> Mapping[str, Any]:
    """The condition Accepted of a job, with the moment of its last change kept where nothing changed."""
    wrong = refusals(manifest)
    status = "False" if wrong else "True"
    before = _before(manifest)
    unchanged = before is not None and before.get("status") == status
    if wrong:
        reason, message = wrong[0].code, "; ".join(f"{r.field}: {r.message}" for r in wrong)
    else:
        parsed = parse_job(manifest)
        said = notes(parsed.spec) if isinstance(parsed, HyperParamJob) else ()
        reason, message = "Valid", " ".join((ACCEPTED_MESSAGE, *said))
    return {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": message[:32768],
        "observedGeneration": manifest["metadata"].get("generation", 0),
        "lastTransitionTime": before["lastTransitionTime"] if unchanged and before else now,
    }


def _policy(job: HyperParamJob) -> tuple[Refusal, ...]:
    try:
        create(job.spec.policy.name, job.spec.policy.settings)
    except PolicyError as error:
        return (Refusal(error.code, "spec.policy.settings", str(error)),)
    return ()


def _before(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = (manifest.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Accepted"), None)
