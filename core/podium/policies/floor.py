"""A floor of GPU time: the live trial that has waited too long for its next value is served. Used by `envelope`.

With n live trials more than places, e seconds between two values of a trial and s + r seconds a hand-over, a trial is
overdue after W = n (e + s + r) / (minShare P) seconds without a value; before any value of the job nobody is. P, the
job's places: the GPUs of which its live trials have shares, over the GPUs that a trial needs, over the open jobs that
may use the same. Overdue trials are served one at a time, each when its holder's turn is over, other jobs' holders
among them, and until its value comes. So no live trial that can be served waits longer than W (1 + minShare P) and n
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board
from podium.domain.fitting import fits
from podium.domain.phase import TrialPhase
from podium.domain.snapshot import GpuView, JobView, Snapshot, TrialKey, TrialView


def overdue(
    seen: Board, live: NDArray[np.bool_], job: JobView, snapshot: Snapshot, evaluation: float, min_share: float
) -> int | None:
    """The row to be served, if any. A trial that is being served keeps the place until its value comes: so there is
    never more than one. `evaluation`: e, 0 before any value. O(trials), and O(GPUs + jobs) where somebody may be
    overdue.
    """
    count = int(np.count_nonzero(live))
    if min_share <= 0.0 or evaluation <= 0.0 or not count or not snapshot.gpus or not job.gpus_per_trial:
        return None
    turn = evaluation + snapshot.costs.suspend + snapshot.costs.resume
    waited = np.where(live, snapshot.now - seen.heard, -np.inf)
    if waited.max() <= _bound(count, len(snapshot.gpus), turn, min_share):  # with fewer places it is longer only
        return None
    held = places(job, snapshot, lambda key: (row := seen.rows.get(key)) is not None and bool(live[row]))
    if not held or count <= held:
        return None
    late = (waited > _bound(count, held, turn, min_share)).nonzero()[0]
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    for row in late[(-waited[late]).argsort(kind="stable")].tolist():
        view = seen.views[row]
        if view is not None and _servable(view, gpus, snapshot):
            return int(row)
    return None


def _bound(count: int, held: float, turn: float, min_share: float) -> float:
    """W, in seconds."""
    return (count - held) * turn / (min_share * held)


def places(job: JobView, snapshot: Snapshot, live: Callable[[TrialKey], bool]) -> float:
    """How many of its `live` trials can work at a time, if jobs that may use the same GPUs share them evenly. Where
    pods are not bound to GPUs (a replay), each may work on any.
    """
    fitting = [gpu for gpu in snapshot.gpus if fits(job, gpu)]
    mine = [gpu for gpu in fitting if any(map(live, gpu.trials))] or fitting
    leased = all(gpu.leased_by is not None for gpu in mine)
    rivals = sum(_competes(job, other, leased=leased) for other in snapshot.jobs if other.key != job.key)
    return len(mine) / job.gpus_per_trial / (1 + rivals)


def _competes(job: JobView, other: JobView, *, leased: bool) -> bool:
    if not other.accepted or other.suspended or other.finished or not other.gpus_per_trial:
        return False
    if leased and other.key.namespace != job.key.namespace:
        return False
    return not job.products or not other.products or not set(job.products).isdisjoint(other.products)


def _servable(view: TrialView, gpus: Mapping[str, GpuView], snapshot: Snapshot) -> bool:
    """Whether an order could let it work: its pod is at its gate or further and stays, and its GPUs can be had."""
    if view.pod is None or view.phase is TrialPhase.PENDING or view.suspend or view.leaving or view.stopped:
        return False
    return all(uuid in gpus and _can_be_had(gpus[uuid], view, snapshot) for uuid in view.gpus)


def _can_be_had(gpu: GpuView, view: TrialView, snapshot: Snapshot) -> bool:
    """No lease's end, no urgent pod, no silent node and no holder that may or can not give way stands against it."""
    if gpu.lost or gpu.exclusive is not None or gpu.health != "Healthy":
        return False
    if gpu.holder is None or gpu.holder == view.key:
        return True
    holder = next((trial for trial in snapshot.trials if trial.key == gpu.holder), None)
    if holder is None:
        return True
    if holder.pinned and not view.pinned:
        return False
    return any(job.key == holder.job and (job.freezes or job.saves) for job in snapshot.jobs)
