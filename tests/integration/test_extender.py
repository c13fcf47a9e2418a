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
from extender_setup import GIB, TRIAL_LABEL, ExtenderSetup, gpu, now

from podium_cluster.client import Api
from podium_cluster.resources import EVENTS, Resource
from podium_extender.requeue.wakeups import RETRY_ANNOTATION
from podium_extender.verbs.node_selection import SCORED_NODES

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
def setup(
    kubeconfig: Path, binary: Callable[[str], Path], relay: DelayedRelay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExtenderSetup]:
    setup = ExtenderSetup(kubeconfig, tmp_path_factory.mktemp("extender"), binary, server=relay.address)
    with setup.open():
        setup.start_extender()
        setup.start_scheduler(patience="5s")  # the scheduler ignores late answers, which occur on a busy machine
        yield setup


@pytest.fixture(autouse=True)
def _empty_world(setup: ExtenderSetup) -> Iterator[None]:
    yield
    setup.clear()


def test_a_trial_is_bound_to_the_node_with_fewer_trials(setup: ExtenderSetup) -> None:
    setup.add_node("busy", gpu(1, trials=3))
    setup.add_node("idle", gpu(2))
    wait_for_scheduler(setup, "busy", "idle")
    setup.add_pod("one")
    assert setup.bound("one") == "idle"


def wait_for_scheduler(setup: ExtenderSetup, *nodes: str) -> None:
    """Bind a pod to each node.

    The scheduler watches pods and nodes separately and may see a pod before its node.
    """
    for node in nodes:
        setup.add_pod(f"first-on-{node}", on=node)
        assert setup.bound(f"first-on-{node}") == node


def wait_for_extender(setup: ExtenderSetup) -> None:
    """Wait until the extender has seen all bindings, and so all earlier changes of pods."""
    setup.wait(lambda: setup.metric("podium_extender_assumed_pods") == 0, "the extender has seen every binding")


@pytest.mark.parametrize("blind", [False, True], ids=["seen", "not_seen_bound"])
def test_a_burst_of_pods_is_spread_evenly_before_any_agent_reports_it(
    setup: ExtenderSetup, relay: DelayedRelay, blind: bool
) -> None:
    """kube-scheduler sends the next request before the binding of the previous pod is written.

    With `blind` the extender sees no binding during the burst.
    """
    for number, node in enumerate("ab"):
        setup.add_node(node, gpu(number, slots=8), slots=8)
    wait_for_scheduler(setup, "a", "b")
    wait_for_extender(setup)  # and the deletion of the previous burst's pods with the same names
    names = [f"burst-{i}" for i in range(6)]
    with relay.delayed() if blind else contextlib.nullcontext():
        setup.add_pod(*names)
        nodes = [setup.bound(name) for name in names]
    assert sorted(nodes) == ["a", "a", "a", "b", "b", "b"]
    wait_for_extender(setup)


CROWD = [f"n{i:02d}" for i in range(SCORED_NODES + 8)]
LAST = CROWD[-1]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def add_equal_nodes(setup: ExtenderSetup, avoided: Sequence[str] = ()) -> None:
    """Create more equal nodes than the filter returns; wait until the scheduler has seen them."""
    setup.add_nodes({short: [gpu(number)] for number, short in enumerate(CROWD)}, avoided=avoided)
    setup.add_node("b", gpu(len(CROWD)))
    wait_for_scheduler(setup, "b")


def test_of_many_equal_nodes_a_pod_gets_the_first_or_the_one_that_it_prefers(
    setup: ExtenderSetup,
) -> None:
    """The filter omits the last node for the first pod and returns it for the second one."""
    add_equal_nodes(setup)
    setup.wait(lambda: setup.selected_nodes(CROWD) == CROWD[:SCORED_NODES], "the filter returns the best nodes")
    setup.add_pod("any", among=CROWD)
    assert setup.bound("any") == CROWD[0]
    (term,) = setup.terms([LAST])["nodeSelectorTerms"]
    setup.add_pod("picky", among=CROWD, affinity={"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": term}]}})
    assert setup.bound("picky") == LAST


