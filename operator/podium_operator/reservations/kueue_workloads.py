"""Kueue's Workloads of the reservation pods: which one Kueue should preempt first (`planning.slots.preemption_order`).

Kueue makes one Workload for each reservation pod, and reads the boost from there only. It honours the boost if its
feature gate `PriorityBoost` is on, otherwise it ignores the annotation. Workloads are remembered by the uid of their
pods, so a reconcile without a change sends no request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field, ValidationError

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import WORKLOADS
from podium_core.planning.slots.preemption_order import AdmittedReservation, priority_boosts
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_operator.observe.reservation_state import ReservationPodState

MANAGER = "podium-operator"
BOOST_ANNOTATION = "kueue.x-k8s.io/priority-boost"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
READS = 10  # Workloads that one reconcile reads at most
RETRY_SECONDS = 30.0
ABSENT_SECONDS = 300.0  # until the next question whether Kueue is installed
log = logging.getLogger(__name__)


class _Admission(StatusModel):
    cluster_queue: str = ""


class _Status(StatusModel):
    admission: _Admission | None = None


class _Workload(StatusModel):
    metadata: ObjectMeta
    status: _Status = Field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The Workload of an admitted reservation pod, with the boost that it has."""

    name: str
    cluster_queue: str
    boost: int


class KueueWorkloads:
    """Writes the boosts of admitted reservations."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._workloads: dict[str, _Admitted] = {}  # by uid of the pod
        self._retry_at = 0.0

    async def update(self, pods: Sequence[ReservationPodState], costs: Mapping[str, float], now: float) -> None:
        """Write the boosts of the reservation pods in `costs`, which has the cost of each one that has trials."""
        live = {one.uid: one for one in pods if one.uid in costs and one.pool.queue and one.bound and not one.over}
        self._workloads = {uid: workload for uid, workload in self._workloads.items() if uid in live}
        if now < self._retry_at:
            return
        try:
            await self._read([one for uid, one in live.items() if uid not in self._workloads][:READS])
            await self._write(live, costs)
        except ApiError as error:
            self._retry_at = now + (ABSENT_SECONDS if error.not_found else RETRY_SECONDS)
            log.warning("the order in which Kueue preempts GPU reservations is not written: %s", error)

    async def _read(self, pods: Sequence[ReservationPodState]) -> None:
        """Read the Workloads of these pods. One that Kueue has not admitted yet is read again later."""
        for pod in pods:
            found = await self._api.list(WORKLOADS, pod.pool.namespace, labels=f"{JOB_UID_LABEL}={pod.uid}")
            for item in found["items"]:
                try:
                    workload = _Workload.model_validate(item)
                    boost = int(workload.metadata.annotations.get(BOOST_ANNOTATION, "0"))
                except (ValidationError, ValueError) as error:
                    log.warning("the Workload of GPU reservation %s is left as it is: %s", pod.path, error)
                    continue
                if workload.status.admission is not None:
                    queue = workload.status.admission.cluster_queue
                    self._workloads[pod.uid] = _Admitted(workload.metadata.name, queue, boost)

    async def _write(self, live: Mapping[str, ReservationPodState], costs: Mapping[str, float]) -> None:
        boosts = priority_boosts(
            AdmittedReservation(uid, workload.cluster_queue, live[uid].priority, costs[uid])
            for uid, workload in self._workloads.items()
        )
        for uid, boost in boosts.items():
            workload, pod = self._workloads[uid], live[uid]
            if workload.boost == boost:
                continue
            about = {"annotations": {BOOST_ANNOTATION: str(boost)}}
            try:
                await self._api.patch(
                    WORKLOADS, workload.name, pod.pool.namespace, {"metadata": about}, manager=MANAGER
                )
            except ApiError as error:
                if not error.not_found:
                    raise
                continue  # it ended meanwhile, and its pod will be gone soon
            self._workloads[uid] = replace(workload, boost=boost)
            log.info("GPU reservation %s: Kueue's priority boost is %d", pod.path, boost)
