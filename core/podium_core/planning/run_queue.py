"""Run queues: the holder of each GPU and the trials that follow.

There is one global order of all trials; the run queue of a GPU is its restriction to the trials with a slot there. So a
trial with several GPUs has a consistent position on all of them, and no trials wait for each other in a circle. Trials
that hold or take all of their GPUs now come first, then the others by rank. Trials whose pod is not at its gate yet
come last: a GPU neither waits for an image pull nor is protected for it.

A suspended trial is not in a run queue, and so holds no GPU. The same is true for trials on a GPU without a reservation
and for terminating pods, which the agent lets end before it admits another trial.

The workers of a trial are on several nodes, whose agents know nothing of each other. So the run queues alone would not
keep two trials from holding one half of their GPUs each. A trial of several workers is in the run queues only while all
of its workers can run. Its entries are on hold, except while it is to hold all of its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from podium_core.domain.actions import TrialRank, WriteRunQueues
from podium_core.domain.gpu_queue import QueueShare
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.holder_choice import HolderChoice, Paces
from podium_core.planning.queues.job_priority import by_priority
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.queues.queued_choice import QueuedChoice
from podium_core.planning.ranking import Standing
from podium_core.policies.base import Admission


@dataclass(frozen=True, slots=True)
class RunQueuePlan:
    """Run queues of one cycle."""

    run_queues: tuple[WriteRunQueues, ...]
    rank_of: Callable[[TrialKey], TrialRank | None]  # rank and reason of a trial that has a GPU, built on request
    claims: frozenset[TrialKey]  # trials that are to hold their GPUs now
    wake_at: float | None
    shares: tuple[QueueShare, ...] = ()  # standing of each queue


def plan_run_queues(
    snapshot: Snapshot, standings: Mapping[TrialKey, Standing], rules: QueueRules | None = None
) -> RunQueuePlan:
    """Return the run queues. O(n log n) in the number of slots in use.

    `rules`: the queues that share the GPUs; None: jobs share them without queues.
    """
    gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
    eligible, uuids = _eligible(gpus, standings)
    ready = frozenset(
        [k for k, s in eligible.items() if s.trial.phase is not TrialPhase.PENDING or _holds(k, uuids[k], gpus)]
    )
    base = list(eligible.values())
    if len(snapshot.jobs) > 1 or any(s.trial.intent.pinned for s in base):  # else they are ordered by rank already
        base.sort(key=_base_key)
    if any(job.gpus.priority for job in snapshot.jobs):
        base = by_priority(base, None if rules is None else rules.queue_of)
    if len(ready) < len(base):
        base.sort(key=lambda s: s.trial.key not in ready)  # a stable sort: by rank within both parts
    paces = Paces(snapshot.trials_by_job)
    choice = HolderChoice(snapshot, gpus, eligible, uuids, ready, paces, standings)
    if rules is not None:
        choice = QueuedChoice(snapshot, gpus, eligible, uuids, ready, paces, standings, rules=rules)
    choice.run(base)
    wanted: dict[str, list[TrialKey]] = {uuid: [] for uuid in gpus}
    waiting: list[TrialKey] = []
    claims = choice.claims
    for standing in base:
        key = standing.trial.key
        if key in claims:
            for uuid in uuids[key]:
                wanted[uuid].append(key)
        elif key not in choice.barred:
            waiting.append(key)
    for key in waiting:
        for uuid in uuids[key]:
            wanted[uuid].append(key)
    return RunQueuePlan(
        _writes(snapshot, gpus, wanted, choice),
        choice.rank_of,
        frozenset(choice.claims),
        choice.wake_at,
        choice.shares(standings),
    )


def _base_key(standing: Standing) -> tuple[bool, int, float, JobKey]:
    """Return the sort key: jobs are mixed rank by rank, and the older job comes first at equal ranks."""
    trial, job, _, ranked = standing
    return (not trial.intent.pinned, ranked.rank, job.created, job.key)


def _eligible(
    gpus: Mapping[str, GpuView], standings: Mapping[TrialKey, Standing]
) -> tuple[dict[TrialKey, Standing], dict[TrialKey, tuple[str, ...]]]:
    """Return the trials that may be in a run queue, and the GPUs of each."""
    eligible: dict[TrialKey, Standing] = {}
    uuids: dict[TrialKey, tuple[str, ...]] = {}
    unreserved = {uuid for uuid, gpu in gpus.items() if gpu.reservation_ended}
    for key, standing in standings.items():
        trial = standing.trial
        pod = trial.pod
        if pod is None or pod.terminating or standing.suspended_by_user:
            continue
        if standing.ranked.admission is Admission.WAIT and standing.paused:
            continue
        mine = pod.gpus
        if standing.job.gpus.workers > 1 and not _workers_ready(trial, gpus):
            continue
        if len(mine) != 1 or mine[0] not in gpus:  # most trials have one, which exists
            mine = tuple([uuid for uuid in mine if uuid in gpus])
        if mine and (not unreserved or unreserved.isdisjoint(mine)):
            eligible[key] = standing
            uuids[key] = mine
    return eligible, uuids


def _workers_ready(trial: TrialView, gpus: Mapping[str, GpuView]) -> bool:
    """Return whether all workers of the trial can run: none waits for an image pull, a GPU or an exclusive pod."""
    if any(uuid not in gpus or gpus[uuid].availability.exclusive_pod is not None for uuid in trial.gpus):
        return False
    return trial.phase is not TrialPhase.PENDING or _holds(trial.key, trial.gpus, gpus)


def _holds(key: TrialKey, uuids: tuple[str, ...], gpus: Mapping[str, GpuView]) -> bool:
    """Return whether the trial holds a GPU, whatever its pod reports yet."""
    return any(gpus[uuid].holder == key for uuid in uuids)


def _writes(
    snapshot: Snapshot, gpus: Mapping[str, GpuView], wanted: Mapping[str, Sequence[TrialKey]], choice: HolderChoice
) -> tuple[WriteRunQueues, ...]:
    """Return one write for each node on which the run queue of some GPU changes."""
    nodes: dict[str, list[str]] = {}
    for uuid, gpu in gpus.items():
        nodes.setdefault(gpu.node, []).append(uuid)
    on_hold = choice.on_hold()

    def changes(uuid: str) -> bool:
        before = gpus[uuid].run_queue
        if tuple(wanted[uuid]) != before.trials:
            return True
        return bool(on_hold or before.on_hold) and on_hold.intersection(before.trials) != before.on_hold

    writes: list[WriteRunQueues] = []
    for node, mine in sorted(nodes.items()):
        if any(changes(uuid) for uuid in mine):
            epoch = snapshot.epochs.get(node, 0) + 1
            queues = tuple((uuid, tuple(choice.ranks_of(wanted[uuid]))) for uuid in sorted(mine))
            preempting = tuple([uuid for uuid in sorted(mine) if choice.takes(uuid, wanted[uuid])])
            writes.append(WriteRunQueues(node, epoch, queues, preempting))
    return tuple(writes)
