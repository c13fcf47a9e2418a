"""A trial that cannot save is carried to the other node alive, memory of its GPU and all, and no step is lost: there
and back by `podium drain`, also where the registry is away or all agents are killed; and by levelling.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.artifacts.debian import PackageError
from podium_devcluster.runtime import registry
from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
METHOD = "container-checkpoint"
IMAGE = "localhost/podium-digits:dev"
EPOCHS, PAUSE = 100, 2  # of seconds between epochs: so long that it is carried twice before it is over
LEVELLED_EPOCHS, LEVELLED_PAUSE = 60, 1  # carried once
# the example's training, which takes its time and leaves the machine's processors to others until the file is there:
# the rest is done at once
PACED = """
import os, sys, time
sys.path.insert(0, "/app")
import train
whole, pause = train.train_epoch, float(sys.argv.pop(1))
def paced(*given):
    if not os.path.exists("/tmp/go"):
        time.sleep(pause)
    return whole(*given)
train.train_epoch = paced
sys.exit(train.main())
"""
LEVELLED, CROWDED, EMPTY = "levelled", "node-1", "node-2"
Site = Witness = Any


def carry_by(site: Site, address: str) -> None:
    """All agents anew, with that registry; without one they carry nothing. Levelling is a test's own matter."""
    site.upgrade(f"agent.checkpointRegistry={address}", "operator.rebalancing.enabled=false")

    def told() -> bool:
        nodes = site.objects("gpunodes")
        return all((METHOD in node["status"].get("methods", [])) is bool(address) for node in nodes)

    site.until("what the new agents can do", told, 60)


@pytest.fixture(scope="module")
def image(site: Site) -> Iterator[str]:
    """The example's, in a registry that the nodes have; all agents carry trials meanwhile."""
    try:
        registry.ensure(site.cluster.cache)
    except (CommandError, PackageError) as error:
        pytest.skip(f"apt gives no {registry.PACKAGE} here: {error}")
    registry.start(site.cluster)
    name = registry.push(site.cluster, "node-1", IMAGE)
    try:
        carry_by(site, registry.ADDRESS)
        yield name
    finally:
        carry_by(site, "")


@pytest.fixture
def jobs(site: Site, image: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The same trial twice; they end before the agents change again."""
    names = ("carried", "stayed")
    first, second = (job(site, name, image) for name in names)
    yield first, second
    site.kubectl("delete", "hyperparamjob", *names, "--ignore-not-found", "--timeout=90s", timeout=100)


def test_a_drained_node_loses_no_step_of_a_trial_that_cannot_save(
    site: Site, jobs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    carried, stayed = jobs
    site.kubectl("apply", "-f", "-", stdin=json.dumps(carried))
    # not its first attempt, if a kubelet refused a pod before it knew the new agent
    begun = site.until("an epoch", lambda: at_work(status(site, "carried")), 120)
    here = begun["node"]
    there = next(name for name in ("node-1", "node-2") if name != here)
    # wherever it comes it need not wait for the other one's turn to end
    site.kubectl("patch", "hyperparamtrial", "carried-0", "--type=merge", "-p", '{"spec": {"pinned": true}}')
    # nobody carries this one, in no drain
    stayed["spec"]["suspension"]["methods"].remove(METHOD)
    stayed["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": there}
    site.kubectl("apply", "-f", "-", stdin=json.dumps(stayed))

    stays_without_a_registry(site, here)
    try:
        said = site.podium("drain", here, "--wait", "180", timeout=200)
        assert "carried-0 is carried alive" in said
        site.until("it is there", lambda: arrived(site, there), 120)
    finally:
        site.podium("drain", here, "--undo")
    try:
        site.podium("drain", there, "--wait", "0")
        # all agents die while its image is pulled, or soon after
        site.until("its image is there", lambda: way(site).get("image") and way(site)["targetNode"] == here, 120)
        assert site.kill_program("podium-agent") == 2
        site.until("it is back", lambda: arrived(site, here), 180)
    finally:
        site.podium("drain", there, "--undo")
    for name in ("carried", "stayed"):
        let_go(site, name)
    for name in ("carried", "stayed"):
        site.until(f"{name} is over", lambda name=name: over(status(site, name)), 180)
    moved = status(site, "carried")
    # a pod that comes while its node has no agent is rejected, and another one follows
    assert moved["attempt"] >= begun.get("attempt", 0) + 2
    assert moved["node"] == here
    assert moved.get("lostWork", {}).get("steps", 0) == 0
    assert values(moved) == values(status(site, "stayed"))
    for node in (here, there):
        assert not list((site.cluster.node_root(node) / "var/lib/kubelet/checkpoints").glob("*.tar"))
    site.until("no image is left", lambda: not registry.images(site.cluster, "podium-checkpoints"), 60)


@pytest.fixture
def crowded(site: Site, image: str) -> Iterator[Witness]:
    """Two trials on one node's GPU, the other node takes none; and what they print."""
    names = [node["metadata"]["name"] for node in site.objects("nodes")]
    assert names == [CROWDED, EMPTY]
    manifest = job(site, LEVELLED, image)
    manifest["spec"] |= {"trials": {"max": 2, "parallel": 2, "maxSteps": 100_000}}  # a move is worth it at any speed
    manifest["spec"]["policy"] = {"name": "round_robin", "settings": {"quantum": 2}}
    # not told its parameters: both compute the same
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "-c", PACED, f"{LEVELLED_PAUSE}", f"--epochs={LEVELLED_EPOCHS}", "--work=2"]
    witness = load(Path(__file__).with_name("scene.py")).Witness(site, LEVELLED)
    try:
        site.level(True)
        site.kubectl("cordon", EMPTY)
        site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        yield witness
    finally:
        witness.close()
        site.kubectl("delete", "hyperparamjob", LEVELLED, "--ignore-not-found", "--timeout=90s", timeout=100)
        site.kubectl("uncordon", EMPTY)  # it is the file's last: levelling ends with the carrying, in one upgrade


