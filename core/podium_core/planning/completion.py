"""Which trials and jobs have ended, and the consequences for the others.

A trial that reaches maxSteps is not killed: it is complete when its process exits, since it may still write its model.
Pods are deleted before final phases are set, so that a planner that dies in between finds the trial unfinished and ends
it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from podium_core.curves.best_value import best_point, better, reached
from podium_core.domain.actions import Action, DeletePod, EndJob, EndTrial
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.exploitation import children, founders_to_come

Live = Mapping[JobKey, Sequence[TrialView]]


@dataclass(frozen=True, slots=True)
class Closing:
    """Trials and jobs that end now; the rest of the planner ignores them.

    `live`: the unfinished trials that remain. `trials_by_job`: all trials of each job, sorted by key.
    """

    actions: tuple[Action, ...]
    trials: frozenset[TrialKey]
    jobs: frozenset[JobKey]
    live: Live
    trials_by_job: Mapping[JobKey, Sequence[TrialView]]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Reason why a job ends, and the final phase of its unfinished trials."""

    succeeded: bool
    reason: str
    message: str
    phase: TrialPhase = TrialPhase.EARLY_STOPPED
    trial_reason: str = ""
    winner: TrialKey | None = None


def close(snapshot: Snapshot) -> Closing:
    """Return what ends now. O(points): every curve is read once."""
    by_job = snapshot.trials_by_job
    unfinished = {key: [t for t in trials if t.phase not in FINAL] for key, trials in by_job.items()}
    actions: list[Action] = []
    ended: set[TrialKey] = set()
    jobs: set[JobKey] = set()
    for job in sorted(snapshot.jobs, key=lambda j: j.key):
        trials, live = by_job.get(job.key, []), unfinished.get(job.key, [])
        if len(live) < len(trials):
            actions += _leftovers(trials)
        verdict = _verdict(job, trials, len(trials) - len(live), snapshot.now)
        if verdict is not None:
            for trial in live:
                actions += ending(trial, *_fate(trial, verdict))
                ended.add(trial.key)
            if not job.state.finished:
                actions.append(EndJob(job.key, verdict.succeeded, verdict.reason, verdict.message))
            jobs.add(job.key)
            continue
        successors = {} if job.population is None else children(trials)
        for trial in live:
            successor = successors.get(trial.key.name)
            if successor is not None:
                actions += ending(trial, TrialPhase.EARLY_STOPPED, "Replaced", _replaced(successor))
                ended.add(trial.key)
            elif trial.intent.stopped:
                text = "spec.stopped is set: the trial ends and keeps its result."
                actions += ending(trial, TrialPhase.EARLY_STOPPED, "StoppedByUser", text)
                ended.add(trial.key)
    return Closing(tuple(actions), frozenset(ended), frozenset(jobs), without(unfinished, ended), by_job)


def _replaced(child: TrialView) -> str:
    lineage = child.origin.lineage
    assert lineage is not None
    behind = f"its value at step {lineage.step:g} was among the worst."
    return f"{child.key.name} continues from {lineage.parent} in its place: {behind}"


def without(
    live: Mapping[JobKey, Sequence[TrialView]], ended: Collection[TrialKey]
) -> Mapping[JobKey, Sequence[TrialView]]:
    """Return `live` without the trials that have ended."""
    if not ended:
        return live
    return {key: [trial for trial in trials if trial.key not in ended] for key, trials in live.items()}


def _leftovers(trials: Sequence[TrialView]) -> list[Action]:
    """Delete remaining pods of finished trials.

    A planner may have died before the deletion, or the API server may have refused it.
    """
    return [
        DeletePod(t.key, "TrialEnded", f"The trial is {t.phase}; its pod is not needed any more.")
        for t in trials
        if t.phase in FINAL and t.pod is not None
    ]


