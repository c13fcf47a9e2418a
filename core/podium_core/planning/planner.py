"""The one decision: from a snapshot to typed actions, each with its reason. Pure; the same for cluster, simulator
and what-if.

Called by the operator once a cycle. Nothing here knows a clock or chance: `snapshot.now` is the time, ties break by
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from podium_core.domain.actions import EndTrial, LazyRanks, Plan, TrialRank
from podium_core.domain.snapshot import Snapshot, TrialKey
from podium_core.planning.completion import close
from podium_core.planning.creation import create
from podium_core.planning.early_stopping import end_paused, stop_early
from podium_core.planning.migration import is_migrating_away, migrate
from podium_core.planning.pod_quota import pod_quotas
from podium_core.planning.ranking import Standing, standings
from podium_core.planning.rebalancing import rebalance
from podium_core.planning.requeue import requeue
from podium_core.planning.run_queue import plan_run_queues
from podium_core.planning.slot_reclaim import reclaim_slots


def plan(snapshot: Snapshot) -> Plan:
    """Close what is over, rank what is left, end what its policy gives up, order the GPUs, take pods away where that
    saves work, create what there is room for, then level what is left.

    Orders go before creations: what is running matters more than what might. O(points + n log n + shares * GPUs *
    jobs).
    """
    found = close(snapshot)
    given_up = stop_early(standings(snapshot, found), found)
    ranked, closing = given_up.standings, given_up.closing
    ordering = plan_run_queues(snapshot, ranked)
    carried = migrate(snapshot, ranked)
    allotments = pod_quotas(snapshot, closing, carried.promised)
    leaving = requeue(snapshot, ranked, ordering, reclaim_slots(snapshot, ranked, ordering.claims, allotments))
    creation = create(snapshot, allotments, closing, ranked, ordering.claims)
    others = (*leaving.actions, *carried.actions, *creation.actions)
    levelled = rebalance(snapshot, ranked, ordering.claims, others)
    released = end_paused(snapshot, ranked, (*others, *levelled.actions), closing)
    ended = {action.trial for action in released.actions if isinstance(action, EndTrial)}
    lost = frozenset(gpu.uuid for gpu in snapshot.gpus if gpu.reservation_ended)

    def ranks() -> Iterator[TrialRank]:
        for key, standing in ranked.items():
            if key not in ended:
                yield ordering.rank_of(key) or _off_gpu(standing, creation.waiting, lost)

    deadlines = [
        j.deadline for j in snapshot.jobs if j.deadline is not None and j.deadline > snapshot.now and not j.finished
    ]
    parts = (ordering, leaving, creation, levelled, released)
    wakes = [at for at in (*(part.wake_at for part in parts), *deadlines) if at is not None]
    return Plan(
        actions=(
            *closing.actions,
            *given_up.actions,
            *ordering.run_queues,
            *others,
            *levelled.actions,
            *released.actions,
        ),
        ranks=LazyRanks(ranks),
        wake_at=min(wakes, default=None),
    )


def _off_gpu(standing: Standing, waiting: Mapping[TrialKey, tuple[str, str]], lost: Collection[str]) -> TrialRank:
    key, rank = standing.trial.key, standing.ranked
    reason, text = waiting.get(key) or _why_off(standing, lost)
    return TrialRank(key, rank.rank, reason, f"{rank.message} {text}")


def _why_off(standing: Standing, lost: Collection[str]) -> tuple[str, str]:
    trial = standing.trial
    if trial.terminating:
        return "PodTerminating", "Its pod has been told to go; another one goes on."
    if standing.job.suspended:
        return "JobSuspended", "The job is suspended: its pods stay and hold no GPU."
    if is_migrating_away(trial):
        return (
            "MigrationInProgress",
            "It is being carried to another node: its memory becomes an image, from which it goes on.",
        )
    if trial.suspend:
        return "TrialSuspended", "spec.suspend is set: the trial stays off the GPU."
    if any(uuid in lost for uuid in trial.gpus):
        return "ReservationEnded", "Podium's lease of its GPU has ended: it goes on when the GPU is leased again."
    if standing.paused:
        return "PausedByPolicy", "It takes no GPU until its policy wants it again."
    return "NoGPUAssigned", "Its pod has no share of a GPU yet."
