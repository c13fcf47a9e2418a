"""The boosts that the operator writes on Kueue's Workloads, and the costs from which they follow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_trial, moment
from reservation_builders import JOB, reservation_node, seen

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.reservations.kueue_workloads import (
    ABSENT_SECONDS,
    BOOST_ANNOTATION,
    JOB_UID_LABEL,
    READS,
    RETRY_SECONDS,
    KueueWorkloads,
)
from podium_operator.reservations.preemption_cost import cost_differs, preemption_costs

GONE = ApiError(404, "NotFound", "not here")


class Kueue:
    """The Workloads of Kueue, by uid of their pods."""

    def __init__(self) -> None:
        self.workloads: dict[str, dict[str, Any]] = {}
        self.lists = 0
        self.patches: list[tuple[str, str]] = []
        self.refusal: ApiError | None = None

    def add(self, uid: str, queue: str | None = "cq", **annotations: str) -> None:
        admission = {"clusterQueue": queue} if queue else None
        meta = {"name": f"pod-{uid}", "namespace": "lab", "uid": f"w-{uid}", "annotations": annotations}
        self.workloads[uid] = {"metadata": meta, "status": {"admission": admission}}

    async def list(self, resource: Resource, namespace: str, *, labels: str) -> Mapping[str, Any]:
        assert (resource.path(namespace), labels[: len(JOB_UID_LABEL)]) == (
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/lab/workloads",
            JOB_UID_LABEL,
        )
        self.lists += 1
        if self.refusal is not None:
            raise self.refusal
        found = self.workloads.get(labels.partition("=")[2])
        return {"items": [found] if found else []}

    async def patch(self, _: Resource, name: str, namespace: str, body: Mapping[str, Any], **__: Any) -> None:
        if name.removeprefix("pod-") not in self.workloads:
            raise GONE
        self.patches.append((name, body["metadata"]["annotations"][BOOST_ANNOTATION]))


def pods(count: int, **changes: Any) -> list[ReservationPodState]:
    made = (seen(number, queue="research") for number in range(count))
    return [replace(pod, priority=-10, **changes) for pod in made]


def update(workloads: KueueWorkloads, pods: list[ReservationPodState], costs: list[float], now: float = NOW) -> None:
    by_uid = {f"u{number}": cost for number, cost in enumerate(costs)}
    asyncio.run(workloads.update(pods, by_uid, now))


@pytest.fixture
def kueue() -> Kueue:
    return Kueue()


@pytest.fixture
def workloads(kueue: Kueue) -> KueueWorkloads:
    return KueueWorkloads(cast(Api, kueue))


def test_the_dearer_reservations_get_a_boost_once(kueue: Kueue, workloads: KueueWorkloads) -> None:
    for number in range(3):
        kueue.add(f"u{number}")
    update(workloads, pods(3), [400.0, 0.0, 5000.0])
    assert kueue.patches == [("pod-u0", "1"), ("pod-u2", "2")]
    update(workloads, pods(3), [410.0, 3.0, 5100.0], NOW + 5)
    assert (len(kueue.patches), kueue.lists) == (2, 3), "nothing has changed, and no request was sent"
    update(workloads, pods(3), [0.0, 60.0, 5100.0], NOW + 9)
    assert kueue.patches[2:] == [("pod-u0", "0"), ("pod-u1", "1")]


def test_a_new_operator_reads_the_boosts_that_are_there(kueue: Kueue, workloads: KueueWorkloads) -> None:
    kueue.add("u0", **{BOOST_ANNOTATION: "1"})
    kueue.add("u1")
    update(workloads, pods(2), [400.0, 0.0])
    assert kueue.patches == []


def test_a_reservation_that_is_not_admitted_or_not_in_a_queue_has_none(kueue: Kueue, workloads: KueueWorkloads) -> None:
    kueue.add("u0", queue=None)
    kueue.add("u1")
    update(workloads, pods(2), [400.0, 0.0])
    assert kueue.patches == []
    kueue.add("u0")
    update(workloads, pods(2), [400.0, 0.0], NOW + 2)
    assert kueue.patches == [("pod-u0", "1")], "it was admitted meanwhile"
    lists = kueue.lists
    for changes in ({"deleting": True}, {"ended": True}, {"node": ""}):
        update(workloads, pods(2, **changes), [400.0, 0.0], NOW + 3)
    update(workloads, [replace(pod, pool=replace(pod.pool, queue="")) for pod in pods(2)], [400.0, 0.0], NOW + 4)
    assert kueue.lists == lists


@pytest.mark.parametrize(("status", "pause"), [(404, ABSENT_SECONDS), (403, RETRY_SECONDS)])
def test_without_kueue_or_the_right_it_asks_rarely(
    kueue: Kueue, workloads: KueueWorkloads, status: int, pause: float
) -> None:
    kueue.refusal = ApiError(status, "Refused", "no")
    for now in (NOW, NOW + 1, NOW + pause - 1):
        update(workloads, pods(2), [400.0, 0.0], now)
    assert kueue.lists == 1
    update(workloads, pods(2), [400.0, 0.0], NOW + pause)
    assert kueue.lists == 2


def test_a_workload_that_has_gone_or_is_malformed_stops_no_other_one(kueue: Kueue, workloads: KueueWorkloads) -> None:
    for number in range(4):
        kueue.add(f"u{number}")
    kueue.add("u1", **{BOOST_ANNOTATION: "much"})
    update(workloads, pods(3), [0.0, 100.0, 0.0])
    del kueue.workloads["u0"]
    update(workloads, pods(3), [900.0, 100.0, 0.0], NOW + 1)
    assert kueue.patches == []
    update(workloads, pods(4), [900.0, 100.0, 0.0, 100.0], NOW + 2)
    assert kueue.patches == [("pod-u3", "1")]


def test_a_reconcile_reads_a_limited_number(kueue: Kueue, workloads: KueueWorkloads) -> None:
    many = READS + 3
    for number in range(many):
        kueue.add(f"u{number}")
    update(workloads, pods(many), [0.0] * many)
    assert kueue.lists == READS
    update(workloads, pods(many), [0.0] * many, NOW + 1)
    assert kueue.lists == many


def test_the_cost_of_a_reservation_is_the_work_that_its_trials_would_repeat() -> None:
    node = reservation_node("lab/podium-reservation-x-0")
    on_it = {"gpus": [node.status.gpus[0].uuid], "startedAt": moment(0)}
    saved = {"checkpoint": {"step": 3, "at": moment(60), "gpuSeconds": 40.0}}
    trials = [
        make_trial(0, gpuSeconds=100.0, **on_it, **saved),
        make_trial(1, gpuSeconds=7.0, **on_it),
        make_trial(2, phase="Succeeded", gpuSeconds=500.0, **on_it),
        make_trial(3, gpuSeconds=900.0),
    ]
    there = [seen(0), seen(1)]
    assert preemption_costs(there, [node], trials, ()) == {"u0": 67.0}
    assert preemption_costs(there, [node], trials, {JOB}) == {"u0": 0.0}, "suspended with its memory"
    assert [cost_differs(*pair) for pair in ((None, None), (None, 0.0), (21.0, 39.0), (39.0, 40.0))] == [
        *(False, True),
        *(False, True),
    ]
