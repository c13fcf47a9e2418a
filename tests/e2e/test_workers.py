"""Trials of two workers on two nodes, by real kubelets: suspended together, all or nothing, requeued as a whole.

The file has a cluster of its own, with CoreDNS: the workers find each other by name.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.cluster import Cluster

worker_searches = load(Path(__file__).with_name("worker_searches.py"))
pytestmark = pytest.mark.e2e
SUSPENSIONS = 20
EPOCHS = 400  # of 0.25 s: more than 20 time slices, which take about 4 s with their switches
PAIR, SINGLE, CROWD, LATE = "pair", "single", "crowd", "late"
SWITCHES = 200
TWO_WORKERS, ONE_WORKER = ("two-a", "two-b"), ("one-a", "one-b")  # searches of one trial each
MIXED = TWO_WORKERS + ONE_WORKER
Stage = Any


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Any]) -> Iterator[Stage]:
    with worker_searches.stage_on_two_nodes(site_of, "workers") as made:
        yield made


def test_trials_of_two_workers_take_turns_with_each_other_and_with_a_trial_of_one(stage: Stage) -> None:
    """Both trials of the pair are suspended 20 times, and each value has the digits of an undisturbed run."""
    scene, site = stage.scene, stage.site
    expected = {f"{PAIR}-{seed - 1}": stage.undisturbed(f"alone-{seed}", EPOCHS, seed) for seed in (1, 2)}
    logs = scene.start(stage.job(PAIR, EPOCHS, 2, "--pause=0.25"))
    scene.until(logs, "both trials train", lambda: len(training(scene)) == 2, 120)
    other = scene.search(SINGLE, trials=1, seconds=0.2)
    switches = [worker_searches.Switches(f"{PAIR}-{number}") for number in range(2)]
    halves: list[dict[str, set[str]]] = []

    def ended() -> bool:
        nodes = site.objects("gpunodes")
        for one in switches:
            one.look(nodes)
        halves.append(holders(nodes))
        other.open_new()
        return all(scene.phase(name) in ("Succeeded", "Failed", "Refused") for name in (PAIR, SINGLE))

    scene.until(logs, "both searches end", ended, 900)
    for name in (PAIR, SINGLE):
        assert scene.phase(name) == "Succeeded"
    worker_searches.report(switches, SUSPENSIONS)
    for trial in scene.trials(PAIR):
        name, status = trial["metadata"]["name"], trial["status"]
        assert logs.printed(name) == {0: expected[name]}, "one attempt, with the digits of the undisturbed run"
        assert status["suspensions"]["count"] >= SUSPENSIONS
        workers = {one["rank"]: (one["pod"], one["node"]) for one in status["workers"]}
        assert {rank: pod for rank, (pod, _) in workers.items()} == {0: f"{name}-0", 1: f"{name}-0-w1"}
        assert {node for _, node in workers.values()} == {"node-1", "node-2"}
    # between two reports of the nodes one of them may be behind, but no trial holds one GPU while another holds the
    # other one
    for before, after in itertools.pairwise(halves):
        stuck = {node: before[node] & after[node] for node in before}
        assert not crossed(stuck), f"two trials hold a half each: {before}, then {after}"
    scene.check_results(other)
    scene.check_no_leaks(PAIR)
    scene.finish(PAIR, SINGLE)


def training(scene: Any) -> list[Any]:
    return [trial for trial in scene.trials(PAIR) if scene.last_step(trial) > 0]


def holders(nodes: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the trials of several workers that hold a GPU, by node."""
    return {
        node["metadata"]["name"]: {
            gpu["holder"]["trial"]
            for gpu in node.get("status", {}).get("gpus", [])
            if gpu.get("holder", {}).get("trial", "").startswith(f"{PAIR}-")
        }
        for node in nodes
    }


def crossed(held: dict[str, set[str]]) -> bool:
    """Return whether two trials of several workers hold a GPU each."""
    return len(set().union(*held.values())) > 1


def test_a_trial_of_two_workers_finds_slots_beside_a_search_that_takes_all_that_become_free(stage: Stage) -> None:
    scene, slots, trials = stage.scene, 8, 32
    crowd = scene.search(CROWD, trials=trials, seconds=0.1, policy={"name": "fifo"})

    def placed() -> int:
        return sum("nodeName" in pod["spec"] for pod in scene.pods(CROWD))

    scene.until(crowd, "all slots are taken", lambda: placed() == slots, 120)
    logs = scene.start(stage.job(LATE, 5, 1))
    scene.until(logs, "the late trial trains", lambda: any(scene.last_step(one) > 0 for one in scene.trials(LATE)), 240)
    ended = sum(trial["status"].get("phase") == "Succeeded" for trial in scene.trials(CROWD))
    print(f"it trained when {ended} of {trials} trials of the other search had ended")
    assert ended < trials - slots, "the other search had trials without a slot until then"
    assert scene.wait_for_end(logs, 240)["status"]["phase"] == "Succeeded"
    scene.finish(LATE, CROWD)


