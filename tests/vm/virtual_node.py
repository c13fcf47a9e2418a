"""A cluster with Podium whose GPU node is a virtual machine, and the requests of the tests to it.

A limit of time is three times what was measured under emulation on two cores with other work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kube_reads import ApiReader
from script_modules import load

from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.shell import run
from podium_devcluster.vm.machine import Machine

ROOT = Path(__file__).parents[2]
NODE = "node-1"
GPU = "podium.dev/gpu"
SLOTS = "4"
LIMIT = 3
INSTALL_SECONDS = 122.0  # fake driver and agent start, slots are allocatable


@dataclass
class VirtualNode:
    """The cluster: operator and scheduler on the native node, agent and trials on the virtual one."""

    cluster: Cluster
    machine: Machine
    accelerator: str = ""

    def __post_init__(self) -> None:
        self.guest = load(Path(__file__).with_name("guest_evidence.py")).GuestEvidence(self.machine)
        self._reads = ApiReader(self.cluster)
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a text with the seconds since the start: `pytest -s` shows where the time goes."""
        print(f"[{time.monotonic() - self._started:.0f} s] {text}", flush=True)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return self.cluster.kubectl(*arguments, stdin=stdin, timeout=timeout)

    def get(self, *words: str) -> dict[str, Any]:
        return self._reads.get(*words)

    def objects(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(*words)["items"]
        return found

    def until(self, what: str, condition: Callable[[], Any], measured: float) -> Any:
        """Return the first true result of `condition`, and print how long that took.

        It fails after three times the measured seconds.
        """
        seconds = LIMIT * measured
        started = time.monotonic()
        while True:
            answer = condition()
            if answer:
                self.say(f"{what}: after {time.monotonic() - started:.1f} s")
                return answer
            if time.monotonic() - started > seconds:
                self.diagnose()
                pytest.fail(f"{what}: not within {seconds:g} s")
            time.sleep(0.5)

    def diagnose(self) -> None:
        """Print the state of the cluster and of the guest's programs, as far as they still answer."""
        for arguments in (
            ("get", "pods,hyperparamjobs,hyperparamtrials,nodes", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("logs", "-n", "podium-system", "daemonset/podium-agent", "--tail=40"),
            ("logs", "-n", "podium-system", "deployment/podium-operator", "--tail=40"),
        ):
            self._attempt(lambda arguments=arguments: self.kubectl(*arguments, timeout=30))
        self._attempt(lambda: self.machine.shell("tail -n 40 /var/log/kubelet.log", 30))

    def _attempt(self, query: Callable[[], str]) -> None:
        try:
            print("--", *query().splitlines()[-60:], sep="\n", flush=True)
        except (RuntimeError, OSError) as error:
            print(f"-- {error}", flush=True)

    # ---- Podium ----------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Install the fake driver and Podium, and wait until the virtual node offers its slots."""
        driver = (ROOT / "devcluster/manifests/fake-driver.yaml").read_text()
        here = "hostPID: true\n      nodeSelector: {kubernetes.io/hostname: " + self.machine.name + "}"
        self.kubectl("apply", "-f", "-", stdin=driver.replace("hostPID: true", here))
        nodes = {"operator": NODE, "scheduler": NODE, "agent": self.machine.name}
        places = [f"--set={part}.nodeSelector.kubernetes\\.io/hostname={node}" for part, node in nodes.items()]
        values = ["-f", str(ROOT / "examples/demo-values.yaml"), *places]
        self.helm("upgrade", "--install", "podium", str(ROOT / "charts/podium"), *values, "--create-namespace")
        self.until("the virtual node offers its slots", self.offers_slots, INSTALL_SECONDS)

    def helm(self, *arguments: str) -> None:
        argv = [str(self.cluster.cache.bin / "helm"), f"--kubeconfig={self.cluster.kubeconfig}", *arguments]
        run([*argv, "-n", "podium-system"], timeout=120)

    def offers_slots(self) -> bool:
        node = self.get("node", self.machine.name)
        return bool(node["status"]["allocatable"].get(GPU) == SLOTS)

    def is_usable(self) -> bool:
        """Return whether the virtual node is Ready and offers its slots."""
        node = self.get("node", self.machine.name)
        ready = {c["type"]: c["status"] for c in node["status"]["conditions"]}.get("Ready")
        return ready == "True" and self.offers_slots()

    def search(self, name: str, runtime_class: str = "") -> None:
        """Start a search of two trials that share the GPU of the virtual node."""
        container = {
            "name": "train",
            "image": "localhost/busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", Path(__file__).with_name("trial.sh").read_text()],
            "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        }
        pod = {"containers": [container], **({"runtimeClassName": runtime_class} if runtime_class else {})}
        spec = {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "seed", "type": "int", "min": 1, "max": 99}],
            "trials": {"max": 2, "parallel": 2, "maxSteps": 4000},
            "policy": {"name": "round_robin", "settings": {"quantum": 20}},
            "gpus": {"perTrial": 1},
            "metrics": {"source": "stdout", "format": "json", "stepKey": "epoch"},
            "suspension": {"methods": ["freeze"], "downsizeCpu": True, "gracePeriodSeconds": 10},
            "template": {"spec": pod},
        }
        meta = {"name": name, "namespace": "default"}
        job = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": meta, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def trials(self, job: str) -> list[dict[str, Any]]:
        return self.objects("hyperparamtrials", "-l", f"podium.dev/job={job}")

    def trial(self, name: str) -> dict[str, Any]:
        return self.get("hyperparamtrial", name)

    def pod(self, trial: str) -> dict[str, Any]:
        return self.get("pod", self.trial(trial)["status"]["pod"])

    def in_phase(self, trial: str, phase: str) -> bool:
        return bool(self.trial(trial).get("status", {}).get("phase") == phase)

    def attempt(self, trial: str) -> int:
        """Return the number of the trial's attempt, counted from 0."""
        return int(self.trial(trial)["status"]["attempt"])

    def all_suspended_once(self, job: str) -> bool:
        counts = [trial.get("status", {}).get("suspensions", {}).get("count", 0) for trial in self.trials(job)]
        return len(counts) == 2 and min(counts) >= 1

    def set_suspended(self, suspend: bool, *trials: str) -> None:
        """Set or remove the hold of trials: with it they get no GPU."""
        patch = json.dumps({"spec": {"suspend": suspend}})
        for trial in trials:
            self.kubectl("patch", "hyperparamtrial", trial, "--type=merge", "-p", patch)

    def frozen(self, trial: str) -> Any:
        """Return the trial's frozen cgroup, whose own setting is to be frozen; None if it is not."""
        container = self.pod(trial)["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return next((one for one in self.guest.freezers(container) if one.requested and one.frozen), None)


def start(name: str) -> VirtualNode:
    """Start a cluster with one native node, load its images, and join the virtual node."""
    cluster = Cluster(name, nodes=1)
    cluster.down()  # a killed session may have left it
    cluster.up()
    images.build_and_load(cluster, ["podium", "podium-fake-driver"])
    node = VirtualNode(cluster, Machine(cluster))
    node.accelerator = node.machine.start()
    node.say(f"{node.machine.name} is Ready ({node.accelerator})")
    return node
