"""Live migration of trials between simulated nodes (`container-checkpoint`): the operator's part.

It follows the cluster's own state table (`domain.migration`). `operator` calls it once per cycle before it plans. The
counterpart is `podium_operator.act.migration`. The nodes' part (suspend, make the image, restore) is in `agent` and
`pods`. One difference: the old pod ends in the moment in which the new one is created.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from podium_core.domain.actions import Migrate
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import (
    IN_PROGRESS,
    REBALANCING_RETRY_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    RETRIABLE_CODES,
    RETRY_SECONDS,
    TARGET_DRAINING,
    TARGET_DRAINING_SECONDS,
    MigrationFacts,
    MigrationPhase,
    NewPodFacts,
    TargetFacts,
    next_step,
)
from podium_core.domain.phase import FINAL
from podium_core.domain.rebalancing import REBALANCING
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.scenario import Timing
from podium_simulator.system.pods import Pods
from podium_simulator.system.state import Node, Trial
from podium_simulator.system.trial_state import SimMigration

HOLDS_GPU = ("GPUAttached", "It is not suspended by cuda-checkpoint: its memory is on the GPU.")


class Migrations:
    def __init__(self, queue: EventQueue, timing: Timing, nodes: Mapping[str, Node]) -> None:
        self._queue = queue
        self._timing = timing
        self._nodes = nodes
        self._active: dict[TrialKey, Trial] = {}  # in progress, or failed a moment ago
        self._pods: Pods

    def connect(self, pods: Pods) -> None:
        self._pods = pods

    def __bool__(self) -> bool:
        return bool(self._active)

    def start(self, trial: Trial, action: Migrate) -> None:
        """Start a migration: its agent is asked, and the trial gets no time slice from then on."""
        node, attempt = trial.pod.node, trial.attempts.number + 1
        if node is None:
            return  # the pod was lost in this moment
        trial.migration = SimMigration(node.spec.name, action.target, action.reason, attempt, self._queue.now)
        self._active[trial.key] = trial
        trial.publish(trial.view.phase)
        self._queue.after(self._timing.order, self._pods.request_migration, trial, trial.migration)

    def advance(self, crowded_out: Collection[TrialKey]) -> bool:
        """Advance each migration by the step that the state table allows; return whether one advanced.

        `crowded_out`: trials whose promised slots other pods have taken.
        """
        steps = False
        for key, trial in list(self._active.items()):
            migration = trial.migration
            assert migration is not None
            if migration.phase in IN_PROGRESS:
                moved = next_step(migration.phase, self._facts(trial, migration, slots_free=key not in crowded_out))
                if moved is not None:
                    steps = True
                    migration.phase, migration.code, migration.since = moved.phase, moved.code, self._queue.now
                    if migration.phase is MigrationPhase.FAILED:
                        self._pods.migration_failed(trial, migration)
            if migration.phase not in IN_PROGRESS and self._done(trial, migration):
                trial.migration = None
                del self._active[key]
            trial.publish(trial.view.phase)
        return steps

    def holds_back_pod(self, trial: Trial) -> bool:
        """Return whether the pod for the trial's image must wait, because the target node drains."""
        return trial.in_image and trial.migration is not None and self._nodes[trial.migration.target].draining

    def wake_at(self) -> float:
        """Return the next time at which time alone makes a difference."""
        return min(
            [self._due(trial.migration) for trial in self._active.values() if trial.migration is not None],
            default=math.inf,
        )

    def _facts(self, trial: Trial, migration: SimMigration, *, slots_free: bool) -> MigrationFacts:
        pod, number = trial.pod, trial.attempts.number
        old, new = number < migration.attempt, number == migration.attempt
        present = pod.stage is not None and not pod.terminating
        target = self._nodes[migration.target]
        return MigrationFacts(
            age=self._queue.now - migration.since,
            trial_ended=trial.view.phase in FINAL,
            draining=migration.reason == REBALANCING or self._nodes[migration.node].draining,
            old_pod=old and present,
            refusal=None if trial.job.spec.method.migrates else HOLDS_GPU,
            image_pushed=migration.pushed and not self._nodes[migration.node].silent,
            new_pod=NewPodFacts(
                created=new,
                live=new and present,
                value_printed=new and len(trial.written_status.curve) > migration.known_values,
                bound=new and pod.node is not None,
            ),
            target=TargetFacts(
                accepts=not target.draining,
                waiting_for_drain=migration.code == TARGET_DRAINING,
                slots_free=slots_free,
            ),
        )

    def _done(self, trial: Trial, migration: SimMigration) -> bool:
        """Return whether the trial may migrate again. A failed migration waits while its node still drains."""
        new = trial.attempts.number >= migration.attempt
        if migration.phase is MigrationPhase.RESTORED or new or trial.pod.stage is None:
            return True
        drains = self._nodes[migration.node].draining
        rested = self._queue.now >= self._due(migration)
        if migration.reason == REBALANCING:
            return drains or rested
        return not drains or (migration.code in RETRIABLE_CODES and rested)

    def _due(self, migration: SimMigration) -> float:
        if migration.phase is MigrationPhase.REQUESTED:
            return migration.since + REQUEST_TIMEOUT_SECONDS
        if migration.phase is MigrationPhase.IMAGE_PUSHED and migration.code == TARGET_DRAINING:
            return migration.since + TARGET_DRAINING_SECONDS
        if migration.phase is not MigrationPhase.FAILED:
            return math.inf
        if migration.reason == REBALANCING:
            return migration.since + REBALANCING_RETRY_SECONDS
        return migration.since + RETRY_SECONDS if migration.code in RETRIABLE_CODES else math.inf
