"""Reservations that are given up for waiting pods, as the operator reads, deletes and reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_cluster_state, make_job
from reservation_builders import JOB, claim, gpu_slice, reservation_node, seen

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_operator.metrics import Metrics
from podium_operator.observe.observation import observe
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.waiting_pods import UnplacedPodState, parse_unplaced_pod
from podium_operator.reservations.condition import ReservationCondition
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings

TWO = make_job(trials={"max": 2, "parallel": 2, "maxSteps": 10}, status={"phase": "Running"})
FULL = "0/1 nodes are available: 1 cannot allocate all claims."


def held(number: int, **changes: Any) -> ReservationPodState:
    """Return a reservation pod whose GPU is a dynamic resource."""
    return replace(seen(number), priority=-2, claim=f"c{number}", **changes)


def waiting(
    name: str = "plain", *, priority: int = 0, gpus: int = 1, message: str = FULL, **spec: Any
) -> UnplacedPodState:
    requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return parse_unplaced_pod(
        {
            "metadata": {"name": name, "namespace": "others", "uid": f"uid-{name}"},
            "spec": {"priority": priority, "containers": [{"resources": {"requests": requests}}], **spec},
            "status": {"conditions": [scheduled]},
        }
    )


class Wire:
    """An API server with one node, its GPUs and their claims; records what the operator sends."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.events: list[str] = []
        self.reads = 0
        self.labels: dict[str, str] = {}
        self.cpu = "8"
        self.devices = ["gpu-0", "gpu-1"]
        self.claims = [claim("c0", device="gpu-0"), claim("c1", device="gpu-1")]
        self.error: ApiError | None = None

    async def get(self, resource: Resource, name: str, *_: Any) -> Mapping[str, Any]:
        self.reads += 1
        status = {"allocatable": {"cpu": self.cpu, "pods": "99"}}
        return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": self.labels}, "status": status}

    async def list(self, resource: Resource, *_: Any, **__: Any) -> Mapping[str, Any]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        items: dict[str, Any] = {
            "resourceslices": [gpu_slice(*self.devices)],
            "resourceclaims": self.claims,
            "pods": [],
        }
        return {"items": items[resource.plural]}

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        if resource.kind == "Event":
            self.events.append(f"{body['reason']}: {body['message']}")
        else:
            self.calls.append(f"create {body['metadata']['name'].rpartition('-')[2]}")

    async def delete(self, _: Resource, name: str, __: str, *, uid: str) -> None:
        self.calls.append(f"delete {name.rpartition('-')[2]}")

    async def patch(self, *_: Any, **__: Any) -> None:
        raise AssertionError("nothing is annotated here")


class Operator:
    def __init__(self) -> None:
        self.wire = Wire()
        self.metrics = Metrics()
        settings = OperatorSettings(gpu_mode="reservations", image="i")
        self.controller = ReservationController(cast(Api, self.wire), settings, self.metrics)
        self.wake: float | None = None

    def reconcile(
        self, now: float, *reservations: ReservationPodState, pods: tuple[UnplacedPodState, ...] = ()
    ) -> ReservationCondition | None:
        """Reconcile; return the job's condition. Only the calls of this reconcile are kept."""
        self.wire.calls.clear()
        self.wire.events.clear()
        cluster = make_cluster_state(TWO, reservation_node("lab/podium-reservation-x-0"), now=NOW + now)
        cluster = replace(cluster, reservations=reservations, unplaced_pods=pods)
        recorded, self.wake = asyncio.run(self.controller.reconcile(cluster, build_snapshot(cluster, observe(cluster))))
        return recorded.get(JOB)

    def events_total(self, what: str) -> float:
        return self.metrics.reservation_events.labels(what)._value.get()


def test_without_a_waiting_pod_nothing_is_read() -> None:
    operator = Operator()
    operator.reconcile(0.0, held(0), held(1))
    operator.reconcile(9.0, held(0), held(1), pods=(waiting(priority=-2), waiting("b", gpus=0)))
    assert (operator.wire.calls, operator.wire.reads) == ([], 0)


def test_gpus_of_a_device_plugin_are_left_to_the_scheduler() -> None:
    operator = Operator()
    for now in (0.0, 5.0):
        operator.reconcile(now, seen(0), seen(1), pods=(waiting(),))
    assert (operator.wire.calls, operator.wire.reads) == ([], 0)


def test_a_reservation_is_given_up_and_requested_again_when_the_pod_has_a_node() -> None:
    operator = Operator()
    operator.reconcile(0.0, held(0), held(1), pods=(waiting(),))
    assert (operator.wire.calls, operator.wake) == ([], NOW + 2.0), "the scheduler may place it by itself"
    said = operator.reconcile(2.0, held(0), held(1), pods=(waiting(),))
    assert operator.wire.calls == ["delete 0"]
    assert said
    assert (said.complete, said.reason) == (False, "ReservationYielded")
    assert "until others/plain has a node" in said.message
    assert operator.events_total("yielded") == 1

    operator.reconcile(3.0, held(0, deleting=True), held(1), pods=(waiting(),))
    assert operator.wire.calls == []
    (event,) = operator.wire.events
    assert event.startswith("ReservationYielded: GPU reservation podium-reservation-x-0 ")
    assert "pod others/plain" in event

    operator.wire.claims = [claim("c1", device="gpu-1")]
    said = operator.reconcile(20.0, held(1), pods=(waiting(),))
    assert (operator.wire.calls, said and said.reason) == ([], "ReservationYielded"), "its GPU is free, it has no node"
    operator.reconcile(21.0, held(1))
    assert operator.wire.calls == ["create 0"]
    assert operator.events_total("yielded") == 1
    assert operator.events_total("preempted") == 1


