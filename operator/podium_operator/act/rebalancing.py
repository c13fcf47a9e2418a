"""Rebalancing, the operator's part: check that the target node has capacity, and store the moves.

The planner knows GPUs and slots. The API server is asked for CPUs, memory, cordons and taints only when a move is
decided, so that balanced GPUs cause no requests. A node without capacity is skipped for a while for the trials of
that job. Used by the reconciler.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS
from podium_core.domain.actions import Action, Migrate, Requeue
from podium_core.domain.migration import IN_PROGRESS
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import REBALANCING, RebalancingRules
from podium_core.domain.snapshot import JobKey, TrialKey
from podium_core.schema.pod import Pod
from podium_core.schema.trial import Rebalanced
from podium_operator.observe.cluster_state import World, job_key, trial_key
from podium_operator.observe.node_fit import Node, no_room
from podium_operator.observe.observation import Sight
from podium_operator.observe.trial_state import SeenTrial
from podium_operator.settings import OperatorSettings

AGAIN_SECONDS = 10.0  # until a node without capacity is asked again
ECHO_SECONDS = 5.0  # time within which the cache shows a move: until then no other trial is moved in its place
log = logging.getLogger(__name__)


def bound_for(trial: SeenTrial, sight: Sight) -> str | None:
    """Return the node that Podium has chosen for the trial, until its pod is there; else None."""
    carrying, levelled = trial.status.migration, trial.status.rebalanced
    if carrying is not None and carrying.phase in IN_PROGRESS:
        return carrying.target_node
    if levelled is None:
        return None
    goes = sight.leaving or sight.phase is TrialPhase.REQUEUED
    comes = sight.phase is TrialPhase.PENDING and not sight.stuck
    on_its_way = goes if levelled.attempt == sight.attempt + 1 else comes and levelled.attempt == sight.attempt
    return levelled.target_node if on_its_way else None


class Leveller:
    """Checks and stores moves.

    It remembers full nodes and moves that no status shows yet; a new operator starts without them.
    """

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self._api = api
        self.rules = RebalancingRules(settings.rebalancing_min_stay_seconds) if settings.rebalancing else None
        self._full: dict[tuple[JobKey, str], float] = {}
        self._noted: dict[TrialKey, Rebalanced] = {}
        self._told: dict[TrialKey, float] = {}

    def no_room(self, now: float) -> Collection[tuple[JobKey, str]]:
        """Return the nodes that recently had no capacity, by job."""
        self._full = {place: until for place, until in self._full.items() if now < until}
        return self._full.keys()

    async def admit(
        self,
        world: World,
        sights: Mapping[TrialKey, Sight],
        actions: Iterable[Action],
        rests: Collection[str] = (),
    ) -> tuple[Action, ...]:
        """Return the actions without moves to full nodes and moves planned before the last one was visible.

        `rests`: uids of pods whose deletion backs off: capacity need not be checked for them.
        """
        kept: list[Action] = []
        self._told = {key: at for key, at in self._told.items() if at <= world.now < at + ECHO_SECONDS}
        told = frozenset(self._told)
        for action in actions:
            if not isinstance(action, Requeue | Migrate) or action.reason != REBALANCING or action.target is None:
                kept.append(action)
                continue
            if told and action.trial not in told:
                continue
            trial, sight = world.trial_by_key[action.trial], sights[action.trial]
            if isinstance(action, Requeue) and sight.pod is not None and sight.pod.uid in rests:
                kept.append(action)
                continue
            why = None if action.target == sight.node else await self._refusal(world, trial, action.target)
            if why is not None:
                log.info("trial %s/%s is not moved: %s", action.trial.namespace, action.trial.name, why)
                self._full[job_key(trial), action.target] = world.now + AGAIN_SECONDS
                continue
            kept.append(action)
            self._told.setdefault(action.trial, world.now)
            if isinstance(action, Requeue):
                self._noted[action.trial] = _next(trial, sight, action.target, world.now)
        return tuple(kept)

    def levelled(self, world: World, stays: Iterable[TrialKey] = ()) -> Mapping[TrialKey, Rebalanced]:
        """Return the moves to store: those of this reconcile, else those stored.

        `stays`: trials whose pod could not be deleted: they were not moved and have no claim on their target.
        """
        for key in stays:
            self._noted.pop(key, None)
            self._told.pop(key, None)
        self._noted = {key: one for key, one in self._noted.items() if key in world.trial_by_key}
        found: dict[TrialKey, Rebalanced] = {}
        for trial in world.trials:
            key, stored = trial_key(trial), trial.status.rebalanced
            if self._noted.get(key) == stored:
                self._noted.pop(key, None)
            one = self._noted.get(key, stored)
            if one is not None:
                found[key] = one
        return found

    async def _refusal(self, world: World, trial: SeenTrial, target: str) -> str | None:
        """Return why the target node cannot accept the trial, or None."""
        job, pod = world.job_by_key[job_key(trial)], world.latest_pod.get(trial.metadata.uid)
        if pod is None:
            return "its pod is gone"
        try:
            node = Node.model_validate(await self._api.get(NODES, target))
            mine = Pod.model_validate(await self._api.get(PODS, pod.name, pod.namespace))
            fields = f"spec.nodeName={target},status.phase!=Succeeded,status.phase!=Failed"
            there = [Pod.model_validate(one) for one in (await self._api.list(PODS, fields=fields))["items"]]
            return no_room(node, there, mine, job.spec.template["spec"])
        except ApiError as error:
            return f"the capacity of node {target} could not be read: {error}"
        except ValueError as error:  # an odd template or node must not end the reconcile
            return f"the capacity of node {target} could not be parsed: {error}"


def _next(trial: SeenTrial, sight: Sight, target: str, now: float) -> Rebalanced:
    """Return the next move; a move that is repeated because it was not carried out counts once."""
    stored = trial.status.rebalanced
    again = stored is not None and stored.attempt == sight.attempt + 1
    before = stored.count if stored is not None else 0
    return Rebalanced(
        at=datetime.fromtimestamp(int(now), UTC),
        source_node=sight.node or "",
        target_node=target,
        attempt=sight.attempt + 1,
        count=before if again else before + 1,
    )
