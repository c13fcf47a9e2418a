"""Each trial's phase as its pod and its agent show it now: the first half of a cycle, pure.

A trial is planned with the phase that is true now, not with the one stored a cycle ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podium.domain.observe import TrialFacts, derive_phase, next_phase, retry_delay
from podium.domain.phase import FINAL, TrialPhase
from podium.domain.snapshot import TrialKey
from podium.schema.trial import HyperParamTrial
from podium_operator.seen import SeenPod
from podium_operator.world import World, job_key, trial_key


@dataclass(frozen=True, slots=True)
class Sight:
    """One trial now. `pod` is the pod of the present attempt, None where a new one is to be made."""

    phase: TrialPhase
    reason: str
    message: str
    attempt: int
    failures: int
    retry_at: float
    pod: SeenPod | None
    node: str | None
    gpus: tuple[str, ...]
    started: bool
    ended_at: float | None


def observe(world: World) -> Mapping[TrialKey, Sight]:
    return {trial_key(trial): _sight(world, trial) for trial in world.trials}


def _sight(world: World, trial: HyperParamTrial) -> Sight:
    status = trial.status
    pod = world.latest_pod.get(trial.metadata.uid)
    # a pod of a later attempt than the stored one: the operator died between making it and writing that down
    attempt = status.attempt if pod is None else max(status.attempt, pod.attempt)
    current_pod = pod if pod is not None and pod.attempt == attempt else None
    job = world.job_by_key.get(job_key(trial))
    places = world.on_gpus.get(current_pod.uid, ()) if current_pod else ()
    node = current_pod.facts.node if current_pod else None
    facts = TrialFacts(
        current=status.phase,
        pod=current_pod.facts if current_pod else None,
        had_pod=status.pod is not None,
        agent_state=places[0][2].state.value if places else None,
        failures=status.failures,
        retries=job.spec.trials.retries if job else 0,
        stopped=trial.spec.stopped,
        agent_fresh=node not in world.silent,
    )
    seen = derive_phase(facts)
    phase = next_phase(status.phase, seen)
    counts = seen.own_failure and phase is not status.phase
    failures = status.failures + 1 if counts else status.failures
    ended = current_pod.ended_at if current_pod else None
    waits = phase is TrialPhase.REQUEUED
    blamed = waits and failures > 0 and ended is not None
    return Sight(
        phase=phase,
        reason=seen.reason,
        message=seen.message,
        attempt=attempt,
        failures=failures,
        retry_at=ended + retry_delay(failures) if blamed and ended is not None else 0.0,
        # the dead pod of a requeued trial is history: the planner is to make a new one
        pod=None if waits else current_pod,
        node=node,
        gpus=tuple(gpu for _, gpu, _ in places),
        started=phase not in (TrialPhase.PENDING, TrialPhase.GATED, TrialPhase.REQUEUED) and phase not in FINAL,
        ended_at=ended,
    )
