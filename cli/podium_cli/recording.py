"""Convert the trials of a search to recorded curves, for `podium export` and `podium run`. Pure."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType

from podium_cli.job_snapshot import JobSnapshot
from podium_core.curves import additional_metrics
from podium_core.curves.non_finite import to_wire
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import Allocation, CurvePoint, HyperParamTrial
from podium_simulator.traces.trace import RecordedTrial, Trace

TOLERANCE = (
    0.01  # share of the training that the record may lack, and of the usual time between two values that are separate
)


def recording_of(seen: JobSnapshot) -> Trace:
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
    return _seconds(points, status.allocations, trained) if points else ()


def _seconds(points: Sequence[CurvePoint], allocations: Sequence[Allocation], trained: float) -> tuple[float, ...]:
    """Return the seconds for which the trial had held its GPUs at each point, starts included.

    The last point gets all of `trained`, so the curve is as long as the training was. The times are spread evenly over
    the steps if they are not known. They are unknown in two cases:

    - The recorded allocations (the last 512 that have ended) do not add up to the training, because older ones are
      missing or work was repeated.
    - Values arrived together from a script that buffers its output.
    """
    pace = trained / points[-1].step if trained > 0.0 else 1.0
    even = tuple(point.step * pace for point in points)
    ended = sorted(
        (allocation.start.timestamp(), allocation.end.timestamp())
        for allocation in allocations
        if allocation.end is not None
    )
    until = list(accumulate((end - start for start, end in ended), initial=0.0))  # total seconds after each allocation
    if not trained > 0.0 or abs(until[-1] - trained) > TOLERANCE * trained:
        return even
    held = []
    for point in points[:-1]:
        started = bisect(ended, (point.time, math.inf))
        rest = max(0.0, ended[started - 1][1] - point.time) if started else 0.0
        held.append((until[started] - rest) * trained / until[-1])
    measured = (*held, trained)
    gaps = zip(pairwise((0.0, *measured)), pairwise((0.0, *even)), strict=True)
    return measured if all(b - a >= TOLERANCE * (usual - last) for (a, b), (last, usual) in gaps) else even
