"""Live trials on their way from one simulated node to another (`container-checkpoint`): the operator's part of it, by
the very table of the cluster (`domain.carrying`). Called by `operator`, once a cycle before it plans.

The counterpart of `podium_operator.act.migration`. What the nodes do (suspend it, make its image, restore it) is in
`agent`
and `pods`. A difference: the old pod is gone in the moment in which the new one is made.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from podium_core.domain.actions import Migrate
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
from podium_core.domain.snapshot import TrialKey
from podium_simulator.system.event_queue import Queue
from podium_simulator.system.pods import Pods
from podium_simulator.system.scenario import Timing
from podium_simulator.system.state import Node, Trial, Way

HOLDS_GPU = ("GPUAttached", "It is not suspended by cuda-checkpoint: its memory is on the GPU.")


class Carrying:
    def __init__(self, queue: Queue, timing: Timing, nodes: Mapping[str, Node]) -> None:
        self._queue = queue
        self._timing = timing
        self._nodes = nodes
        self._on_way: dict[TrialKey, Trial] = {}  # or fallen back a moment ago
        self._pods: Pods

    def connect(self, pods: Pods) -> None:
        self._pods = pods

    def __bool__(self) -> bool:
        return bool(self._on_way)

    def ask(self, trial: Trial, carry: Migrate) -> None:
        """Its node's agent is told, and it gets no turn from then on."""
        if trial.node is None:
            return  # it was lost in this very moment
        trial.way = Way(trial.node.spec.name, carry.target, carry.reason, trial.attempt + 1, self._queue.now)
        self._on_way[trial.key] = trial
        trial.see(trial.view.phase)
        self._queue.after(self._timing.order, self._pods.asked, trial, trial.way)

    def look(self, crowded_out: Collection[TrialKey]) -> bool:
        """Each one takes the step that the table lets it; whether one did. `crowded_out`: whose promised shares are
        others' by now.
        """
        steps = False
        for key, trial in list(self._on_way.items()):
            way = trial.way
            assert way is not None
            if way.phase in IN_PROGRESS:
                moved = next_step(way.phase, self._facts(trial, way, room=key not in crowded_out))
                if moved is not None:
                    steps = True
                    way.phase, way.code, way.since = moved.phase, moved.code, self._queue.now
                    if way.phase is MigrationPhase.FAILED:
                        self._pods.fell_back(trial, way)
            if way.phase not in IN_PROGRESS and self._done(trial, way):
                trial.way = None
                del self._on_way[key]
            trial.see(trial.view.phase)
        return steps

    def waits(self, trial: Trial) -> bool:
        """Whether no pod is made of its image for now: where that is to go on, no trials are taken."""
        return trial.in_image and trial.way is not None and self._nodes[trial.way.target].draining

    def wake_at(self) -> float:
        """When time alone makes a difference."""
        return min([self._due(trial.way) for trial in self._on_way.values() if trial.way is not None], default=math.inf)

    def _facts(self, trial: Trial, way: Way, *, room: bool) -> MigrationFacts:
        old, new = trial.attempt < way.attempt, trial.attempt == way.attempt
        there = trial.state is not None and not trial.leaving
        target = self._nodes[way.target]
        return MigrationFacts(
            age=self._queue.now - way.since,
            trial_ended=trial.view.phase in FINAL,
            draining=way.reason == REBALANCING or self._nodes[way.node].draining,
            old_pod=old and there,
            refusal=None if trial.job.spec.method.carries else HOLDS_GPU,
            image_pushed=way.pushed and not self._nodes[way.node].silent,
            new_pod=NewPodFacts(
                created=new,
                live=new and there,
                value_printed=new and len(trial.written.curve) > way.known,
                bound=new and trial.node is not None,
            ),
            target=TargetFacts(
                accepts=not target.draining, waiting_for_drain=way.code == TARGET_DRAINING, slots_free=room
            ),
        )

    def _done(self, trial: Trial, way: Way) -> bool:
        """Whether it may be carried anew. One that fell back is not at once, as long as it is to leave."""
        if way.phase is MigrationPhase.RESTORED or trial.attempt >= way.attempt or trial.state is None:
            return True
        drains = self._nodes[way.node].draining
        rested = self._queue.now >= self._due(way)
        if way.reason == REBALANCING:
            return drains or rested
        return not drains or (way.code in RETRIABLE_CODES and rested)

    def _due(self, way: Way) -> float:
        if way.phase is MigrationPhase.REQUESTED:
            return way.since + REQUEST_TIMEOUT_SECONDS
        if way.phase is MigrationPhase.IMAGE_PUSHED and way.code == TARGET_DRAINING:
            return way.since + TARGET_DRAINING_SECONDS
        if way.phase is not MigrationPhase.FAILED:
            return math.inf
        if way.reason == REBALANCING:
            return way.since + REBALANCING_RETRY_SECONDS
        return way.since + RETRY_SECONDS if way.code in RETRIABLE_CODES else math.inf
