"""The planner: from a snapshot to typed actions, each with its reason.

Pure, and the same for cluster, simulator and what-if analysis. The operator calls it in each reconciliation. There is
no clock and no randomness: `snapshot.now` is the time, and ties are broken by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from podium_core.domain.actions import EndTrial, LazyRanks, Plan, TrialRank
from podium_core.domain.gpu_queue import QueueShare
from podium_core.domain.keys import TrialKey
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.completion import close
from podium_core.planning.creation import create
from podium_core.planning.early_stopping import end_paused, stop_early
from podium_core.planning.migration import is_migrating_away, migrate
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.ranking import Standing, standings
from podium_core.planning.requeue import requeue
from podium_core.planning.run_queue import plan_run_queues
from podium_core.planning.slots.pod_quota import pod_quotas
from podium_core.planning.slots.priority_reclaim import reclaim_for_priority
from podium_core.planning.slots.queue_reclaim import reclaim_between_queues
from podium_core.planning.slots.rebalancing import rebalance
from podium_core.planning.slots.slot_reclaim import reclaim_slots


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and the standing of each queue; without queues there is none."""

    plan: Plan
    shares: tuple[QueueShare, ...] = ()


def plan(snapshot: Snapshot) -> Plan:
    """Return the plan for a snapshot; see `decide`."""
    return decide(snapshot).plan


def decide(snapshot: Snapshot) -> Decision:
    """Return the plan for a snapshot, and the shares of the queues.

    The steps, in this order:

    1. Close the jobs and trials that have ended.
    2. Rank the remaining trials, and end those that their policy stops.
    3. Write the run queues. They come before creations: running trials matter more than new ones.
    4. Delete pods where that saves work.
    5. Create the pods that fit.
    6. Rebalance.

    O(points + n log n + slots * GPUs * jobs).
    """
    ended_now = close(snapshot)
    rules = QueueRules.of(snapshot)
    stopped = stop_early(standings(snapshot, ended_now), ended_now)
    ranked, closing = stopped.standings, stopped.closing
    queues = plan_run_queues(snapshot, ranked, rules)
    migrations = migrate(snapshot, ranked)
    quotas = pod_quotas(snapshot, closing, migrations.promised, rules)
    reclaims = reclaim_slots(snapshot, ranked, queues.claims, quotas)
    if any(job.gpus.priority for job in snapshot.jobs):
        reclaims = reclaims.joined(reclaim_for_priority(snapshot, ranked, queues.claims, quotas, closing, rules))
    if rules is not None:
        reclaims = reclaims.joined(reclaim_between_queues(snapshot, ranked, queues.claims, quotas, closing, rules))
    requeues = requeue(snapshot, ranked, queues, reclaims)
    creation = create(snapshot, quotas, closing, ranked, queues.claims)
    others = (*requeues.actions, *migrations.actions, *creation.actions)
    rebalanced = rebalance(snapshot, ranked, queues.claims, others)
    paused_ends = end_paused(snapshot, ranked, (*others, *rebalanced.actions), closing)
    ended = {action.trial for action in paused_ends.actions if isinstance(action, EndTrial)}
    unreserved = frozenset(gpu.uuid for gpu in snapshot.gpus if gpu.reservation_ended)

    def ranks() -> Iterator[TrialRank]:
        for key, standing in ranked.items():
            if key not in ended:
                yield queues.rank_of(key) or _off_gpu(standing, creation.waiting, unreserved)

    deadlines = [
        deadline
        for job in snapshot.jobs
        if (deadline := job.limits.deadline) is not None and deadline > snapshot.now and not job.state.finished
    ]
    parts = (queues, requeues, creation, rebalanced, paused_ends)
    wakes = [at for at in (*(part.wake_at for part in parts), *deadlines) if at is not None]
    made = Plan(
        actions=(
            *closing.actions,
            *stopped.actions,
            *queues.run_queues,
            *others,
            *rebalanced.actions,
            *paused_ends.actions,
        ),
        ranks=LazyRanks(ranks),
        wake_at=min(wakes, default=None),
    )
    return Decision(made, queues.shares)


def _off_gpu(standing: Standing, waiting: Mapping[TrialKey, tuple[str, str]], unreserved: Collection[str]) -> TrialRank:
    key, rank = standing.trial.key, standing.ranked
    reason, text = waiting.get(key) or _why_off(standing, unreserved)
    return TrialRank(key, rank.rank, reason, f"{rank.message} {text}")


def _why_off(standing: Standing, unreserved: Collection[str]) -> tuple[str, str]:
    trial = standing.trial
    if trial.terminating:
        return "PodTerminating", "Its pod is terminating; another one continues the trial."
    if standing.job.state.suspended:
        return "JobSuspended", "The job is suspended: its pods remain and hold no GPU."
    if is_migrating_away(trial):
        return (
            "MigrationInProgress",
            "It is being migrated to another node: its memory becomes an image, from which it continues.",
        )
    if trial.intent.suspend:
        return "TrialSuspended", "spec.suspend is set: the trial gets no GPU."
    if any(uuid in unreserved for uuid in trial.gpus):
        return "ReservationEnded", "The reservation of its GPU has ended: it continues when the GPU is reserved again."
    if standing.paused:
        return "PausedByPolicy", "It gets no GPU until its policy selects it again."
    if trial.gpus and standing.job.gpus.workers > 1:
        return (
            "WorkersNotReady",
            "It gets no GPU while one of its workers cannot run: it is not at its gate, or its GPU is not available.",
        )
    return "NoGPUAssigned", "Its pod has no slot on a GPU yet."