def test_a_reservation_without_a_node_is_withdrawn_meanwhile() -> None:
    operator = Operator()
    asked = replace(seen(1, bound=False), priority=-2)
    for now in (0.0, 2.0):
        operator.reconcile(now, held(0), asked, pods=(waiting(),))
    assert sorted(operator.wire.calls) == ["delete 0", "delete 1"]
    operator.reconcile(3.0, held(0, deleting=True), pods=(waiting(),))
    assert operator.wire.calls == [], "and not requested again"


def test_a_deletion_that_failed_is_repeated_and_counted_once() -> None:
    operator = Operator()
    for now in (0.0, 2.0):
        operator.reconcile(now, held(0), held(1), pods=(waiting(),))
    operator.reconcile(2.5, held(0), held(1), pods=(waiting(),))
    assert operator.wire.calls == ["delete 0"]
    assert operator.events_total("yielded") == 1


@pytest.mark.parametrize(
    ("pod", "labels", "cpu"),
    [
        (waiting(nodeSelector={"pool": "a"}), {"pool": "b"}, "8"),
        (waiting(), {}, "500m"),
        (waiting(gpus=3), {}, "8"),
    ],
    ids=["another node", "no CPU", "more GPUs than the node has"],
)
def test_none_is_given_up_where_the_pod_could_not_run(pod: UnplacedPodState, labels: dict[str, str], cpu: str) -> None:
    operator = Operator()
    operator.wire.labels, operator.wire.cpu = labels, cpu
    for now in (0.0, 2.0, 30.0, 60.0):
        operator.reconcile(now, held(0), held(1), pods=(pod,))
        assert operator.wire.calls == []


def test_a_free_gpu_is_left_to_the_pod() -> None:
    operator = Operator()
    operator.wire.devices.append("gpu-2")
    for now in (0.0, 2.0, 12.0):
        said = operator.reconcile(now, held(0), held(1), pods=(waiting(),))
        assert operator.wire.calls == []
    assert said
    operator.reconcile(14.0, held(0), held(1), pods=(waiting(gpus=2),))
    assert operator.wire.calls == ["delete 0"], "with the free one it has two"


def test_a_claim_of_the_same_class_counts() -> None:
    operator = Operator()
    operator.wire.claims.append(claim("mine", "others", wants=2))
    pod = waiting(gpus=0, resourceClaims=[{"name": "gpus", "resourceClaimName": "mine"}])
    for now in (0.0, 2.0):
        operator.reconcile(now, held(0), held(1), pods=(pod,))
    assert operator.wire.calls == ["delete 0", "delete 1"]


def test_a_claim_of_another_class_or_with_devices_does_not() -> None:
    operator = Operator()
    other = claim("nic", "others")
    other["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nic"
    operator.wire.claims += [other, claim("has", "others", device="gpu-9")]
    pods = tuple(
        waiting(name, gpus=0, resourceClaims=[{"name": "x", "resourceClaimName": name}])
        for name in ("nic", "has", "missing")
    )
    for now in (0.0, 2.0, 30.0):
        operator.reconcile(now, held(0), held(1), pods=pods)
        assert operator.wire.calls == []


def test_an_api_error_postpones_the_decision_and_ends_nothing() -> None:
    operator = Operator()
    operator.wire.error = ApiError(503, "ServiceUnavailable", "later")
    for now in (0.0, 2.0):
        operator.reconcile(now, held(0), held(1), pods=(waiting(),))
        assert operator.wire.calls == []
    operator.wire.error = None
    for now in (12.0, 14.0):
        operator.reconcile(now, held(0), held(1), pods=(waiting(),))
    assert operator.wire.calls == ["delete 0"]


def test_the_api_server_is_asked_rarely_while_nothing_changes() -> None:
    operator = Operator()
    operator.wire.cpu = "500m"
    for tenth in range(200):
        operator.reconcile(tenth / 10, held(0), held(1), pods=(waiting(),))
    assert operator.wire.reads <= 4 * 4


def test_a_new_operator_sees_what_is_terminating() -> None:
    operator = Operator()
    for now in (0.0, 2.0, 4.0):
        operator.reconcile(now, held(0, deleting=True), held(1), pods=(waiting(),))
        assert "delete 1" not in operator.wire.calls


def test_nodes_that_are_gone_are_skipped() -> None:
    operator = Operator()

    async def missing(resource: Resource, name: str, *_: Any) -> Mapping[str, Any]:
        raise ApiError(404, "NotFound", f"{name} not found")

    operator.wire.get = missing  # type: ignore[method-assign]
    for now in (0.0, 2.0):
        operator.reconcile(now, held(0), held(1), pods=(waiting(),))
        assert operator.wire.calls == []
