"""Starvation guard of `envelope`: serve the live trial that has waited too long for its next value.

Symbols. n: live trials beyond the number that can run at a time. e: seconds between two values of a trial or, if
longer, its smallest time slice. s + r: seconds of a switch. P: trials of the job that can run at a time. P is the
number of GPUs on which its live trials have slots, divided by the GPUs of a trial and by the number of accepted jobs
that may use the same GPUs.

Rule. A trial is starved after W seconds without a value, where W = (sum of the n largest e + s + r) / (minShare P).
Whichever n trials wait, serving each once in W seconds takes at most minShare of the GPU time. Before the job's first
value no trial is starved.

Starved trials are served one at a time, each when its holder's time slice is over (other jobs' holders included), and
until its value arrives. So no live trial that can be served waits longer than W (1 + minShare P) and n time slices.
Where trials release slots to each other (`planning.slots.slot_reclaim`), a starved trial without a slot gets the next
slot that is released. It does so in addition to the trial that is served. A requeue then counts as part of the time
slice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.statistics import Floats
from podium_core.domain.fitting import fits
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.policies.base import limit_switch_share
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE, MIN_JOB_TIME_SLICE


def starved_rows(
    curves: CurveTable, live: NDArray[np.bool_], job: JobView, snapshot: Snapshot, min_share: float, least: float
) -> tuple[int, ...]:
    """Return the row to serve, if any, and the row that needs a slot first.

    A trial that is being served stays the one until its value arrives, so there is never more than one. `least`:
    seconds of the policy's smallest time slice. O(trials), and O(trials log trials + GPUs + jobs) where a trial may be
    starved.
    """
    count = int(np.count_nonzero(live))
    if min_share <= 0.0 or not count or not snapshot.gpus or not job.gpus.per_trial:
        return ()
    each = seconds_between_values(curves, live, job.gpus.per_trial)
    if each is None:
        return ()
    costs = snapshot.costs.of(job)
    switch, gpus = costs.suspend + costs.resume, len(snapshot.gpus)
    mean = each[live].sum() / count + switch  # the largest take no less, and no more trials run than there are GPUs
    if (snapshot.now - curves.last_report[live].min()) * min_share * gpus <= (count - gpus) * mean:
        return ()
    concurrent, rivals = concurrent_trials(job, snapshot, {key for key, row in curves.rows.items() if live[row]})
    if not concurrent or count <= concurrent:
        return ()
    slices = (
        np.maximum(curves.switch_seconds / MAX_SWITCH_SHARE, least)
        if job.abilities.suspendable
        else limit_switch_share(costs, least)
    )
    slices = np.fmax(slices, MIN_JOB_TIME_SLICE if rivals else 0.0)  # NaN where nothing was measured of a trial
    periods = np.maximum(each, slices) + switch
    if job.reclaims_slots:
        periods += np.where([view is None or view.pod is None for view in curves.views], snapshot.costs.requeue, 0.0)
    waited = np.where(live, snapshot.now - curves.last_report, -np.inf)
    starved = (waited > _sum_of_largest(periods[live], count - concurrent) / (min_share * concurrent)).nonzero()[0]
    available = _Gpus(curves, snapshot)
    wanted = {True, False} if job.reclaims_slots else {True}  # one trial with a pod, one without
    chosen: list[int] = []
    for row in starved[(-waited[starved]).argsort(kind="stable")].tolist():
        view = curves.views[row]
        if view is None or (view.pod is not None) not in wanted:
            continue
        if _can_be_served(view, job, snapshot.now) and all(available.obtainable(uuid, view) for uuid in view.gpus):
            chosen.append(row)
            wanted.remove(view.pod is not None)
            if not wanted:
                break
    return tuple(chosen)


def seconds_between_values(curves: CurveTable, live: NDArray[np.bool_], width: int) -> Floats | None:
    """Return e by row: seconds between two values of a trial, rather too many; None before any value.

    The seconds since the last value count too. A first value often comes early, so a trial without a second one counts
    as the slowest live trial that has two. If it has trained longer than that, its training time counts. So of several
    slower trials only the first is served too early.
    """
    own = curves.seconds / curves.evaluations
    known = own * (curves.points > 1)
    slowest = (known * live).max() or own.max()
    if not slowest > 0.0:
        return None
    seconds = np.where(known > 0.0, known, np.maximum(slowest, curves.seconds))
    return seconds if width == 1 else seconds / width


def _sum_of_largest(periods: Floats, count: float) -> float:
    """Return the sum of the `count` largest values, the last one in part.

    Where all are equal the result is `count` times one of them, to the last bit.
    """
    falling = np.sort(periods)[::-1]
    least, whole = falling[0] - falling, int(count)
    return float(count * falling[0] - least[:whole].sum() - (count - whole) * least[min(whole, len(least) - 1)])


def concurrent_trials(job: JobView, snapshot: Snapshot, live: Collection[TrialKey]) -> tuple[float, int]:
    """Return how many of the job's live trials can run at a time, and the number of rival jobs.

    `live`: keys of the live trials. Jobs that may use the same GPUs share them evenly. Where pods are not bound to GPUs
    (a replay), each trial may use any GPU.
    """
    fitting = [gpu for gpu in snapshot.gpus if fits(job, gpu)]
    places = snapshot.gpus_by_trial
    mine = {uuid for key in live for uuid in places.get(key, ())}
    job_gpus = [gpu for gpu in fitting if gpu.uuid in mine] or fitting
    reserved = all(gpu.availability.reserved_for is not None for gpu in job_gpus)
    rivals = sum(_competes(job, other, reserved=reserved) for other in snapshot.jobs if other.key != job.key)
    return len(job_gpus) / job.gpus.per_trial / (1 + rivals), rivals


def _competes(job: JobView, other: JobView, *, reserved: bool) -> bool:
    if not other.state.accepted or other.state.suspended or other.state.finished or not other.gpus.per_trial:
        return False
    if reserved and other.key.namespace != job.key.namespace:
        return False
    mine, others = job.gpus.products, other.gpus.products
    return not mine or not others or not set(mine).isdisjoint(others)


def _can_be_served(view: TrialView, job: JobView, now: float) -> bool:
    """Return whether a run queue could serve it: its pod has reached its gate, or may get another's slot."""
    if view.intent.suspend or view.terminating or view.intent.stopped:
        return False
    if view.pod is None:
        return job.reclaims_slots and not view.in_migration and view.attempts.retry_at <= now
    return view.phase is not TrialPhase.PENDING


