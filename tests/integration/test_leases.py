"""GPUs held by leases on a real node with the cluster's own kube-scheduler alone: a pod that never heard of Podium
takes one, the trials on it lose no step, and they go on when it is had again. The tests are one story.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import COUNT, IMAGE, NODE, SAVE, Node, node, until
from operator_stage import OperatorProcess

from podium_devcluster.paths import project_dir

__all__ = ["node"]
pytestmark = pytest.mark.integration
GPU = "nvidia.com/gpu"
PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "podium-reservation"},
    "value": -2,
    "preemptionPolicy": "Never",
}
# as SAVE does, but that it stands still once it was told to save: no step is printed that is not saved
SAVE_AND_STAND = SAVE.replace(
    "; then save; fi", "; then [ $i = 1 ] || s=1; save; [ $s ] && while :; do sleep 0.05; done; fi"
)
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus", "namespace": "default"},
    "spec": {"hard": {f"requests.{GPU}": "1"}},
}


@dataclass
class Site:
    node: Node
    operator: OperatorProcess
    folder: Path

    def job(self, name: str, script: str, **spec: Any) -> None:
        container = {"name": "train", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}
        whole = {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": [{"name": "lr", "min": 0.001, "max": 0.1}],
            "trials": {"max": 2, "parallel": 2, "maxSteps": 1_000_000},
            "metrics": {"source": "stdout", "stepKey": "epoch"},
            "policy": {"name": "fifo"},
            "template": {"spec": {"containers": [container]}},
            **spec,
        }
        meta = {"name": name, "namespace": "default"}
        manifest = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": meta, "spec": whole}
        self.node.create(manifest, self.folder)

    def status(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.node.get("hyperparamjob", job).get("status", {})
        return found

    def condition(self, job: str, kind: str) -> dict[str, Any]:
        conditions = self.status(job).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def leased(self, job: str, reason: str) -> bool:
        return self.condition(job, "GPUsReserved").get("reason") == reason

    def placeholders(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.node.get("pods", "-l", "podium.dev/gpu-reservation")["items"]
        return found

    def told(self, reason: str) -> list[str]:
        """The sentences of events."""
        return [event["message"] for event in self.node.get("events", "--field-selector", f"reason={reason}")["items"]]

    def lease(self) -> str | None:
        """The placeholder that holds the GPU, as the agent says."""
        gpus = self.node.gpunode()["status"].get("gpus", [])
        return gpus[0].get("reservation") if gpus else None

    def trials(self, job: str) -> dict[str, dict[str, Any]]:
        items = self.node.get("hyperparamtrials", "-l", f"podium.dev/job={job}")["items"]
        return {item["metadata"]["name"]: item.get("status", {}) for item in items}

    def phases(self, job: str) -> set[str]:
        return {str(status.get("phase")) for status in self.trials(job).values()}

    def stranger(self, name: str) -> None:
        """A plain pod that wants a GPU, in a namespace of its own: no word of Podium in it."""
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do echo at work; sleep 0.05; done"],
            "resources": {"limits": {GPU: "1"}},
        }
        spec = {"terminationGracePeriodSeconds": 5, "containers": [container]}
        meta = {"name": name, "namespace": "strangers"}
        self.node.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, self.folder)

    def runs(self, name: str) -> bool:
        return bool(self.node.get("pod", name, "-n", "strangers")["status"]["phase"] == "Running")

    def at_work(self, name: str) -> list[datetime]:
        """When it wrote each of its lines."""
        uid = self.node.get("pod", name, "-n", "strangers")["metadata"]["uid"]
        folder = self.node.cluster.logs / NODE / "pods" / f"strangers_{name}_{uid}" / "main"
        return [when(line) for path in sorted(folder.glob("*.log*")) for line in path.read_text().splitlines()]

    def leave(self, name: str) -> None:
        self.node.cluster.kubectl("delete", "pod", name, "-n", "strangers", "--wait=true")


@pytest.fixture(scope="module")
def site(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("leases")
    plugins = node.cluster.node_root(NODE) / "var/lib/kubelet/device-plugins"
    script = project_dir() / "devcluster/manifests/nvidia-plugin/nvidia_plugin.py"
    command = [sys.executable, str(script), str(plugins), node.uuid]
    plugin = subprocess.Popen(command)
    log = folder / "operator.log"
    operator = OperatorProcess(
        node.cluster.kubeconfig,
        log,
        PODIUM_GPU_MODE="reservations",
        PODIUM_IMAGE=IMAGE,
        PODIUM_SCHEDULER_NAME="default-scheduler",
    )
    try:
        node.kill()
        node.environment |= {"PODIUM_GPU_MODE": "reservations", "PODIUM_SLOTS_PER_GPU": "1"}
        node.start()
        until(lambda: node.gpunode()["status"].get("mode") == "reservations", "an agent that leases")
        until(lambda: node.get("node", NODE)["status"]["allocatable"].get(GPU) == "1", "the other plugin's GPU")
        node.cluster.kubectl("create", "namespace", "strangers")
        for manifest in (PRIORITY_CLASS, QUOTA):
            node.create(manifest, folder)
        operator.start()
        yield Site(node, operator, folder)
    finally:
        operator.close()
        plugin.terminate()
        plugin.wait(10)
        print(log.read_text() if log.exists() else "")


def when(line: str) -> datetime:
    """The runtime's stamps have nine digits of a second."""
    stamp = line.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00")


def steps(node: Node, trial: str, attempt: int = 0) -> list[int]:
    return node.printed(trial, attempt)


