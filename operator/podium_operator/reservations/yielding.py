"""Find the pods that wait for GPUs which only Podium's reservations hold, and the reservations to give up for them.

`controller` uses it where GPUs are dynamic resources (DRA). `planning.slots.gpu_yields` decides. The API server is
asked for claims, devices and nodes only while a pod of higher priority waits. A new operator remembers nothing: it sees
which reservations are terminating, and waits before it gives up more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.placement.requests import requests_of
from podium_core.planning.slots.gpu_reservations import Reservation
from podium_core.planning.slots.gpu_yields import GpuSupply, HeldGpu, WaitingPod, YieldPlan, plan_yields
from podium_core.schema.pod import Pod
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.dynamic_devices import ClaimKey, DeviceClaim, free_devices, parse_claims
from podium_operator.observe.node_fit import CandidateNode, why_rejected_without_gpus
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.observe.waiting_pods import UnplacedPodState
from podium_operator.reservations.reservation_pod import GPU_RESOURCE

SOON_SECONDS = 1.0  # between two decisions after something has changed
LATE_SECONDS = 10.0  # between two decisions otherwise
DEALLOCATION_SECONDS = 5.0  # from the end of a pod until its claim has gone
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"  # of the extended resource that every DeviceClass has
log = logging.getLogger(__name__)
Candidates = Mapping[str, UnplacedPodState]  # by uid


class Yielding:
    """Decides from time to time while pods wait, and remembers for which pods reservations were given up."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._plan = YieldPlan()
        self._since: Mapping[str, float] = {}  # when each candidate was first observed, by uid
        self._leaving: Mapping[str, tuple[str, float]] = {}  # node and last observation of terminating reservations
        self._decided_at = 0.0
        self._decided_on: object = None

    async def plan(self, cluster: ClusterState, reservations: Sequence[Reservation]) -> YieldPlan:
        """Return the plan that is in force."""
        candidates = self._candidates(cluster)
        self._since = {uid: self._since.get(uid, cluster.now) for uid in candidates}
        self._leaving = _leaving(cluster, self._leaving)
        if not candidates:
            self._plan = YieldPlan()
            return self._plan
        state = (candidates, cluster.reservations)
        due_at = self._decided_at + (LATE_SECONDS if state == self._decided_on else SOON_SECONDS)
        if self._plan.wake_at is not None:
            due_at = max(self._decided_at + SOON_SECONDS, min(due_at, self._plan.wake_at))
        if cluster.now < due_at:
            return replace(self._plan, wake_at=due_at)
        self._decided_at, self._decided_on = cluster.now, state
        try:
            self._plan = await self._decide(cluster, candidates, reservations)
        except (ApiError, ValueError) as error:
            log.warning("no GPU reservation is given up for now: %s", error)
        return self._plan

    def _candidates(self, cluster: ClusterState) -> Candidates:
        """Return the pods that wait for GPUs and may preempt a reservation, and those with a record."""
        priorities = [one.priority for one in cluster.reservations if one.claim]
        lowest = min(priorities, default=None)
        return {
            pod.uid: pod
            for pod in cluster.unplaced_pods
            if pod.uid in self._plan.records
            or (pod.request is not None and lowest is not None and pod.priority > lowest)
        }

    async def _decide(
        self, cluster: ClusterState, candidates: Candidates, reservations: Sequence[Reservation]
    ) -> YieldPlan:
        claims = parse_claims((await self._api.list(RESOURCE_CLAIMS))["items"])
        own = [claims[key] for one in cluster.reservations if (key := (one.pool.namespace, one.claim)) in claims]
        classes = frozenset(name for claim in own for name in claim.wants)
        drivers = frozenset(driver for claim in own for driver, _, _ in claim.has)
        slices = (await self._api.list(RESOURCE_SLICES))["items"]
        supply = GpuSupply(
            held=_held(cluster, reservations),
            free=free_devices(slices, claims.values(), drivers),
            leaving={uid: node for uid, (node, _) in self._leaving.items()},
        )
        wanted = {
            uid: gpus for uid, pod in candidates.items() if (gpus := _gpus_of(pod, claims, classes)) > 0
        }  # without those that wait for something else
        fits = await self._fits({one.node for one in supply.held}, [candidates[uid] for uid in wanted], classes)
        pods = [
            WaitingPod(
                uid, f"{pod.namespace}/{pod.name}", pod.priority, wanted[uid], self._since[uid], frozenset(fits[uid])
            )
            for uid, pod in candidates.items()
            if uid in wanted
        ]
        unplaced = frozenset(pod.uid for pod in cluster.unplaced_pods)
        return plan_yields(pods, supply, self._plan.records, unplaced, cluster.now)

    async def _fits(
        self, nodes: Collection[str], pods: Sequence[UnplacedPodState], classes: Collection[str]
    ) -> Mapping[str, set[str]]:
        """Return the nodes that would accept each pod if their GPUs were free, by its uid."""
        gpus = {GPU_RESOURCE, *(CLASS_PREFIX + name for name in classes)}
        fits: dict[str, set[str]] = {pod.uid: set() for pod in pods}
        for name in sorted(nodes) if pods else ():
            try:
                node = CandidateNode.model_validate(await self._api.get(NODES, name))
            except ApiError as error:
                if not error.not_found:
                    raise
                continue
            fields = f"spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed"
            there = [Pod.model_validate(one) for one in (await self._api.list(PODS, fields=fields))["items"]]
            for pod in pods:
                request = pod.request
                if request is None:
                    continue
                why = why_rejected_without_gpus(node, there, request.pod, request.spec, gpus)
                if why is None:
                    fits[pod.uid].add(name)
                else:
                    log.debug("pod %s/%s cannot use a GPU of node %s: %s", pod.namespace, pod.name, name, why)
        return fits


