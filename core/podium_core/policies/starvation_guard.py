"""A floor of GPU time: the live trial that has waited too long for its next value is served. Used by `envelope`.

With n live trials more than places, e seconds between two values of a trial or, if that is longer, its shortest turn
and s + r seconds a hand-over, a trial is overdue after W seconds without a value: the sum of the n largest e + s + r,
over minShare P. Whichever n of them wait, to serve each once in such a time takes minShare of the places at most.
Before any value of the job nobody is overdue. P, the job's places: the GPUs of which its live trials have shares, over
the GPUs that a trial needs, over the open jobs that may use the same. Overdue trials are served one at a time, each
when its holder's turn is over, other jobs' holders among them, and until its value comes. So no live trial that can be
served waits longer than W (1 + minShare P) and n turns. Where trials give places to each other (`planning.turnover`),
the overdue trial that has none gets the next that may go, beside the one that is served; a requeue counts as turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, Floats
from podium_core.domain.fitting import fits
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialKey, TrialView
from podium_core.policies.base import shortest_turn
from podium_core.policies.min_time_slice import JOB_TURN, OVERHEAD


def overdue(
    seen: Board, live: NDArray[np.bool_], job: JobView, snapshot: Snapshot, min_share: float, least: float
) -> tuple[int, ...]:
    """The row to be served, if any: a trial that is being served keeps the place until its value comes, so there is
    never more than one. And the row to be given a place, so that it can be. `least`: seconds of the policy's shortest
    turn. O(trials), and O(trials log trials + GPUs + jobs) where somebody may be overdue.
    """
    count = int(np.count_nonzero(live))
    if min_share <= 0.0 or not count or not snapshot.gpus or not job.gpus_per_trial:
        return ()
    each = between_values(seen, live, job.gpus_per_trial)
    if each is None:
        return ()
    costs = snapshot.costs.of(job)
    hand_over, gpus = costs.suspend + costs.resume, len(snapshot.gpus)
    mean = each[live].sum() / count + hand_over  # the largest take no less, and places are no more than GPUs
    if (snapshot.now - seen.heard[live].min()) * min_share * gpus <= (count - gpus) * mean:
        return ()
    held, rivals = places(job, snapshot, lambda key: (row := seen.rows.get(key)) is not None and bool(live[row]))
    if not held or count <= held:
        return ()
    turn = np.maximum(seen.switch / OVERHEAD, least) if job.suspendable else shortest_turn(costs, least)
    turn = np.fmax(turn, JOB_TURN if rivals else 0.0)  # it was NaN where nothing was measured of a trial
    turns = np.maximum(each, turn) + hand_over
    if job.reclaims_slots:
        turns += np.where([view is None or view.pod is None for view in seen.views], snapshot.costs.requeue, 0.0)
    waited = np.where(live, snapshot.now - seen.heard, -np.inf)
    late = (waited > _largest(turns[live], count - held) / (min_share * held)).nonzero()[0]
    there = _Gpus(seen, snapshot)
    asked = {True, False} if job.reclaims_slots else {True}  # one that has a pod, one that has none
    chosen: list[int] = []
    for row in late[(-waited[late]).argsort(kind="stable")].tolist():
        view = seen.views[row]
        if view is None or (view.pod is not None) not in asked:
            continue
        if _servable(view, job, snapshot.now) and all(there.can_be_had(uuid, view) for uuid in view.gpus):
            chosen.append(row)
            asked.remove(view.pod is not None)
            if not asked:
                break
    return tuple(chosen)


def between_values(seen: Board, live: NDArray[np.bool_], width: int) -> Floats | None:
    """By row, e: seconds between two values of a trial, rather too many: those since its last count with them; None
    before any. A first value often comes early: who has shown no second one counts as the slowest live trial that has,
    or as long as it has trained, if that is longer. So of several that are slower the first alone is served too early.
    """
    own = seen.seconds / seen.evaluations
    known = own * (seen.points > 1)
    slowest = (known * live).max() or own.max()
    if not slowest > 0.0:
        return None
    found = np.where(known > 0.0, known, np.maximum(slowest, seen.seconds))
    return found if width == 1 else found / width


def _largest(turns: Floats, many: float) -> float:
    """The sum of so many of them, of the last one in part; where all are equal that many times one, to the bit."""
    falling = np.sort(turns)[::-1]
    least, whole = falling[0] - falling, int(many)
    return float(many * falling[0] - least[:whole].sum() - (many - whole) * least[min(whole, len(least) - 1)])


def places(job: JobView, snapshot: Snapshot, live: Callable[[TrialKey], bool]) -> tuple[float, int]:
    """How many of its `live` trials can work at a time, if jobs that may use the same GPUs share them evenly; and how
    many other jobs those are. Where pods are not bound to GPUs (a replay), each may work on any.
    """
    fitting = [gpu for gpu in snapshot.gpus if fits(job, gpu)]
    mine = [gpu for gpu in fitting if any(map(live, gpu.trials))] or fitting
    leased = all(gpu.reserved_for is not None for gpu in mine)
    rivals = sum(_competes(job, other, leased=leased) for other in snapshot.jobs if other.key != job.key)
    return len(mine) / job.gpus_per_trial / (1 + rivals), rivals


def _competes(job: JobView, other: JobView, *, leased: bool) -> bool:
    if not other.accepted or other.suspended or other.finished or not other.gpus_per_trial:
        return False
    if leased and other.key.namespace != job.key.namespace:
        return False
    return not job.products or not other.products or not set(job.products).isdisjoint(other.products)


def _servable(view: TrialView, job: JobView, now: float) -> bool:
    """Whether an order could let it work: its pod is at its gate or further and stays; or another's place could."""
    if view.suspend or view.terminating or view.stopped:
        return False
    if view.pod is None:
        return job.reclaims_slots and not view.in_migration and view.retry_at <= now
    return view.phase is not TrialPhase.PENDING


class _Gpus:
    """Which GPUs a trial can be given; their holders are looked up once for all that are late."""

    def __init__(self, seen: Board, snapshot: Snapshot) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        held = {gpu.holder for gpu in snapshot.gpus if gpu.holder is not None}
        mine = {key: seen.views[seen.rows[key]] for key in held & seen.rows.keys()}
        others = held - mine.keys()
        found = {trial.key: trial for trial in snapshot.trials if trial.key in others} if others else {}
        self._holders: Mapping[TrialKey, TrialView | None] = {**mine, **found}
        self._give_way = {job.key for job in snapshot.jobs if job.suspendable or job.checkpointable}

    def can_be_had(self, uuid: str, view: TrialView) -> bool:
        """No lease's end, urgent pod, silent node, or holder that may or can not give way stands against it."""
        gpu = self._gpus.get(uuid)
        if gpu is None or gpu.reservation_ended or gpu.exclusive_pod is not None or gpu.health != "Healthy":
            return False
        holder = None if gpu.holder is None else self._holders.get(gpu.holder)
        if holder is None or holder.key == view.key:
            return True
        return holder.job in self._give_way and (view.pinned or not holder.pinned)
