"""Rebalancing, the operator's part: check that the target node has capacity, and store the moves.

The planner knows GPUs and slots. The API server is asked for CPUs, memory, cordons and taints only when a move is
decided, so that balanced GPUs cause no requests. A node without capacity is skipped for a while for the trials of
that job. The reconciler uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS
from podium_core.domain.actions import Action, Migrate, Requeue
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.migration import IN_PROGRESS
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import REBALANCING, RebalancingRules
from podium_core.schema.pod import Pod
from podium_core.schema.trial import Rebalanced
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.node_fit import CandidateNode, why_rejected
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState
from podium_operator.settings import OperatorSettings

RECHECK_SECONDS = 10.0  # until a node without capacity is asked again
ECHO_SECONDS = 5.0  # time within which the cache shows a move: until then no other trial is moved in its place
log = logging.getLogger(__name__)


def chosen_node(trial: TrialState, observation: Observation) -> str | None:
    """Return the node that Podium has chosen for the trial, until its pod is there; else None."""
    migration, rebalanced = trial.status.migration, trial.status.rebalanced
    if migration is not None and migration.phase in IN_PROGRESS:
        return migration.target_node
    if rebalanced is None:
        return None
    leaves = observation.delays.terminating or observation.phase is TrialPhase.REQUEUED
    arrives = observation.phase is TrialPhase.PENDING and not observation.delays.stuck
    moving = (
        leaves
        if rebalanced.attempt == observation.attempts.number + 1
        else arrives and rebalanced.attempt == observation.attempts.number
    )
    return rebalanced.target_node if moving else None


class Rebalancer:
    """Checks and stores moves.

    It remembers full nodes and moves that no status shows yet; a new operator starts without them.
    """

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self._api = api
        self.rules = RebalancingRules(settings.rebalancing_min_stay_seconds) if settings.rebalancing else None
        self._full_nodes: dict[tuple[JobKey, str], float] = {}
        self._unstored: dict[TrialKey, Rebalanced] = {}
        self._admitted_at: dict[TrialKey, float] = {}

    def full_nodes(self, now: float) -> Collection[tuple[JobKey, str]]:
        """Return the nodes that recently had no capacity, by job."""
        self._full_nodes = {place: until for place, until in self._full_nodes.items() if now < until}
        return self._full_nodes.keys()

    async def admit(
        self,
        cluster: ClusterState,
        observations: Mapping[TrialKey, Observation],
        actions: Iterable[Action],
        in_backoff: Collection[str] = (),
    ) -> tuple[Action, ...]:
        """Return the actions without moves to full nodes and moves planned before the last one was visible.

        `in_backoff`: uids of pods whose deletion backs off: capacity need not be checked for them.
        """
        kept: list[Action] = []
        self._admitted_at = {key: at for key, at in self._admitted_at.items() if at <= cluster.now < at + ECHO_SECONDS}
        admitted = frozenset(self._admitted_at)
        for action in actions:
            if not isinstance(action, Requeue | Migrate) or action.reason != REBALANCING or action.target is None:
                kept.append(action)
                continue
            if admitted and action.trial not in admitted:
                continue
            trial, observation = cluster.trial_by_key[action.trial], observations[action.trial]
            if isinstance(action, Requeue) and observation.pod is not None and observation.pod.uid in in_backoff:
                kept.append(action)
                continue
            why = None if action.target == observation.node else await self._why_rejected(cluster, trial, action.target)
            if why is not None:
                log.info("trial %s/%s is not moved: %s", action.trial.namespace, action.trial.name, why)
                self._full_nodes[job_key(trial), action.target] = cluster.now + RECHECK_SECONDS
                continue
            kept.append(action)
            self._admitted_at.setdefault(action.trial, cluster.now)
            if isinstance(action, Requeue):
                self._unstored[action.trial] = _next_move(trial, observation, action.target, cluster.now)
        return tuple(kept)

    def moves_to_store(
        self, cluster: ClusterState, undeleted: Iterable[TrialKey] = ()
    ) -> Mapping[TrialKey, Rebalanced]:
        """Return the moves to store: those of this reconcile, else those stored.

        `undeleted`: trials whose pod could not be deleted: they were not moved and have no claim on their target.
        """
        for key in undeleted:
            self._unstored.pop(key, None)
            self._admitted_at.pop(key, None)
        self._unstored = {key: one for key, one in self._unstored.items() if key in cluster.trial_by_key}
        moves: dict[TrialKey, Rebalanced] = {}
        for trial in cluster.trials:
            key, stored = trial_key(trial), trial.status.rebalanced
            if self._unstored.get(key) == stored:
                self._unstored.pop(key, None)
            one = self._unstored.get(key, stored)
            if one is not None:
                moves[key] = one
        return moves

    async def _why_rejected(self, cluster: ClusterState, trial: TrialState, target: str) -> str | None:
        """Return why the target node cannot accept the trial, or None."""
        job, pod = cluster.job_by_key[job_key(trial)], cluster.latest_pod.get(trial_key(trial))
        if pod is None:
            return "its pod is gone"
        try:
            node = CandidateNode.model_validate(await self._api.get(NODES, target))
            present = Pod.model_validate(await self._api.get(PODS, pod.name, pod.namespace))
            fields = f"spec.nodeName={target},status.phase!=Succeeded,status.phase!=Failed"
            there = [Pod.model_validate(one) for one in (await self._api.list(PODS, fields=fields))["items"]]
            return why_rejected(node, there, present, job.spec.template["spec"])
        except ApiError as error:
            return f"the capacity of node {target} could not be read: {error}"
        except ValueError as error:  # an odd template or node must not end the reconcile
            return f"the capacity of node {target} could not be parsed: {error}"


def _next_move(trial: TrialState, observation: Observation, target: str, now: float) -> Rebalanced:
    """Return the next move; a move that is repeated because it was not carried out counts once."""
    stored = trial.status.rebalanced
    again = stored is not None and stored.attempt == observation.attempts.number + 1
    before = stored.count if stored is not None else 0
    return Rebalanced(
        at=datetime.fromtimestamp(int(now), UTC),
        source_node=observation.node or "",
        target_node=target,
        attempt=observation.attempts.number + 1,
        count=before if again else before + 1,
    )
