"""Searches whose trials have two workers on two nodes, for the tests of workers and of JobSets and TrainJobs.

The trials are those of examples/workers, whose values have one order of sums: a disturbed run prints the digits of an
undisturbed one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
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

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/podium-digits:dev"
MEMORY = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}
SCRIPTS = {"name": "example", "configMap": {"name": "workers-example"}}
MOUNTS = [{"name": "example", "mountPath": "/example"}]
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
        pod["volumes"] = [SCRIPTS]
        pod["containers"][0] |= {
            "command": ["python3", "/example/train.py", f"--epochs={epochs}", *options, "$(podium.args)"],
            "volumeMounts": MOUNTS,
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
            "volumeMounts": MOUNTS,
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

    def lose_worker(self, manifest: dict[str, Any], how: str, pod_of_worker: Callable[[], dict[str, Any]]) -> str:
        """Run a search of one trial, and end its worker 1 after epoch 13; return the UID of that worker's pod.

        Check that the trial continues from its checkpoint and says what it lost. `manifest` saves every 10 epochs;
        `pod_of_worker` returns the pod.
        """
        name, epochs = manifest["metadata"]["name"], manifest["spec"]["trials"]["maxSteps"]
        logs, trial = self.scene.start(manifest), f"{name}-0"

        def reached() -> bool:
            return any(points[-1][0] >= 13 for points in logs.printed(trial).values())

        self.scene.until(logs, "epoch 13", reached, 180)
        pod = pod_of_worker()
        if how == "deleted":
            self.site.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        else:
            self._kill_worker(trial)
        assert self.scene.wait_for_end(logs, 300)["status"]["phase"] == "Succeeded"
        expected = self.undisturbed(f"alone-{name}", epochs, 1)
        first, second = logs.printed(trial).values()
        (status,) = [one["status"] for one in self.scene.trials(name)]
        assert first == expected[: len(first)]
        assert second == expected[-len(second) :]
        assert (status["attempt"], status["failures"]) == (1, 1 if how == "killed" else 0)
        resumed, reached_step = second[0][0] - 1, first[-1][0]
        # a deleted pod's process lives a moment longer, so that all workers may still save what worker 0 is asked for
        saved = reached_step // 10 * 10
        assert resumed == 10 if how == "killed" else resumed in (saved, reached_step)
        assert status.get("lostWork", {}).get("steps", 0) == reached_step - resumed
        print(f"{how}: {reached_step - resumed} of {reached_step} epochs lost, by the logs and by the status")
        return str(pod["metadata"]["uid"])

    def _kill_worker(self, trial: str) -> None:
        for pid in self.site.processes("train.py"):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if {b"PODIUM_RANK=1", f"PODIUM_TRIAL={trial}".encode()} <= set(words):
                    os.kill(pid, signal.SIGKILL)
                    return
        pytest.fail("worker 1 does not run")


@contextlib.contextmanager
def stage_on_two_nodes(site_of: Callable[[Cluster], Site], name: str) -> Iterator[Stage]:
    """Start a cluster of its own, with CoreDNS: the workers find each other by name."""
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    cluster = Cluster(f"e2e-{name}{worker and f'-{worker}'}", nodes=2, kubelet=KubeletSettings(dns=True))
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


def report(switches: list[Switches], suspensions: int) -> None:
    """Print the skew of the workers (`pytest -rP`), and check that it is bounded."""
    for state in ("Suspended", "Running"):
        skews = [skew for one in switches for skew in one.skews(state)]
        median, most = statistics.median(skews), max(skews)
        print(f"{state}: {len(skews)} switches, skew of the two workers median {median:.3f} s, most {most:.3f} s")
        assert len(skews) >= suspensions
        assert median < 2.0