def _leaving(cluster: ClusterState, before: Mapping[str, tuple[str, float]]) -> Mapping[str, tuple[str, float]]:
    """Return the terminating reservations, and for a while those that have gone: their claims end after them."""
    recent = {uid: one for uid, one in before.items() if cluster.now - one[1] < DEALLOCATION_SECONDS}
    return recent | {
        one.uid: (one.node, cluster.now)
        for one in cluster.reservations
        if one.claim and one.bound and (one.deleting or one.ended)
    }


def _held(cluster: ClusterState, reservations: Sequence[Reservation]) -> tuple[HeldGpu, ...]:
    """Return the reservations that can be given up.

    The loss is the number of trials on the GPU, then the seconds since the oldest of their newest checkpoints.
    """
    by_name = {(one.pool.namespace, one.name): one for one in reservations}
    held = []
    for pod in cluster.reservations:
        reservation = by_name.get((pod.pool.namespace, pod.name))
        if not pod.claim or reservation is None:
            continue
        if reservation.state in (ReservationState.HELD, ReservationState.STARTING):
            held.append(HeldGpu(pod.uid, pod.node, pod.priority, (reservation.loss, _unsaved(pod, cluster.now))))
    return tuple(held)


def _unsaved(pod: ReservationPodState, now: float) -> float:
    return 0.0 if pod.last_checkpoint is None else max(0.0, now - pod.last_checkpoint)


def _gpus_of(pod: UnplacedPodState, claims: Mapping[ClaimKey, DeviceClaim], classes: Collection[str]) -> int:
    """Return how many GPUs like the reserved ones the pod waits for; a claim with devices waits for none."""
    if pod.request is None:
        return 0
    found = [claims[key] for name in pod.request.claims if (key := (pod.namespace, name)) in claims]
    if len(found) < len(pod.request.claims):
        return 0  # not created yet
    waiting = [claim for claim in found if not claim.has]
    named = requests_of(pod.request.pod.spec)
    return (
        pod.request.gpus
        + sum(named.get(CLASS_PREFIX + name, 0) // 1000 for name in classes)
        + sum(claim.wants.get(name, 0) for claim in waiting for name in classes)
    )
