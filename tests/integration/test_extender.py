"""The extender with a real kube-scheduler, a real API server and the chart's configuration.

Nodes are Node objects without a kubelet and GPUNodes without an agent. The scheduler binds pods to them anyway.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from delayed_relay import DelayedRelay
from extender_world import GIB, TRIAL_LABEL, World, gpu, now

from podium_cluster.client import Api
from podium_cluster.resources import EVENTS, Resource
from podium_extender.requeue.wakeups import ROOM_ANNOTATION
from podium_extender.verbs.top_k import SCORED

pytestmark = pytest.mark.integration
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CHOSEN = "volume.kubernetes.io/selected-node"


@pytest.fixture(scope="module")
def relay(kubeconfig: Path) -> Iterator[DelayedRelay]:
    """A relay between the extender and the API server. The scheduler does not use it."""
    config = yaml.safe_load(kubeconfig.read_text())
    relay = DelayedRelay(config["clusters"][0]["cluster"]["server"])
    yield relay
    relay.close()


@pytest.fixture(scope="module")
def world(
    kubeconfig: Path, binary: Callable[[str], Path], relay: DelayedRelay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    world = World(kubeconfig, tmp_path_factory.mktemp("extender"), binary, server=relay.address)
    with world.open():
        world.start_extender()
        world.start_scheduler(patience="5s")  # the scheduler ignores late answers, which occur on a busy machine
        yield world


@pytest.fixture(autouse=True)
def _empty_world(world: World) -> Iterator[None]:
    yield
    world.clear()


def test_a_trial_is_bound_to_the_node_with_fewer_trials(world: World) -> None:
    world.add_node("busy", gpu(1, trials=3))
    world.add_node("idle", gpu(2))
    wait_for_scheduler(world, "busy", "idle")
    world.add_pod("one")
    assert world.bound("one") == "idle"


def wait_for_scheduler(world: World, *nodes: str) -> None:
    """Bind a pod to each node.

    The scheduler watches pods and nodes separately and may see a pod before its node.
    """
    for node in nodes:
        world.add_pod(f"first-on-{node}", on=node)
        assert world.bound(f"first-on-{node}") == node


def wait_for_extender(world: World) -> None:
    """Wait until the extender has seen all bindings, and so all earlier changes of pods."""
    world.wait(lambda: world.metric("podium_extender_assumed_pods") == 0, "the extender has seen every binding")


@pytest.mark.parametrize("blind", [False, True], ids=["seen", "not_seen_bound"])
def test_a_burst_of_pods_is_spread_evenly_before_any_agent_reports_it(
    world: World, relay: DelayedRelay, blind: bool
) -> None:
    """kube-scheduler sends the next request before the binding of the previous pod is written.

    With `blind` the extender sees no binding during the burst.
    """
    for number, node in enumerate("ab"):
        world.add_node(node, gpu(number, shares=8), shares=8)
    wait_for_scheduler(world, "a", "b")
    wait_for_extender(world)  # and the deletion of the previous burst's pods with the same names
    names = [f"burst-{i}" for i in range(6)]
    with relay.delayed() if blind else contextlib.nullcontext():
        world.add_pod(*names)
        nodes = [world.bound(name) for name in names]
    assert sorted(nodes) == ["a", "a", "a", "b", "b", "b"]
    wait_for_extender(world)


CROWD = [f"n{i:02d}" for i in range(SCORED + 8)]
LAST = CROWD[-1]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def add_equal_nodes(world: World, shunned: Sequence[str] = ()) -> None:
    """Create more equal nodes than the filter returns; wait until the scheduler has seen them."""
    world.add_nodes({short: [gpu(number)] for number, short in enumerate(CROWD)}, shunned=shunned)
    world.add_node("b", gpu(len(CROWD)))
    wait_for_scheduler(world, "b")


def test_of_many_equal_nodes_a_pod_gets_the_first_or_the_one_that_it_prefers(
    world: World,
) -> None:
    """The filter omits the last node for the first pod and returns it for the second one."""
    add_equal_nodes(world)
    world.wait(lambda: world.handed_on(CROWD) == CROWD[:SCORED], "the filter returns the best nodes")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == CROWD[0]
    (term,) = world.terms([LAST])["nodeSelectorTerms"]
    world.add_pod("picky", among=CROWD, affinity={"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": term}]}})
    assert world.bound("picky") == LAST


def test_of_many_equal_nodes_a_pod_gets_the_one_that_another_pods_affinity_prefers(world: World) -> None:
    add_equal_nodes(world)
    selector = {"matchExpressions": [{"key": TRIAL_LABEL, "operator": "Exists"}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    world.add_pod(
        "sociable",
        on=LAST,
        gpus=0,
        trial=False,
        affinity={"podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}},
    )
    assert world.bound("sociable") == LAST
    world.wait(lambda: world.handed_on(CROWD) == CROWD, "the extender has seen the affinity")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == LAST


def test_of_many_equal_nodes_a_pod_gets_one_without_a_soft_taint(world: World) -> None:
    add_equal_nodes(world, shunned=CROWD[:-1])
    world.wait(lambda: world.handed_on(CROWD) == [*CROWD[:SCORED], LAST], "the extender has seen the taints")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == LAST


def test_a_pod_whose_volume_cannot_be_created_on_a_node_is_tried_on_another_one(world: World) -> None:
    """No filter detects this, and constant scores would send the pod to the same node forever."""
    add_equal_nodes(world)
    name = f"{world.scheduler}-late"

    async def make(api: Api) -> None:
        late = {"provisioner": "podium.dev/test", "volumeBindingMode": "WaitForFirstConsumer"}
        await api.create(CLASSES, {"metadata": {"name": name}, **late}, manager="test")
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {
            "metadata": {"name": "data", "namespace": world.namespace},
            "spec": wanted | {"storageClassName": name},
        }
        await api.create(CLAIMS, claim, manager="test")

    def chosen() -> str:
        claim = world.api(lambda api: api.get(CLAIMS, "data", world.namespace))
        node: str = claim["metadata"].get("annotations", {}).get(CHOSEN, "")
        return node.removeprefix(f"{world.scheduler}-")

    async def refuse(api: Api) -> None:
        """Clear the node as a provisioner does that has no capacity in the zone of the node."""
        cleared = {"metadata": {"annotations": {CHOSEN: None}}}
        await api.patch(CLAIMS, "data", world.namespace, cleared, manager="test")

    world.api(make)
    try:
        world.add_pod("stored", among=CROWD, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        for node in (CROWD[0], CROWD[0], CROWD[1]):
            assert world.wait(chosen, "a node is chosen for the volume") == node
            world.api(refuse)
    finally:
        world.api(lambda api: api.delete(CLASSES, name))


def test_an_unhealthy_gpu_is_refused_with_a_reason_in_the_pod(world: World) -> None:
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    world.add_pod("careful", on="broken")
    message = world.why_not("careful", "Unhealthy")
    assert "Xid 79" in message
    assert "preemption" in message.lower()  # unresolvable, so the scheduler searches no victims
    world.add_node("idle", gpu(2))
    world.add_pod("lucky")
    assert world.bound("lucky") == "idle"


def test_a_wrong_product_and_too_little_memory_have_different_reasons(world: World) -> None:
    world.add_node("idle", gpu(1))
    world.add_pod("picky", on="idle", annotations={"podium.dev/gpu-products": "NVIDIA-H100"})
    world.add_pod("huge", on="idle", annotations={"podium.dev/gpu-memory": str(100 * GIB)})
    world.why_not("picky", "GPUProductMismatch")
    world.why_not("huge", "GPUTooSmall")


def test_a_pod_with_a_higher_priority_preempts_the_trial_that_loses_the_least_work(world: World) -> None:
    world.add_node("idle", gpu(1), shares=3)
    for name, saved in (("first", 0.0), ("second", 95.0), ("third", 60.0)):
        world.add_trial(name, lastStep=4, gpuSeconds=100.0, checkpoint={"step": 1, "at": now(), "gpuSeconds": saved})
    for name in ("first", "second", "third"):
        world.add_pod(name, on="idle")
        assert world.bound(name) == "idle"
    wait_for_extender(world)
    world.add_pod("urgent", on="idle", urgent=True)
    world.wait(
        lambda: world.pod("second")["metadata"].get("deletionTimestamp"),
        "the trial with the latest checkpoint is deleted",
    )
    assert world.wait(
        lambda: world.pod("urgent")["status"].get("nominatedNodeName"), "its slot is nominated for the pod"
    )
    for name in ("first", "third"):
        assert "deletionTimestamp" not in world.pod(name)["metadata"]
    # once, unless the scheduler needs longer than TAKEN_UP_SECONDS for the preemption and asks again
    assert world.metric('podium_extender_preemptions_total{code="Evicted"}') >= 1
    (name, message) = world.wait(lambda: event_messages(world, "WorkAtRisk"), "the event with the possible cost")[0]
    assert name == "second"
    assert "urgent" in message
    assert message.endswith("Without a new checkpoint, 3 steps and 5.0 GPU-seconds are lost.")


def event_messages(world: World, reason: str) -> list[tuple[str, str]]:
    """Return (name of the object, message) of the events with a reason."""
    events = world.api(lambda api: api.list(EVENTS, world.namespace))["items"]
    return [(one["involvedObject"]["name"], one["message"]) for one in events if one["reason"] == reason]


def test_a_refused_pod_is_retried_when_the_gpu_recovers(world: World) -> None:
    """kube-scheduler does not watch GPUNodes, so by itself it would retry only after five minutes."""
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    world.add_pod("patient", on="broken")
    world.why_not("patient", "Unhealthy")
    world.add_node("broken", gpu(1))
    assert world.bound("patient") == "broken"
    assert ROOM_ANNOTATION in world.pod("patient")["metadata"]["annotations"]


def test_a_pod_without_a_victim_is_retried_when_the_gpu_recovers(world: World) -> None:
    """kube-scheduler waits for a free slot, and neither a GPUNode nor an annotation is such an event."""
    world.add_node("broken", gpu(1), shares=1)
    world.add_pod("sitting", on="broken")
    assert world.bound("sitting") == "broken"
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"), shares=1)
    world.wait(lambda: "Unhealthy" in world.refusal("broken"), "the extender has seen it")
    refused = 'podium_extender_preemptions_total{code="Unhealthy"}'
    before = world.metric(refused)
    world.add_pod("pressing", on="broken", urgent=True)
    world.wait(lambda: world.metric(refused) > before, "the preemption is refused")
    assert "deletionTimestamp" not in world.pod("sitting")["metadata"]
    world.add_node("broken", gpu(1), shares=1)
    world.wait(lambda: world.pod("sitting")["metadata"].get("deletionTimestamp"), "the trial is deleted")
    assert ROOM_ANNOTATION in world.pod("pressing")["metadata"]["annotations"]


def test_without_the_extender_only_trials_wait(world: World) -> None:
    world.add_node("idle", gpu(1))
    world.kill("extender")
    try:
        world.add_pod("trial")
        world.add_pod("plain", gpus=0)
        assert world.bound("plain") == "idle"
        assert not world.pod("trial")["spec"].get("nodeName")
    finally:
        world.start_extender()
    assert world.bound("trial") == "idle"


def test_with_a_frozen_extender_other_pods_are_bound_and_trials_follow_later(world: World) -> None:
    world.add_node("idle", gpu(1))
    frozen = world.processes["extender"]
    frozen.send_signal(signal.SIGSTOP)
    try:
        world.add_pod("trial")
        world.why_not("trial", "deadline exceeded", "Timeout")
        world.add_pod("plain", gpus=0)
        assert world.bound("plain") == "idle"
        assert not world.pod("trial")["spec"].get("nodeName")
    finally:
        frozen.send_signal(signal.SIGCONT)
    assert world.bound("trial") == "idle"


def test_the_extender_exports_metrics(world: World) -> None:
    world.add_node("idle", gpu(1))
    world.add_pod("counted")
    world.bound("counted")
    page = httpx.get(f"http://127.0.0.1:{world.health_port}/metrics", timeout=5).text
    assert 'podium_extender_request_seconds_count{verb="filter"}' in page
