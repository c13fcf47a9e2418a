"""The extender between a real kube-scheduler and a real API server, with the configuration and the account (so: the
rights) that the chart gives them.

Nodes are Node objects without a kubelet and GPUNodes without an agent: the scheduler binds to them all the same.
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
from extender_world import GIB, TRIAL_LABEL, World, gpu, now
from held_wire import HeldWire

from podium_cluster.client import Api
from podium_cluster.resources import EVENTS, Resource
from podium_extender.requeue.wakeups import ROOM_ANNOTATION
from podium_extender.verbs.top_k import SCORED

pytestmark = pytest.mark.integration
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CHOSEN = "volume.kubernetes.io/selected-node"


@pytest.fixture(scope="module")
def wire(kubeconfig: Path) -> Iterator[HeldWire]:
    """Between the extender and the API server; the scheduler is not behind it."""
    config = yaml.safe_load(kubeconfig.read_text())
    wire = HeldWire(config["clusters"][0]["cluster"]["server"])
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def world(
    kubeconfig: Path, binary: Callable[[str], Path], wire: HeldWire, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    world = World(kubeconfig, tmp_path_factory.mktemp("extender"), binary, server=wire.address)
    with world.open():
        world.start_extender()
        world.start_scheduler(patience="5s")  # an answer that is late on a busy machine is no answer to the scheduler
        yield world


@pytest.fixture(autouse=True)
def _empty_world(world: World) -> Iterator[None]:
    yield
    world.clear()


def test_a_trial_goes_to_the_node_with_fewer_trials(world: World) -> None:
    world.add_node("busy", gpu(1, trials=3))
    world.add_node("idle", gpu(2))
    seen_by_the_scheduler(world, "busy", "idle")
    world.add_pod("one")
    assert world.bound("one") == "idle"


def seen_by_the_scheduler(world: World, *nodes: str) -> None:
    """Its watches of nodes and of pods are two: it may hear of a pod before it hears of a node. A pod on each tells."""
    for node in nodes:
        world.add_pod(f"first-on-{node}", on=node)
        assert world.bound(f"first-on-{node}") == node


def seen_by_the_extender(world: World) -> None:
    """Every binding until now, and so whatever became of pods before those."""
    world.wait(lambda: world.metric("podium_extender_assumed_pods") == 0, "the extender has seen every binding")


@pytest.mark.parametrize("blind", [False, True], ids=["seen", "not_seen_bound"])
def test_a_burst_is_spread_evenly_although_no_agent_has_seen_it(world: World, wire: HeldWire, blind: bool) -> None:
    """kube-scheduler asks for the next pod before the last one's binding is written. `blind`: the extender sees no
    binding at all during the burst.
    """
    for number, node in enumerate("ab"):
        world.add_node(node, gpu(number, shares=8), shares=8)
    seen_by_the_scheduler(world, "a", "b")
    seen_by_the_extender(world)  # and that the pods of the same names, of the burst before, are gone
    names = [f"burst-{i}" for i in range(6)]
    with wire.held() if blind else contextlib.nullcontext():
        world.add_pod(*names)
        places = [world.bound(name) for name in names]
    assert sorted(places) == ["a", "a", "a", "b", "b", "b"]
    seen_by_the_extender(world)


CROWD = [f"n{i:02d}" for i in range(SCORED + 8)]
LAST = CROWD[-1]
WISH = "preferredDuringSchedulingIgnoredDuringExecution"


def alike(world: World, shunned: Sequence[str] = ()) -> None:
    """More nodes than filter hands on, none better than another; the scheduler knows of them."""
    world.add_nodes({short: [gpu(number)] for number, short in enumerate(CROWD)}, shunned=shunned)
    world.add_node("b", gpu(len(CROWD)))
    seen_by_the_scheduler(world, "b")


def test_of_many_nodes_alike_a_pod_without_wishes_has_the_first_and_one_with_a_wish_the_node_it_wants(
    world: World,
) -> None:
    """For the first, kube-scheduler is not told of the last node; for the other, it is."""
    alike(world)
    world.wait(lambda: world.handed_on(CROWD) == CROWD[:SCORED], "filter hands on the best")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == CROWD[0]
    (term,) = world.terms([LAST])["nodeSelectorTerms"]
    world.add_pod("picky", among=CROWD, affinity={"nodeAffinity": {WISH: [{"weight": 100, "preference": term}]}})
    assert world.bound("picky") == LAST


def test_a_pod_of_a_crowd_goes_where_another_wants_to_have_it(world: World) -> None:
    alike(world)
    selector = {"matchExpressions": [{"key": TRIAL_LABEL, "operator": "Exists"}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    world.add_pod(
        "sociable",
        on=LAST,
        gpus=0,
        trial=False,
        affinity={"podAffinity": {WISH: [{"weight": 100, "podAffinityTerm": term}]}},
    )
    assert world.bound("sociable") == LAST
    world.wait(lambda: world.handed_on(CROWD) == CROWD, "the extender has seen the wish")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == LAST


def test_a_pod_of_a_crowd_is_kept_off_nodes_with_a_soft_taint(world: World) -> None:
    alike(world, shunned=CROWD[:-1])
    world.wait(lambda: world.handed_on(CROWD) == [*CROWD[:SCORED], LAST], "the extender has seen the taints")
    world.add_pod("any", among=CROWD)
    assert world.bound("any") == LAST


def test_a_pod_whose_volume_cannot_be_made_where_it_was_to_go_is_tried_elsewhere(world: World) -> None:
    """No filter knows of it, and our scores stay what they are: the pod would be sent to that node for ever."""
    alike(world)
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
        """As a provisioner does for which there is no room in the zone of the node."""
        nothing = {"metadata": {"annotations": {CHOSEN: None}}}
        await api.patch(CLAIMS, "data", world.namespace, nothing, manager="test")

    world.api(make)
    try:
        world.add_pod("stored", among=CROWD, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        for node in (CROWD[0], CROWD[0], CROWD[1]):
            assert world.wait(chosen, "a node is chosen for the volume") == node
            world.api(refuse)
    finally:
        world.api(lambda api: api.delete(CLASSES, name))


def test_a_broken_gpu_is_refused_and_the_pod_says_why(world: World) -> None:
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    world.add_pod("careful", on="broken")
    message = world.why_not("careful", "Unhealthy")
    assert "Xid 79" in message
    assert "preemption" in message.lower()  # unresolvable: the scheduler does not even look for victims
    world.add_node("idle", gpu(2))
    world.add_pod("lucky")
    assert world.bound("lucky") == "idle"


def test_wrong_product_and_too_little_memory_are_told_apart(world: World) -> None:
    world.add_node("idle", gpu(1))
    world.add_pod("picky", on="idle", annotations={"podium.dev/gpu-products": "NVIDIA-H100"})
    world.add_pod("huge", on="idle", annotations={"podium.dev/gpu-memory": str(100 * GIB)})
    world.why_not("picky", "GPUProductMismatch")
    world.why_not("huge", "GPUTooSmall")


def test_a_more_important_pod_gets_the_share_of_the_trial_that_loses_least(world: World) -> None:
    world.add_node("idle", gpu(1), shares=3)
    for name, saved in (("first", 0.0), ("second", 95.0), ("third", 60.0)):
        world.add_trial(name, lastStep=4, gpuSeconds=100.0, checkpoint={"step": 1, "at": now(), "gpuSeconds": saved})
    for name in ("first", "second", "third"):
        world.add_pod(name, on="idle")
        assert world.bound(name) == "idle"
    seen_by_the_extender(world)
    world.add_pod("urgent", on="idle", urgent=True)
    world.wait(lambda: world.pod("second")["metadata"].get("deletionTimestamp"), "the trial that saved last leaves")
    assert world.wait(lambda: world.pod("urgent")["status"].get("nominatedNodeName"), "its share is kept for the pod")
    for name in ("first", "third"):
        assert "deletionTimestamp" not in world.pod(name)["metadata"]
    # once, unless the scheduler takes longer than TAKEN_UP_SECONDS to carry it out: then it is answered anew
    assert world.metric('podium_extender_preemptions_total{code="Evicted"}') >= 1
    (who, why) = world.wait(lambda: told(world, "WorkAtRisk"), "the trial is told what that may cost")[0]
    assert who == "second"
    assert "urgent" in why
    assert why.endswith("If it cannot save first, 3 steps and 5.0 GPU-seconds are lost.")


def told(world: World, reason: str) -> list[tuple[str, str]]:
    """Object and message of the Events of the world's namespace."""
    events = world.api(lambda api: api.list(EVENTS, world.namespace))["items"]
    return [(one["involvedObject"]["name"], one["message"]) for one in events if one["reason"] == reason]