def test_a_job_that_can_only_freeze_is_refused_by_name(site: Site) -> None:
    site.job("frozen", COUNT, suspension={"methods": ["freeze"]})
    until(lambda: site.status("frozen").get("phase") == "Refused", "the refusal")
    accepted = site.condition("frozen", "Accepted")
    assert accepted["reason"] == "GPUMemoryNotMovable"
    assert "spec.suspension.methods" in accepted["message"]
    assert site.placeholders() == []
    site.node.cluster.kubectl("delete", "hyperparamjob", "frozen")


def test_trials_work_on_what_the_quota_lets_podium_lease(site: Site) -> None:
    memory = {"perTrial": 1, "memory": "16Mi"}
    site.job("sweep", COUNT, suspension={"methods": ["cuda-checkpoint"]}, gpus=memory)
    until(lambda: site.lease(), "a GPU that is leased")

    def word() -> bool:
        told = site.condition("sweep", "GPUsReserved")
        refused = told.get("reason") == "QuotaExceeded" and "exceeded quota: gpus" in told["message"]
        return refused and told["status"] == "False" and "1 of 2 GPUs" in told["message"]

    until(word, "the job's word")
    assert len(site.placeholders()) == 1
    until(lambda: "Running" in site.node.states().values(), "one of them at work")
    (worker,) = site.node.states()
    until(lambda: len(steps(site.node, worker)) > 5, "some steps")


def test_another_agent_asks_what_is_leased_before_it_decides(site: Site) -> None:
    node, (worker,) = site.node, site.node.states()
    node.kill()
    node.start()
    until(lambda: b"announcing 1 shares" in node.log.read_bytes()[node.log_before :], "the new agent's shares")
    before = len(steps(node, worker))
    until(lambda: len(steps(node, worker)) > before + 5, "the trial works on")
    assert b": suspend" not in node.log.read_bytes()[node.log_before :]
    until(lambda: site.lease(), "the new agent says so, too")


def test_a_plain_pod_that_wants_the_gpu_gets_it(site: Site) -> None:
    site.stranger("plain")
    until(lambda: site.at_work("plain"), "the stranger at work")
    assert len(site.node.frozen()) == 1, "what worked is suspended in place"
    until(lambda: site.lease() is None, "the agent's word that it is not Podium's")
    until(lambda: site.leased("sweep", "WaitingForGPU"), "Podium asks again")
    until(lambda: site.phases("sweep") == {"Suspended", "Pending"}, "no trial at work")
    # an operator that was too slow to see it end has no other word for it
    words = ("PreemptionByScheduler", "it was deleted")
    until(
        lambda: any(word in told for told in site.told("ReservationPreempted") for word in words),
        "the event says by whom",
    )
    assert site.runs("plain"), "Podium's lease takes nothing from anybody"


def test_with_the_lease_they_go_on_and_no_step_is_lost(site: Site) -> None:
    (pod,) = site.node.frozen()
    worker, before, stranger = pod.removesuffix("-0"), len(site.node.log_of(pod)), site.at_work("plain")
    site.leave("plain")
    until(lambda: site.lease(), "the lease is had again")
    until(lambda: len(steps(site.node, worker)) > before, "it goes on")
    written = [when(line) for line in site.node.log_of(pod)]
    assert not [moment for moment in written if stranger[0] <= moment <= stranger[-1]], "both at work"
    found = steps(site.node, worker)
    assert found == list(range(1, len(found) + 1))
    assert site.trials("sweep")[worker].get("attempt", 0) == 0, "it is still the same pod"
    assert site.status("sweep")["lostWork"]["steps"] == 0


def test_it_is_given_back_with_the_last_search(site: Site) -> None:
    before = len(site.node.log.read_bytes())
    site.node.cluster.kubectl("delete", "hyperparamjob", "sweep", "--wait=true")
    until(lambda: not site.placeholders(), "no placeholder is left", 120)  # a grace period or two
    until(lambda: site.lease() is None, "nothing is leased")
    until(lambda: not site.node.get("pods", "-l", "podium.dev/trial")["items"], "no trial is left")
    said = site.node.log.read_bytes()[before:]
    assert b"suspend (ReservationEnded)" not in said, "it ended while the GPU was Podium's"


def test_trials_that_cannot_be_suspended_save_and_go_on_from_there(site: Site) -> None:
    site.job(
        "saves",
        SAVE_AND_STAND,
        trials={"max": 1, "parallel": 1, "maxSteps": 1_000_000},
        suspension={"methods": ["app-checkpoint"], "gracePeriodSeconds": 8},
        checkpoint={"path": "/ckpt", "volume": {"hostPath": {"path": "/var/lib/checkpoints"}}},
    )
    until(lambda: site.phases("saves") == {"Running"}, "it works")
    until(lambda: len(steps(site.node, "saves-0")) > 3, "some steps")
    site.stranger("another")
    until(lambda: site.runs("another"), "the stranger at work")
    until(lambda: site.phases("saves") == {"Requeued"}, "the trial waits")

    def asked() -> int:
        """The step that it saved because it was asked: by itself it does so once, after the first."""
        step = int(site.trials("saves")["saves-0"].get("checkpoint", {}).get("step", 0))
        return step if step > 3 else 0

    saved = until(asked, "its save")
    site.leave("another")
    until(lambda: site.trials("saves")["saves-0"].get("attempt") == 1, "another attempt")
    until(lambda: site.phases("saves") == {"Running"}, "it goes on")
    until(lambda: steps(site.node, "saves-0", 1), "further steps")
    assert steps(site.node, "saves-0", 1)[0] == saved + 1, "none is lost, none is done twice"
    until(lambda: site.trials("saves")["saves-0"].get("lastStep", 0) > saved, "its status goes on as well")
    assert site.trials("saves")["saves-0"].get("lostWork", {}).get("steps", 0) == 0