class _Gpus:
    """GPUs that a trial can be given; holders are collected once for all starved trials."""

    def __init__(self, curves: CurveTable, snapshot: Snapshot) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        held = {gpu.holder for gpu in snapshot.gpus if gpu.holder is not None}
        own = {key: curves.views[curves.rows[key]] for key in held & curves.rows.keys()}
        self._holders: Mapping[TrialKey, TrialView | None] = {**snapshot.holders, **own} if own.keys() < held else own
        able = [(job.key, job.abilities) for job in snapshot.jobs]
        self._preemptible = {key for key, abilities in able if abilities.suspendable or abilities.checkpointable}

    def obtainable(self, uuid: str, view: TrialView) -> bool:
        """Return whether the trial can get this GPU.

        It cannot after the end of a GPU reservation, beside an exclusive pod, on a silent node, or if the holder is not
        preemptible.
        """
        gpu = self._gpus.get(uuid)
        if gpu is None or gpu.reservation_ended or gpu.health != "Healthy":
            return False
        if gpu.availability.exclusive_pod is not None:
            return False
        holder = None if gpu.holder is None else self._holders.get(gpu.holder)
        if holder is None or holder.key == view.key:
            return True
        return holder.job in self._preemptible and (view.intent.pinned or not holder.intent.pinned)
