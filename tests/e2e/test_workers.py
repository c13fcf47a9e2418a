"""Trials of two workers on two nodes, by real kubelets: suspended together, all or nothing, requeued as a whole.

The file has a cluster of its own, with CoreDNS: the workers find each other by name. The trials are those of
examples/workers, whose values have one order of sums, so a disturbed run prints the digits of an undisturbed one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import dns
from podium_devcluster.runtime.node_config import KubeletSettings

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
IMAGE = "localhost/podium-digits:dev"
SUSPENSIONS = 20
EPOCHS = 400  # of 0.25 s: more than 20 time slices, which take about 4 s with their switches
PAIR, SINGLE = "pair", "single"
MEMORY = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
Site = Any


@dataclass
class Stage:
    """The cluster, and the searches of the test."""

    site: Site
    scene: Any

    def job(self, name: str, epochs: int, seeds: int, *options: str) -> dict[str, Any]:
        """Return a search of trials of two workers, one for each of the first `seeds` seeds."""
        manifest: dict[str, Any] = self.site.example(name)
        manifest["spec"] |= {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "seed", "values": list(range(1, seeds + 1))}],
            "search": {"algorithm": "grid"},
            "trials": {"max": seeds, "parallel": seeds, "maxSteps": epochs, "workers": 2},
            "policy": {"name": "round_robin", "settings": {"quantum": 2}},
            "gpus": {"perTrial": 2},
            "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 10},
            "checkpoint": {"path": "/ckpt", "volume": {"claimName": "shared"}},
        }
        pod = manifest["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "example", "configMap": {"name": "workers-example"}}]
        pod["containers"][0] |= {
            "command": ["python3", "/example/train.py", f"--epochs={epochs}", *options, "$(podium.args)"],
            "volumeMounts": [{"name": "example", "mountPath": "/example"}],
            "resources": MEMORY,
        }
        return manifest

    def undisturbed(self, name: str, epochs: int, seed: int) -> list[tuple[int, float]]:
        """Return what two workers print that no scheduler knows: two processes in one plain pod."""
        files = [{"key": "train.py", "path": "train.py"}, {"key": "trial.py", "path": "podium/trial.py"}]
        container = {
            "name": "train",
            "image": IMAGE,
            "command": ["python3", "/example/train.py", "--local=2", f"--epochs={epochs}", f"--seed={seed}"],
            "env": [{"name": "PODIUM_PYTHON", "value": "/example"}],
            "volumeMounts": [{"name": "example", "mountPath": "/example"}],
            "resources": MEMORY,
        }
        volume = {"name": "example", "configMap": {"name": "workers-example", "items": files}}
        spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        self.site.kubectl(
            "wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", timeout=130
        )
        points: list[tuple[int, float]] = self.site.evidence.printed(
            self.site.log_of(self.site.get("pod", name), "train"), "loss", "epoch"
        )
        self.site.kubectl("delete", "pod", name, "--wait=false")
        assert [step for step, _ in points] == list(range(1, epochs + 1))
        return points


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Site]) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    cluster = Cluster(f"e2e-workers{worker and f'-{worker}'}", nodes=2, kubelet=KubeletSettings(dns=True))
    cluster.down()  # a killed session may have left it
    try:
        cluster.up()
        site = site_of(cluster)
        site.demo.install(site.place)
        dns.install(cluster)
        sources = (ROOT / "examples/workers/train.py", ROOT / "sdk/podium/trial.py")
        site.kubectl("create", "configmap", "workers-example", *(f"--from-file={path}" for path in sources))
        yield Stage(site, load(Path(__file__).with_name("scene.py")).set_up(site))
    finally:
        if not os.environ.get("PODIUM_KEEP"):
            cluster.down()


@dataclass
class Switches:
    """When each worker of a trial was suspended and resumed, as the agents report it in the GPUNodes."""

    trial: str
    seen: dict[str, dict[str, set[float]]] = field(default_factory=dict)  # state, node: times

    def look(self, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            for gpu in node.get("status", {}).get("gpus", []):
                for one in gpu.get("trials", []):
                    if one["trial"] == self.trial and one["state"] in ("Suspended", "Running"):
                        times = self.seen.setdefault(one["state"], {})
                        times.setdefault(node["metadata"]["name"], set()).add(seconds(one["since"]))

    def skews(self, state: str) -> list[float]:
        """Return the seconds between the workers, for each time at which the first node reported the state."""
        first, second = (sorted(times) for _, times in sorted(self.seen[state].items()))
        return [min(abs(at - other) for other in second) for at in first]


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_trials_of_two_workers_take_turns_with_each_other_and_with_a_trial_of_one(stage: Stage) -> None:
    """Both trials of the pair are suspended 20 times, and each value has the digits of an undisturbed run."""
    scene, site = stage.scene, stage.site
    expected = {f"{PAIR}-{seed - 1}": stage.undisturbed(f"alone-{seed}", EPOCHS, seed) for seed in (1, 2)}
    logs = scene.start(stage.job(PAIR, EPOCHS, 2, "--pause=0.25"))
    scene.until(logs, "both trials train", lambda: len(training(scene)) == 2, 120)
    other = scene.search(SINGLE, trials=1, seconds=0.2)
    switches = [Switches(f"{PAIR}-{number}") for number in range(2)]
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
    report(switches)
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


def report(switches: list[Switches]) -> None:
    """Print the skew of the workers (`pytest -rP`), and check that it is bounded."""
    for state in ("Suspended", "Running"):
        skews = [skew for one in switches for skew in one.skews(state)]
        median, most = statistics.median(skews), max(skews)
        print(f"{state}: {len(skews)} switches, skew of the two workers median {median:.3f} s, most {most:.3f} s")
        assert len(skews) >= SUSPENSIONS
        assert median < 2.0


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_without_one_worker_the_whole_trial_continues_from_its_checkpoint(stage: Stage, how: str) -> None:
    scene, site, name, epochs = stage.scene, stage.site, f"lossy-{how}", 40
    logs = scene.start(stage.job(name, epochs, 1, "--pause=0.4", "--save-every=10"))
    trial = f"{name}-0"

    def reached(step: int) -> bool:
        return any(points[-1][0] >= step for points in logs.printed(trial).values())

    scene.until(logs, "epoch 13", lambda: reached(13), 180)
    lost = end_worker(site, trial, how)
    assert scene.wait_for_end(logs, 300)["status"]["phase"] == "Succeeded"
    expected = stage.undisturbed(f"alone-{how}", epochs, 1)
    first, second = logs.printed(trial).values()
    (status,) = [one["status"] for one in scene.trials(name)]
    assert first == expected[: len(first)]
    assert second == expected[-len(second) :]
    assert (status["attempt"], status["failures"]) == (1, 1 if how == "killed" else 0)
    resumed, reached_step = second[0][0] - 1, first[-1][0]
    # a deleted pod's process lives a moment longer, so that all workers may still save what worker 0 is asked for
    assert resumed == 10 or (how == "deleted" and resumed == reached_step)
    assert status.get("lostWork", {}).get("steps", 0) == reached_step - resumed
    print(f"{how}: {reached_step - resumed} of {reached_step} epochs lost, by the logs and by the status")
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in scene.pods(name)}
    assert lost not in pods.values() or how == "killed"
    assert {f"{trial}-1", f"{trial}-1-w1"} <= pods.keys()
    scene.check_no_leaks(name)
    scene.finish(name)


def end_worker(site: Site, trial: str, how: str) -> str:
    """Delete the pod of worker 1 without a grace period, or kill its process; return the pod's UID."""
    pod = site.get("pod", f"{trial}-0-w1")
    if how == "deleted":
        site.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
    else:
        for pid in site.processes("train.py"):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if {b"PODIUM_RANK=1", f"PODIUM_TRIAL={trial}".encode()} <= set(words):
                    os.kill(pid, signal.SIGKILL)
                    break
        else:
            pytest.fail("worker 1 does not run")
    uid: str = pod["metadata"]["uid"]
    return uid


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
