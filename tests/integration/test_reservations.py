"""GPU reservations on a real node with only the cluster's own kube-scheduler.

A pod unrelated to Podium takes a reserved GPU. The trials on it lose no step and resume when Podium has the GPU again.
Each test continues from the state of the previous one.
"""

from __future__ import annotations

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
from other_plugin import RESOURCE as GPU
from other_plugin import OtherPlugin

__all__ = ["node"]
pytestmark = pytest.mark.integration
PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "podium-reservation"},
    "value": -2,
    "preemptionPolicy": "Never",
}
# like SAVE, but it stops after a requested checkpoint, so that every printed step is in the checkpoint
SAVE_AND_STOP = SAVE.replace(
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
    """A node, an operator that reserves GPUs, and the requests of the tests."""

    node: Node
    operator: OperatorProcess
    folder: Path

    def job(self, name: str, script: str, **spec: Any) -> None:
        container = {"name": "train", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}
        default = {
            "objective": {"metric": "acc", "direction": "maximize"},
            "parameters": [{"name": "lr", "min": 0.001, "max": 0.1}],
            "trials": {"max": 2, "parallel": 2, "maxSteps": 1_000_000},
            "metrics": {"source": "stdout", "stepKey": "epoch"},
            "policy": {"name": "fifo"},
            "template": {"spec": {"containers": [container]}},
            **spec,
        }
        meta = {"name": name, "namespace": "default"}
        manifest = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": meta, "spec": default}
        self.node.create(manifest, self.folder)

    def status(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.node.get("hyperparamjob", job).get("status", {})
        return found

    def condition(self, job: str, kind: str) -> dict[str, Any]:
        conditions = self.status(job).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def has_reservation_reason(self, job: str, reason: str) -> bool:
        return self.condition(job, "GPUsReserved").get("reason") == reason

    def reservation_pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.node.get("pods", "-l", "podium.dev/gpu-reservation")["items"]
        return found

    def event_messages(self, reason: str) -> list[str]:
        """Return the messages of the events with a reason."""
        return [event["message"] for event in self.node.get("events", "--field-selector", f"reason={reason}")["items"]]

    def reservation(self) -> str | None:
        """Return the reservation pod that holds the GPU, as the agent reports it."""
        gpus = self.node.gpunode()["status"].get("gpus", [])
        return gpus[0].get("reservation") if gpus else None

    def trials(self, job: str) -> dict[str, dict[str, Any]]:
        items = self.node.get("hyperparamtrials", "-l", f"podium.dev/job={job}")["items"]
        return {item["metadata"]["name"]: item.get("status", {}) for item in items}

    def phases(self, job: str) -> set[str]:
        return {str(status.get("phase")) for status in self.trials(job).values()}

    def create_other_pod(self, name: str) -> None:
        """Create a pod that requests a GPU, in another namespace and without any reference to Podium."""
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do echo running; sleep 0.05; done"],
            "resources": {"limits": {GPU: "1"}},
        }
        spec = {"terminationGracePeriodSeconds": 5, "containers": [container]}
        meta = {"name": name, "namespace": "others"}
        self.node.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, self.folder)

    def runs(self, name: str) -> bool:
        return bool(self.node.get("pod", name, "-n", "others")["status"]["phase"] == "Running")

    def line_times(self, name: str) -> list[datetime]:
        """Return the times of the lines of a pod."""
        uid = self.node.get("pod", name, "-n", "others")["metadata"]["uid"]
        folder = self.node.cluster.logs / NODE / "pods" / f"others_{name}_{uid}" / "main"
        return [when(line) for path in sorted(folder.glob("*.log*")) for line in path.read_text().splitlines()]

    def delete_other_pod(self, name: str) -> None:
        self.node.cluster.kubectl("delete", "pod", name, "-n", "others", "--wait=true")