def test_of_many_equal_nodes_a_pod_gets_the_one_that_another_pods_affinity_prefers(setup: ExtenderSetup) -> None:
    add_equal_nodes(setup)
    selector = {"matchExpressions": [{"key": TRIAL_LABEL, "operator": "Exists"}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    setup.add_pod(
        "sociable",
        on=LAST,
        gpus=0,
        trial=False,
        affinity={"podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}},
    )
    assert setup.bound("sociable") == LAST
    setup.wait(lambda: setup.selected_nodes(CROWD) == CROWD, "the extender has seen the affinity")
    setup.add_pod("any", among=CROWD)
    assert setup.bound("any") == LAST


def test_of_many_equal_nodes_a_pod_gets_one_without_a_soft_taint(setup: ExtenderSetup) -> None:
    add_equal_nodes(setup, avoided=CROWD[:-1])
    setup.wait(lambda: setup.selected_nodes(CROWD) == [*CROWD[:SCORED_NODES], LAST], "the extender has seen the taints")
    setup.add_pod("any", among=CROWD)
    assert setup.bound("any") == LAST


def test_a_pod_whose_volume_cannot_be_created_on_a_node_is_tried_on_another_one(setup: ExtenderSetup) -> None:
    """No filter detects this, and constant scores would send the pod to the same node forever."""
    add_equal_nodes(setup)
    name = f"{setup.scheduler}-late"

    async def make(api: Api) -> None:
        late = {"provisioner": "podium.dev/test", "volumeBindingMode": "WaitForFirstConsumer"}
        await api.create(CLASSES, {"metadata": {"name": name}, **late}, manager="test")
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {
            "metadata": {"name": "data", "namespace": setup.namespace},
            "spec": wanted | {"storageClassName": name},
        }
        await api.create(CLAIMS, claim, manager="test")

    def chosen() -> str:
        claim = setup.api(lambda api: api.get(CLAIMS, "data", setup.namespace))
        node: str = claim["metadata"].get("annotations", {}).get(CHOSEN, "")
        return node.removeprefix(f"{setup.scheduler}-")

    async def refuse(api: Api) -> None:
        """Clear the node as a provisioner does that has no capacity in the zone of the node."""
        cleared = {"metadata": {"annotations": {CHOSEN: None}}}
        await api.patch(CLAIMS, "data", setup.namespace, cleared, manager="test")

    setup.api(make)
    try:
        setup.add_pod("stored", among=CROWD, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        for node in (CROWD[0], CROWD[0], CROWD[1]):
            assert setup.wait(chosen, "a node is chosen for the volume") == node
            setup.api(refuse)
    finally:
        setup.api(lambda api: api.delete(CLASSES, name))


def test_an_unhealthy_gpu_is_refused_with_a_reason_in_the_pod(setup: ExtenderSetup) -> None:
    setup.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    setup.add_pod("careful", on="broken")
    message = setup.unschedulable_message("careful", "Unhealthy")
    assert "Xid 79" in message
    assert "preemption" in message.lower()  # unresolvable, so the scheduler searches no victims
    setup.add_node("idle", gpu(2))
    setup.add_pod("lucky")
    assert setup.bound("lucky") == "idle"


def test_a_wrong_product_and_too_little_memory_have_different_reasons(setup: ExtenderSetup) -> None:
    setup.add_node("idle", gpu(1))
    setup.add_pod("picky", on="idle", annotations={"podium.dev/gpu-products": "NVIDIA-H100"})
    setup.add_pod("huge", on="idle", annotations={"podium.dev/gpu-memory": str(100 * GIB)})
    setup.unschedulable_message("picky", "GPUProductMismatch")
    setup.unschedulable_message("huge", "GPUTooSmall")


def test_a_pod_with_a_higher_priority_preempts_the_trial_that_loses_the_least_work(setup: ExtenderSetup) -> None:
    setup.add_node("idle", gpu(1), slots=3)
    for name, saved in (("first", 0.0), ("second", 95.0), ("third", 60.0)):
        setup.add_trial(name, lastStep=4, gpuSeconds=100.0, checkpoint={"step": 1, "at": now(), "gpuSeconds": saved})
    for name in ("first", "second", "third"):
        setup.add_pod(name, on="idle")
        assert setup.bound(name) == "idle"
    wait_for_extender(setup)
    setup.add_pod("urgent", on="idle", high_priority=True)
    setup.wait(
        lambda: setup.pod("second")["metadata"].get("deletionTimestamp"),
        "the trial with the latest checkpoint is deleted",
    )
    assert setup.wait(
        lambda: setup.pod("urgent")["status"].get("nominatedNodeName"), "its slot is nominated for the pod"
    )
    for name in ("first", "third"):
        assert "deletionTimestamp" not in setup.pod(name)["metadata"]
    # once, unless the scheduler needs longer than TAKEN_UP_SECONDS for the preemption and asks again
    evicted = 'podium_extender_preemptions_total{code="Evicted"}'
    assert setup.wait(lambda: setup.metric(evicted) >= 1, "the metric, which is collected once a second")
    (name, message) = setup.wait(lambda: event_messages(setup, "WorkAtRisk"), "the event with the possible cost")[0]
    assert name == "second"
    assert "urgent" in message
    assert message.endswith("Without a new checkpoint, 3 steps and 5.0 GPU-seconds are lost.")


def event_messages(setup: ExtenderSetup, reason: str) -> list[tuple[str, str]]:
    """Return (name of the object, message) of the events with a reason."""
    events = setup.api(lambda api: api.list(EVENTS, setup.namespace))["items"]
    return [(one["involvedObject"]["name"], one["message"]) for one in events if one["reason"] == reason]


def test_a_refused_pod_is_retried_when_the_gpu_recovers(setup: ExtenderSetup) -> None:
    """kube-scheduler does not watch GPUNodes, so by itself it would retry only after five minutes."""
    setup.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    setup.add_pod("patient", on="broken")
    setup.unschedulable_message("patient", "Unhealthy")
    setup.add_node("broken", gpu(1))
    assert setup.bound("patient") == "broken"
    assert RETRY_ANNOTATION in setup.pod("patient")["metadata"]["annotations"]


def test_a_pod_without_a_victim_is_retried_when_the_gpu_recovers(setup: ExtenderSetup) -> None:
    """kube-scheduler waits for a free slot, and neither a GPUNode nor an annotation is such an event."""
    setup.add_node("broken", gpu(1), slots=1)
    setup.add_pod("sitting", on="broken")
    assert setup.bound("sitting") == "broken"
    setup.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"), slots=1)
    setup.wait(lambda: "Unhealthy" in setup.refusal("broken"), "the extender has seen it")
    refused = 'podium_extender_preemptions_total{code="Unhealthy"}'
    before = setup.metric(refused)
    setup.add_pod("pressing", on="broken", high_priority=True)
    setup.wait(lambda: setup.metric(refused) > before, "the preemption is refused")
    assert "deletionTimestamp" not in setup.pod("sitting")["metadata"]
    setup.add_node("broken", gpu(1), slots=1)
    setup.wait(lambda: setup.pod("sitting")["metadata"].get("deletionTimestamp"), "the trial is deleted")
    assert RETRY_ANNOTATION in setup.pod("pressing")["metadata"]["annotations"]


def test_without_the_extender_only_trials_wait(setup: ExtenderSetup) -> None:
    setup.add_node("idle", gpu(1))
    setup.kill("extender")
    try:
        setup.add_pod("trial")
        setup.add_pod("plain", gpus=0)
        assert setup.bound("plain") == "idle"
        assert not setup.pod("trial")["spec"].get("nodeName")
    finally:
        setup.start_extender()
    assert setup.bound("trial") == "idle"


def test_with_a_frozen_extender_other_pods_are_bound_and_trials_follow_later(setup: ExtenderSetup) -> None:
    setup.add_node("idle", gpu(1))
    frozen = setup.processes["extender"]
    frozen.send_signal(signal.SIGSTOP)
    try:
        setup.add_pod("trial")
        setup.unschedulable_message("trial", "deadline exceeded", "Timeout")
        setup.add_pod("plain", gpus=0)
        assert setup.bound("plain") == "idle"
        assert not setup.pod("trial")["spec"].get("nodeName")
    finally:
        frozen.send_signal(signal.SIGCONT)
    assert setup.bound("trial") == "idle"


def test_the_extender_exports_metrics(setup: ExtenderSetup) -> None:
    setup.add_node("idle", gpu(1))
    setup.add_pod("counted")
    setup.bound("counted")
    page = httpx.get(f"http://127.0.0.1:{setup.health_port}/metrics", timeout=5).text
    assert 'podium_extender_request_seconds_count{verb="filter"}' in page