def test_a_refused_pod_is_woken_when_the_gpu_recovers(world: World) -> None:
    """kube-scheduler does not watch GPUNodes: by itself it would try again after five minutes."""
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    world.add_pod("patient", on="broken")
    world.why_not("patient", "Unhealthy")
    world.add_node("broken", gpu(1))
    assert world.bound("patient") == "broken"
    assert ROOM_ANNOTATION in world.pod("patient")["metadata"]["annotations"]


def test_a_pod_for_which_nobody_could_go_is_tried_again_when_the_gpu_recovers(world: World) -> None:
    """kube-scheduler set it aside for want of a share: to it neither a GPUNode nor an annotation is an event."""
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
    world.wait(lambda: world.pod("sitting")["metadata"].get("deletionTimestamp"), "the trial leaves")
    assert ROOM_ANNOTATION in world.pod("pressing")["metadata"]["annotations"]


def test_without_its_extender_only_trials_wait(world: World) -> None:
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


def test_behind_a_frozen_extender_others_are_placed_and_trials_go_on_after_it(world: World) -> None:
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


def test_it_measures_itself(world: World) -> None:
    world.add_node("idle", gpu(1))
    world.add_pod("counted")
    world.bound("counted")
    page = httpx.get(f"http://127.0.0.1:{world.health_port}/metrics", timeout=5).text
    assert 'podium_extender_request_seconds_count{verb="filter"}' in page
