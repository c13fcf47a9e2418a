"""Convert the trials of a search to recorded curves, for `podium export` and `podium run`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from podium_core.curves import additional_metrics
from podium_core.curves.non_finite import to_wire
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import CurvePoint, HyperParamTrial
from podium_simulator.traces.held_seconds import held_seconds
from podium_simulator.traces.trace import RecordedTrial, Trace
from podium_views.job_snapshot import JobSnapshot


def trace_of(seen: JobSnapshot) -> Trace:
    """Return the curves of the trials that succeeded, by number; their times are GPU-seconds of training."""
    spec = seen.job.spec
    whole = [t for t in seen.trials if t.status.phase is TrialPhase.SUCCEEDED]
    trials = tuple(r for t in whole if (r := _recorded(t, spec.gpus.per_trial, seen.maximize)) is not None)
    name = seen.job.metadata.name
    family, target, left = name.partition("-")[0], spec.objective.target, len(seen.trials) - len(trials)
    return Trace(name, family, spec.objective.metric, seen.maximize, target, trials, left)


def _recorded(trial: HyperParamTrial, width: int, maximize: bool) -> RecordedTrial | None:
    status = trial.status
    points = [p for p in status.curve.points if p.step > 0.0]
    if not points:
        return None
    return RecordedTrial(
        trial.metadata.name,
        MappingProxyType(dict(trial.spec.parameters)),
        training_seconds(trial, points, width),
        tuple(to_wire(p.value, maximize) for p in points),
        tuple(p.step for p in points),
        additional_metrics.from_status(status.additional_metrics),
    )


def training_seconds(trial: HyperParamTrial, points: Sequence[CurvePoint], width: int) -> tuple[float, ...]:
    """Return the seconds for which the trial held its GPUs until each point (step above 0)."""
    status = trial.status
    # repeated work does not belong to the curve; without a GPU a step counts as a second
    trained = (status.gpu_seconds - status.lost_work.gpu_seconds) / max(1, width)
    ended = [(one.start.timestamp(), one.end.timestamp()) for one in status.allocations if one.end is not None]
    return held_seconds(points, ended, trained) if points else ()