def ending(trial: TrialView, phase: TrialPhase, reason: str, message: str) -> list[Action]:
    """Return the actions that end a trial: the pod is deleted first, then the final phase is set."""
    actions: list[Action] = []
    if trial.pod is not None:
        actions.append(DeletePod(trial.key, reason, message))
    actions.append(EndTrial(trial.key, phase, reason, message))
    return actions


def _fate(trial: TrialView, verdict: _Verdict) -> tuple[TrialPhase, str, str]:
    if trial.key == verdict.winner:
        return TrialPhase.SUCCEEDED, "TargetReached", verdict.message
    return verdict.phase, verdict.trial_reason or verdict.reason, verdict.message


def _verdict(job: JobView, trials: Sequence[TrialView], done: int, now: float) -> _Verdict | None:
    """Return why the job ends, None if it does not. `done`: number of its trials in a final phase."""
    if job.state.finished:
        return _Verdict(
            True, "JobFinished", "The job is finished; this trial is not needed any more.", TrialPhase.KILLED
        )
    if not job.state.accepted:
        return None
    return (
        _target(job, trials)
        or (_failures(job, trials) if done > job.limits.max_failed else None)
        or (_all_done(trials) if done == len(trials) and not founders_to_come(job, trials) else None)
        or _budget(job, trials, now)
    )


def _target(job: JobView, trials: Sequence[TrialView]) -> _Verdict | None:
    if job.target is None:
        return None
    best: tuple[float, TrialView] | None = None
    for trial in trials:  # sorted by key: ties go to the first name
        point = best_point(trial.curve, job.maximize)
        if point is None or not reached(point.value, job.target, job.maximize):
            continue
        if best is None or better(point.value, best[0], job.maximize):
            best = (point.value, trial)
    if best is None:
        return None
    value, winner = best
    text = f"Trial {winner.key.name} reached {value:.6g}; the target is {job.target:.6g}."
    return _Verdict(True, "TargetReached", text, TrialPhase.EARLY_STOPPED, "TargetReachedByRival", winner.key)


def _failures(job: JobView, trials: Sequence[TrialView]) -> _Verdict | None:
    failed = [t for t in trials if t.phase is TrialPhase.FAILED]
    if len(failed) <= job.limits.max_failed:
        return None
    names = ", ".join(t.key.name for t in failed[:5])
    text = f"{count(len(failed), 'trial')} failed; trials.maxFailed allows {job.limits.max_failed}. The first: {names}."
    return _Verdict(False, "TooManyFailedTrials", text, TrialPhase.KILLED, "JobFailed")


def _all_done(trials: Sequence[TrialView]) -> _Verdict:
    succeeded = sum(t.phase is TrialPhase.SUCCEEDED for t in trials)
    stopped = sum(t.phase is TrialPhase.EARLY_STOPPED for t in trials)
    failed = sum(t.phase is TrialPhase.FAILED for t in trials)
    ended = "The only trial ended" if len(trials) == 1 else f"All {len(trials)} trials ended"
    text = f"{ended}: {succeeded} succeeded, {stopped} stopped early, {failed} failed."
    if succeeded + stopped == 0:
        return _Verdict(False, "NoTrialSucceeded", text)
    return _Verdict(True, "AllTrialsEnded", text)


def _budget(job: JobView, trials: Sequence[TrialView], now: float) -> _Verdict | None:
    budget, deadline = job.limits.budget_gpu_seconds, job.limits.deadline
    if budget is None and deadline is None:
        return None
    has_value = any(best_point(t.curve, job.maximize) is not None for t in trials)
    hint = "The best trial so far is the result." if has_value else "No trial reported a value before."
    if budget is not None:
        used = sum(t.usage.gpu_seconds for t in trials)
        if used >= budget:
            text = f"{used:.0f} GPU-seconds are used; budget.gpuSeconds allows {budget:.0f}. {hint}"
            return _Verdict(has_value, "BudgetSpent", text)
    if deadline is not None and now >= deadline:
        return _Verdict(has_value, "DeadlinePassed", f"budget.deadline passed. {hint}")
    return None