@pytest.fixture(scope="module")
def site(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("reservations")
    plugins = node.cluster.node_root(NODE) / "var/lib/kubelet/device-plugins"
    plugin = OtherPlugin(plugins, [node.uuid])
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
        until(lambda: node.gpunode()["status"].get("mode") == "reservations", "an agent with reservations")
        until(lambda: node.get("node", NODE)["status"]["allocatable"].get(GPU) == "1", "the other plugin's GPU")
        node.cluster.kubectl("create", "namespace", "others")
        for manifest in (PRIORITY_CLASS, QUOTA):
            node.create(manifest, folder)
        operator.start()
        yield Site(node, operator, folder)
    finally:
        operator.close()
        plugin.stop()
        print(log.read_text() if log.exists() else "")


def when(line: str) -> datetime:
    """Return the time of a log line. The runtime writes nanoseconds, of which datetime reads microseconds."""
    stamp = line.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00")


def steps(node: Node, trial: str, attempt: int = 0) -> list[int]:
    return node.printed(trial, attempt)


def test_a_job_that_can_only_freeze_is_refused(site: Site) -> None:
    site.job("frozen", COUNT, suspension={"methods": ["freeze"]})
    until(lambda: site.status("frozen").get("phase") == "Refused", "the refusal")
    accepted = site.condition("frozen", "Accepted")
    assert accepted["reason"] == "GPUMemoryNotMovable"
    assert "spec.suspension.methods" in accepted["message"]
    assert site.reservation_pods() == []
    site.node.cluster.kubectl("delete", "hyperparamjob", "frozen")


def test_trials_run_on_the_gpus_that_the_quota_allows_podium_to_reserve(site: Site) -> None:
    memory = {"perTrial": 1, "memory": "16Mi"}
    site.job("sweep", COUNT, suspension={"methods": ["cuda-checkpoint"]}, gpus=memory)
    until(lambda: site.reservation(), "a reserved GPU")

    def reported() -> bool:
        condition = site.condition("sweep", "GPUsReserved")
        refused = condition.get("reason") == "QuotaExceeded" and "exceeded quota: gpus" in condition["message"]
        return refused and condition["status"] == "False" and "1 of 2 GPUs" in condition["message"]

    until(reported, "the condition of the job")
    assert len(site.reservation_pods()) == 1
    until(lambda: "Running" in site.node.states().values(), "one of the trials runs")
    (holder,) = site.node.states()
    until(lambda: len(steps(site.node, holder)) > 5, "some steps")


def test_a_new_agent_reads_the_reservations_before_it_decides(site: Site) -> None:
    node, (holder,) = site.node, site.node.states()
    node.kill()
    node.start()
    until(lambda: b"advertising 1 slots" in node.log.read_bytes()[node.log_before :], "the new agent's slots")
    before = len(steps(node, holder))
    until(lambda: len(steps(node, holder)) > before + 5, "the trial continues")
    assert b": suspend" not in node.log.read_bytes()[node.log_before :]
    until(lambda: site.reservation(), "the new agent reports the reservation")


def test_another_pod_that_requests_the_gpu_gets_it(site: Site) -> None:
    site.create_other_pod("plain")
    until(lambda: site.line_times("plain"), "the other pod runs")
    assert len(site.node.frozen()) == 1, "the holder is suspended in place"
    until(lambda: site.reservation() is None, "the agent reports no reservation")
    until(lambda: site.has_reservation_reason("sweep", "WaitingForGPU"), "Podium requests a reservation again")
    until(lambda: site.phases("sweep") == {"Suspended", "Pending"}, "no trial runs")
    # an operator that was too slow to see the preemption knows only that the pod was deleted
    words = ("PreemptionByScheduler", "it was deleted")
    until(
        lambda: any(word in text for text in site.event_messages("ReservationPreempted") for word in words),
        "the event with the cause",
    )
    assert site.runs("plain"), "Podium's reservation preempts no pod"


def test_with_the_reservation_the_trials_resume_without_a_lost_step(site: Site) -> None:
    (pod,) = site.node.frozen()
    holder, before, other = pod.removesuffix("-0"), len(site.node.log_of(pod)), site.line_times("plain")
    site.delete_other_pod("plain")
    until(lambda: site.reservation(), "the reservation is renewed")
    until(lambda: len(steps(site.node, holder)) > before, "the trial resumes")
    written = [when(line) for line in site.node.log_of(pod)]
    assert not [moment for moment in written if other[0] <= moment <= other[-1]], "both ran at the same time"
    found = steps(site.node, holder)
    assert found == list(range(1, len(found) + 1))
    assert site.trials("sweep")[holder].get("attempt", 0) == 0, "the trial is still in the same pod"
    assert site.status("sweep")["lostWork"]["steps"] == 0


def test_the_reservation_ends_with_the_last_search(site: Site) -> None:
    before = len(site.node.log.read_bytes())
    site.node.cluster.kubectl("delete", "hyperparamjob", "sweep", "--wait=true")
    until(lambda: not site.reservation_pods(), "no reservation pod is left", 120)  # one or two grace periods
    until(lambda: site.reservation() is None, "no GPU is reserved")
    until(lambda: not site.node.get("pods", "-l", "podium.dev/trial")["items"], "no trial is left")
    log = site.node.log.read_bytes()[before:]
    assert b"suspend (ReservationEnded)" not in log, "the trial ended before the reservation"


def test_trials_that_cannot_be_suspended_continue_from_a_checkpoint(site: Site) -> None:
    site.job(
        "saves",
        SAVE_AND_STOP,
        trials={"max": 1, "parallel": 1, "maxSteps": 1_000_000},
        suspension={"methods": ["app-checkpoint"], "gracePeriodSeconds": 8},
        checkpoint={"path": "/ckpt", "volume": {"hostPath": {"path": "/var/lib/checkpoints"}}},
    )
    until(lambda: site.phases("saves") == {"Running"}, "the trial runs")
    until(lambda: len(steps(site.node, "saves-0")) > 3, "some steps")
    site.create_other_pod("another")
    until(lambda: site.runs("another"), "the other pod runs")
    until(lambda: site.phases("saves") == {"Requeued"}, "the trial waits")

    def requested_checkpoint() -> int:
        """Return the step of the requested checkpoint.

        Without a request there is only one, after the first step.
        """
        step = int(site.trials("saves")["saves-0"].get("checkpoint", {}).get("step", 0))
        return step if step > 3 else 0

    saved = until(requested_checkpoint, "the requested checkpoint")
    site.delete_other_pod("another")
    until(lambda: site.trials("saves")["saves-0"].get("attempt") == 1, "another attempt")
    until(lambda: site.phases("saves") == {"Running"}, "the trial continues")
    until(lambda: steps(site.node, "saves-0", 1), "further steps")
    assert steps(site.node, "saves-0", 1)[0] == saved + 1, "no step is lost or repeated"
    until(lambda: site.trials("saves")["saves-0"].get("lastStep", 0) > saved, "the steps in its status")
    assert site.trials("saves")["saves-0"].get("lostWork", {}).get("steps", 0) == 0