def test_a_trial_that_cannot_save_goes_to_the_free_node_alive(site: Site, crowded: Witness) -> None:
    def trials() -> list[dict[str, Any]]:
        crowded.look()
        found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={LEVELLED}")
        return [trial.get("status", {}) for trial in found]

    def begun() -> bool:
        return [one.get("node") for one in trials() if one.get("lastStep", 0) >= 1] == [CROWDED] * 2

    def moved() -> int | None:
        ways = [one.get("migration") or {} for one in trials()]
        there = [way.get("phase") == "Restored" for way in ways]
        return there.index(True) if any(there) else None

    def ended() -> bool:
        return all(one.get("phase") == "Succeeded" and one.get("lastStep") == LEVELLED_EPOCHS for one in trials())

    site.until("both have begun", begun, 120)
    assert not any(one.get("migration") for one in trials()), "nobody goes to a cordoned node"
    site.kubectl("uncordon", EMPTY)
    site.until("one is there", lambda: moved() is not None, 180)
    let_go(site, LEVELLED)
    site.until("both are over", ended, 240)
    gone = moved()
    assert gone is not None
    told = trials()
    way = told[gone]["migration"]
    assert (way["reason"], way["sourceNode"], way["targetNode"]) == ("Rebalancing", CROWDED, EMPTY)
    assert [one["node"] for one in told] == [EMPTY if number == gone else CROWDED for number in range(2)]
    printed = [list(crowded.printed(f"{LEVELLED}-{number}", "val_acc").values()) for number in range(2)]
    assert [len(attempts) for attempts in printed] == [2 if number == gone else 1 for number in range(2)]
    curves = [list(itertools.chain(*attempts)) for attempts in printed]
    assert [step for step, _ in curves[0]] == list(range(1, LEVELLED_EPOCHS + 1)), "each step once, none lost"
    assert curves[0] == curves[1], "bit for bit"
    assert all(one.get("lostWork", {}).get("steps", 0) == 0 for one in told)
    site.until("no image is left", lambda: not registry.images(site.cluster, "podium-checkpoints"), 60)


def stays_without_a_registry(site: Site, node: str) -> None:
    """It cannot be carried, works on where it is, and may be tried again."""
    before = status(site, "carried")
    registry.kill(site.cluster, node)
    try:
        site.podium("drain", node, "--wait", "0")
        site.until("it falls back", lambda: way(site).get("code") == "RegistryUnreachable", 90)
    finally:
        registry.start_again(site.cluster, node)
        site.podium("drain", node, "--undo")
    stood = status(site, "carried")
    assert (stood["node"], stood.get("attempt", 0)) == (node, before.get("attempt", 0))
    site.until("it works on", lambda: status(site, "carried")["lastStep"] > stood["lastStep"], 60)
    site.until("nothing of it is left", lambda: not way(site), 60)


def let_go(site: Site, name: str) -> None:
    """The trials of that search need not take their time any more."""

    def settled() -> list[dict[str, Any]]:
        trials = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
        return trials if all(trial["status"]["phase"] in ("Running", "Succeeded") for trial in trials) else []

    for trial in site.until(f"the trials of {name} at work or over", settled, 60):
        if trial["status"]["phase"] == "Running":
            site.kubectl("exec", trial["status"]["pod"], "--", "touch", "/tmp/go")


def way(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = status(site, "carried").get("migration") or {}
    return found


def arrived(site: Site, node: str) -> bool:
    return (way(site).get("targetNode"), way(site).get("phase")) == (node, "Restored")


def job(site: Site, name: str, image: str) -> dict[str, Any]:
    """One trial, of the same parameters in both, that saves nothing and can only be suspended by `cuda-checkpoint`."""
    manifest: dict[str, Any] = site.example(name)
    spec = manifest["spec"]
    del spec["checkpoint"]
    spec["trials"] = {"max": 1, "parallel": 1, "maxSteps": EPOCHS}
    spec["gpus"] = {"perTrial": 1, "memory": "64Mi"}
    spec["suspension"] = {"methods": ["cuda-checkpoint", METHOD]}
    container = spec["template"]["spec"]["containers"][0]
    container["image"] = image
    container["command"] = ["python3", "-c", PACED, f"{PAUSE}", f"--epochs={EPOCHS}", "--work=2", "$(podium.args)"]
    return manifest


def status(site: Site, name: str) -> dict[str, Any]:
    found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
    return found[0].get("status", {}) if found else {}


def at_work(status: dict[str, Any]) -> dict[str, Any]:
    """The status, once it says all of it: the agent writes of epochs, the operator of phase and node."""
    begun = (status.get("lastStep") or 0) >= 1 and status.get("phase") == "Running" and status.get("node")
    return status if begun else {}


def over(status: dict[str, Any]) -> bool:
    """It may succeed before its agent has told its last epoch."""
    return bool(status.get("phase") == "Succeeded" and status.get("lastStep") == EPOCHS)


def values(status: dict[str, Any]) -> dict[int, float]:
    points = {int(point["step"]): point["value"] for point in status["curve"]["points"]}
    assert max(points) == EPOCHS
    return points