def test_trials_of_one_and_of_two_workers_do_not_deadlock_in_random_switches(stage: Stage) -> None:
    """A user suspends and resumes four searches at random; after each switch a trial has all of its GPUs."""
    scene, site, epochs = stage.scene, stage.site, 3 * SWITCHES
    expected = stage.undisturbed("alone", epochs, 1)
    logs = {name: scene.start(stage.job(name, epochs, 1, "--pause=0.25")) for name in TWO_WORKERS}
    logs |= {name: scene.search(name, "held", trials=1, seconds=0.3) for name in ONE_WORKER}
    chance, suspended, held, count = Random(1), set[str](), dict[str, str](), 0

    def placed(name: str) -> bool:
        nodes = [pod["spec"].get("nodeName") for pod in scene.pods(name)]
        return len(nodes) == (2 if name in TWO_WORKERS else 1) and all(nodes)

    def switched() -> dict[str, str]:
        for one in logs.values():
            one.open_new()
        now = working(site.objects("gpunodes"))
        whole = [name for name in MIXED if list(now.values()).count(name) == (2 if name in TWO_WORKERS else 1)]
        return now if set(now.values()) <= set(whole) - suspended else {}

    for name in MIXED:
        scene.until(logs[name], "all pods are placed", lambda name=name: placed(name), 120)
    while count < SWITCHES:
        wanted = set(chance.sample(MIXED, chance.randint(1, 3)))
        if held and not wanted & set(held.values()):
            continue  # it may change nothing
        for names, value in ((wanted - suspended, True), (suspended - wanted, False)):
            if names:
                suspend(site, names, value)
        suspended = wanted
        before, held = held, site.until(f"a trial works, without {sorted(suspended)}", switched, 60)
        count += not set(held.values()) <= set(before.values())
    suspend(site, MIXED, False)
    for name in ONE_WORKER:
        scene.until(logs[name], "it trains", lambda name=name: scene.last_step(scene.trials(name)[0]) > 0, 120)
        scene.release(name)
    for name in MIXED:
        assert scene.wait_for_end(logs[name], 600)["status"]["phase"] == "Succeeded"
    for name in TWO_WORKERS:
        assert logs[name].printed(f"{name}-0") == {0: expected}, "one attempt, with the digits of the undisturbed run"
    assert sum(scene.check_results(logs[name]) for name in ONE_WORKER) == 0
    print(f"{count} switches")
    scene.finish(*MIXED)


def suspend(site: Any, names: Iterable[str], value: bool) -> None:
    patch = json.dumps({"spec": {"suspend": value}})
    site.kubectl("patch", "hyperparamjob", *sorted(names), "--type=merge", "-p", patch)


def working(nodes: list[dict[str, Any]]) -> dict[str, str]:
    """Return the search whose trial works on each GPU, by GPU."""
    return {
        gpu["uuid"]: one["trial"].rpartition("-")[0]
        for node in nodes
        for gpu in node.get("status", {}).get("gpus", [])
        for one in gpu.get("trials", [])
        if one["state"] == "Running"
    }


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_without_one_worker_the_whole_trial_continues_from_its_checkpoint(stage: Stage, how: str) -> None:
    scene, site, name = stage.scene, stage.site, f"lossy-{how}"
    manifest = stage.job(name, 40, 1, "--pause=0.4", "--save-every=10")
    lost = stage.lose_worker(manifest, how, lambda: site.get("pod", f"{name}-0-0-w1"))
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in scene.pods(name)}
    assert lost not in pods.values() or how == "killed"
    assert {f"{name}-0-1", f"{name}-0-1-w1"} <= pods.keys()
    scene.check_no_leaks(name)
    scene.finish(name)


def test_a_service_of_the_same_name_is_reported(stage: Stage) -> None:
    """The trial waits, with the cure in its message, and starts once the name is free."""
    scene, site, name = stage.scene, stage.site, "taken"
    site.kubectl("create", "service", "clusterip", f"{name}-0", "--clusterip=None")
    logs = scene.start(stage.job(name, 3, 1))

    def message() -> str:
        return "".join(trial.get("status", {}).get("message", "") for trial in scene.trials(name))

    scene.until(logs, "the trial names the Service", lambda: f"Service {name}-0 exists" in message(), 60)
    assert scene.pods(name) == []
    site.kubectl("delete", "service", f"{name}-0")
    assert scene.wait_for_end(logs, 180)["status"]["phase"] == "Succeeded"
    assert site.kubectl("get", "service", f"{name}-0", "-o", "jsonpath={.metadata.ownerReferences[*].kind}") == (
        "HyperParamTrial"
    )
    scene.finish(name)
    scene.wait_until_deleted()
    deadline = time.monotonic() + 60
    while site.kubectl("get", "services", "-l", f"podium.dev/trial={name}-0", "-o", "name"):
        assert time.monotonic() < deadline, "the Service remains after its trial"
        time.sleep(0.5)
