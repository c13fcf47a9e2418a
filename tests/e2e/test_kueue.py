"""GPU reservations over NVIDIA's device plugin with the real Kueue: quota, preemption, and plain pods beside it.

The file has a one-node cluster of its own. Each test continues from the state of the previous one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_cli.main import run
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import controllers, nvidia
from podium_devcluster.runtime.apiserver import ApiClient

nvidia_cluster = load(Path(__file__).with_name("nvidia_cluster.py"))
pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
NODE, STATE = nvidia_cluster.NODE, nvidia_cluster.STATE
GPUS, ROUNDS = 2, 5
QUEUE, CLUSTER_QUEUE, FLAVOR, URGENT = "research", "all-gpus", "gpu", "urgent"
CHECKPOINT, COST = "podium.dev/last-checkpoint", "podium.dev/preemption-cost"
BOOST = "kueue.x-k8s.io/priority-boost"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
GATE = "kueue.x-k8s.io/admission"
VALUES = (
    *("--set=gpus.mode=reservations", f"--set=gpus.reservations.max={GPUS}", f"--set=gpus.reservations.queue={QUEUE}"),
    *("--set=gpus.reservations.priorityBoost=true", "--set=agent.slotsPerGPU=2"),
)
SUSPENDS = {"methods": ["cuda-checkpoint", "app-checkpoint"], "gracePeriodSeconds": 10}
SAVES = {"methods": ["app-checkpoint"], "gracePeriodSeconds": 10}
STEP = 3.0  # seconds: no trial reaches the step at which it waits for its release before the last round


def queues(gpus: int) -> list[dict[str, Any]]:
    """Return Kueue's objects: a ClusterQueue with this number of GPUs, of one flavor, and a LocalQueue."""
    quota = {"cpu": "100", "memory": "1Ti", nvidia.RESOURCE: str(gpus)}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": FLAVOR, "resources": resources}]}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
    }
    made = [
        ("ResourceFlavor", FLAVOR, {"spec": {}}),
        ("ClusterQueue", CLUSTER_QUEUE, {"spec": spec}),
        ("LocalQueue", QUEUE, {"spec": {"clusterQueue": CLUSTER_QUEUE}}),
        ("WorkloadPriorityClass", URGENT, {"value": 1000}),
    ]
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": name} | ({"namespace": "default"} if kind == "LocalQueue" else {}),
            **body,
        }
        for kind, name, body in made
    ]


def worker(steps: int) -> dict[str, Any]:
    """Return the pod template of a plain pod that works on a GPU."""
    container = {
        "name": "main",
        "image": "localhost/podium-digits:dev",
        "command": ["python3", "/scripts/devices.py", str(steps), "0.1"],
        "resources": {"requests": {"cpu": "10m"}, "limits": {nvidia.RESOURCE: "1"}},
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}, {"name": "state", "mountPath": STATE}],
    }
    volumes = [
        {"name": "scripts", "configMap": {"name": "device-scripts"}},
        {"name": "state", "hostPath": {"path": STATE, "type": "Directory"}},
    ]
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}}


LEFT_TO_KUEUE = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": URGENT},
    "value": 0,
    "preemptionPolicy": "Never",
}


@dataclass
class Stage:
    """The cluster, and what the tests observe there."""

    site: Any
    scene: Any
    api: ApiClient
    marks: dict[str, list[str]] = field(default_factory=dict)  # times of the last checkpoint, by uid of the pod

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def urgent_job(self, name: str) -> None:
        """Create a Job in the queue whose priority is above that of reservations.

        Its pods leave preemption to Kueue. Otherwise the scheduler preempts another reservation, if its pod sees no
        free GPU while the one that Kueue preempted is still ending.
        """
        labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": URGENT}
        template = worker(30)
        template["spec"] |= {"restartPolicy": "Never", "priorityClassName": URGENT}
        spec = {"suspend": True, "backoffLimit": 0, "template": template}
        self.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
        )

    def has_node(self, job: str) -> bool:
        return any(pod["spec"].get("nodeName") for pod in self.site.objects("pods", "-l", f"job-name={job}"))

    def complete(self, job: str) -> bool:
        path = f"/apis/batch/v1/namespaces/default/jobs/{job}"
        return bool(self.read(path).get("status", {}).get("succeeded"))

    def read(self, path: str) -> dict[str, Any]:
        """Return the answer of the API server to a GET request."""
        status, body = self.api.get(path, timeout=30.0)
        assert status == 200, f"GET {path}: {status} {body}"
        answer: dict[str, Any] = json.loads(body)
        return answer

    def reservations(self) -> list[dict[str, Any]]:
        """Return the reservation pods that are not being deleted."""
        found = self.site.objects("pods", "-l", "podium.dev/gpu-reservation")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def held(self) -> set[str]:
        """Return the reservation pods that hold a GPU, as the agent reports them."""
        (node,) = self.site.objects("gpunodes")
        return {gpu["reservation"] for gpu in node["status"]["gpus"] if gpu.get("reservation")}

    def usage(self) -> int:
        """Return the GPUs that Kueue counts as used."""
        flavors = self.read(f"{KUEUE}/clusterqueues/{CLUSTER_QUEUE}")["status"].get("flavorsUsage", [])
        used = [one["total"] for flavor in flavors for one in flavor["resources"] if one["name"] == nvidia.RESOURCE]
        return sum(map(int, used))

    def condition(self, job: str) -> dict[str, Any]:
        conditions = self.site.job(job).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == "GPUsReserved"), {})

    def steps(self, *jobs: str) -> dict[str, float]:
        return {
            trial["metadata"]["name"]: self.scene.last_step(trial) for job in jobs for trial in self.scene.trials(job)
        }

    def observe(self) -> Any:
        """Note what is seen for a moment only: logs, checkpoints, and that no GPU has the memory of two pods."""
        for logs in self.scene.trial_logs.values():
            logs.open_new()
        for pod in self.site.objects("pods", "-l", "podium.dev/gpu-reservation"):
            mark = pod["metadata"].get("annotations", {}).get(CHECKPOINT)
            known = self.marks.setdefault(pod["metadata"]["uid"], [])
            if mark and mark not in known:
                known.append(mark)
        for gpu, pids in self.site.driver(NODE).on_gpus().items():
            containers = {container for pid in pids if (container := container_of(pid))}
            assert len(containers) <= 1, f"GPU {gpu} has the memory of {containers}"
        return self.site

    def until(self, what: str, condition: Callable[[], Any], seconds: float = 240) -> Any:
        return self.site.until(what, lambda: (self.observe(), condition())[1], seconds)

    def end(self, *jobs: str) -> None:
        """Let each trial continue to its end as soon as it has trained, and check that none lost a step."""

        def ended() -> bool:
            for job in jobs:
                for trial, step in self.steps(job).items():
                    if step > 0:
                        (self.scene.folder(job, trial) / "go").touch()
            return all(self.scene.phase(job) in ("Succeeded", "Failed") for job in jobs)

        self.until(f"{', '.join(jobs)} end", ended, 400)
        for job in jobs:
            assert self.scene.phase(job) == "Succeeded"
            logs = self.scene.trial_logs.pop(job)
            assert self.scene.check_results(logs) == 0, "no step is lost"
            logs.close()

    def until_trials_work(self, jobs: tuple[str, ...], before: dict[str, float]) -> None:
        """Wait until both GPUs are reserved again, and trials on both of them have made steps."""
        self.until("both GPUs are reserved", lambda: len(self.held()) == GPUS)
        self.until(
            "trials continue",
            lambda: sum(step > before.get(trial, 0.0) for trial, step in self.steps(*jobs).items()) >= GPUS,
        )


def gated(pod: dict[str, Any]) -> bool:
    """Return whether Kueue has not admitted the pod yet."""
    return GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def container_of(pid: int) -> str:
    """Return the container of a process; empty if it has ended."""
    try:
        found = re.search(r"[0-9a-f]{64}", Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return ""
    return found[0] if found else ""


def first_line(log: str) -> float:
    """Return the time of the first line of a container's log."""
    stamp = log.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp()


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Any]) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    with nvidia_cluster.cluster_with_toolkit("kueue", GPUS) as cluster:
        nvidia.start_plugin(cluster)
        controllers.KUEUE.install(cluster)
        site = site_of(cluster)
        chart = [site.place.tool("helm"), "install", "podium", str(ROOT / "charts/podium")]
        options = ["-n", "podium-system", "--create-namespace", "--wait", "--timeout=240s"]
        site.demo.call(site.place, [*chart, *nvidia.CHART_VALUES, *VALUES, *options], 260, quiet=True)
        scene = load(Path(__file__).with_name("scene.py")).set_up(site)
        yield Stage(site, scene, ApiClient(cluster.spec.port, cluster.paths.pki))


def test_reservations_wait_for_quota_and_are_counted(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two reservations one has quota; the other is gated until the ClusterQueue has a second GPU."""
    stage.apply(LEFT_TO_KUEUE, *queues(1))
    spec = {"seconds": STEP, "trials": 2, "cordoned": True, "gpus": {"perTrial": 1, "memory": "64Mi"}}
    stage.scene.search("moves", "held", suspension=SUSPENDS, **spec)
    stage.scene.search("saves", "held", suspension=SAVES, **spec)
    stage.until("one GPU is reserved", lambda: len(stage.held()) == 1)
    stage.until("Kueue counts it", lambda: stage.usage() == 1)
    stage.until("the other one is gated", lambda: sorted(map(gated, stage.reservations())) == [False, True])
    assert {pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for pod in stage.reservations()} == {QUEUE}

    def explained() -> bool:
        found = stage.condition("moves")
        return found.get("reason") == "WaitingForGPU" and f"LocalQueue {QUEUE} has no quota left" in found["message"]

    stage.until("the job says which queue has no quota", explained)
    run(["doctor", "-o", "json", "--kubeconfig", str(stage.site.cluster.kubeconfig)])
    (queue,) = [one for one in json.loads(capsys.readouterr().out)["items"] if one["check"] == "KueueQueue"]
    assert (queue["result"], queue["where"]) == ("ok", f"LocalQueue default/{QUEUE}")
    stage.apply(*queues(GPUS))
    stage.until("both GPUs are reserved", lambda: len(stage.held()) == GPUS)
    stage.until("Kueue counts both", lambda: stage.usage() == GPUS)
    stage.until("the condition is true", lambda: stage.condition("moves").get("status") == "True")


def test_jobs_of_kueue_and_plain_pods_take_gpus_and_give_them_back(stage: Stage) -> None:
    jobs = ("moves", "saves")
    labels = {"app": "plain"}
    template = {"metadata": {"labels": labels}, **worker(100_000)}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    stage.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain"}, "spec": spec})
    waits = []
    for number in range(ROUNDS):
        stage.until_trials_work(jobs, stage.steps(*jobs) if number else dict.fromkeys(stage.steps(*jobs), 0.0))
        stage.urgent_job(f"urgent-{number}")
        # else the plain pod may take the GPU that Kueue has freed for the Job, whose pods may not preempt another one
        stage.until("the Job's pod has a node", partial(stage.has_node, f"urgent-{number}"))
        created = time.time()
        stage.site.kubectl("scale", "deployment/plain", "--replicas=1")

        def started() -> float | None:
            for pod in stage.site.objects("pods", "-l", "app=plain"):
                if pod["status"]["phase"] == "Running" and (log := stage.site.log_of(pod, "main")):
                    return first_line(log)
            return None

        waits.append(stage.until("the plain pod works", started) - created)
        stage.until("the Job of Kueue has ended", partial(stage.complete, f"urgent-{number}"))
        stage.site.kubectl("scale", "deployment/plain", "--replicas=0")
    print(f"\nfrom the plain pod's creation to its start: {', '.join(f'{one:.1f}' for one in waits)} s")
    before = stage.steps(*jobs)
    stage.until_trials_work(jobs, before)
    stage.end(*jobs)
    work = list(stage.site.evidence.work_of(nvidia_cluster.work_log(stage.site.cluster)))
    assert stage.site.evidence.overlaps(work) == []
    assert len({one.gpu for one in work}) == GPUS
    causes = [event["message"] for event in stage.site.objects("events") if event["reason"] == "ReservationPreempted"]
    assert any("StoppedByKueue" in cause or "WorkloadEvicted" in cause for cause in causes), causes


def test_reservations_say_when_their_trials_last_checkpointed(stage: Stage) -> None:
    """As it was seen meanwhile: every reservation that had trials for a while, and later ones a later time."""
    marks = [datetime.fromisoformat(mark) for pod in stage.marks.values() for mark in pod]
    assert len(marks) > GPUS
    assert max(marks) > min(marks)


def test_kueue_preempts_the_reservation_that_costs_least(stage: Stage) -> None:
    """Without the boost Kueue would take the newer of the two reservations."""
    large = {"perTrial": 1, "memory": "13Gi"}  # two of them do not fit on one GPU
    spec = {"trials": 1, "cordoned": True, "gpus": large}
    stage.scene.search("cheap", "held", seconds=STEP, suspension=SUSPENDS, **spec)
    stage.until("the cheap one trains", lambda: any(stage.steps("cheap").values()))
    (cheap,) = stage.held()
    stage.scene.search("dear", "held", seconds=6.0, suspension=SAVES, **spec)
    stage.until("both GPUs are reserved", lambda: len(stage.held()) == GPUS)
    (dear,) = stage.held() - {cheap}

    def workloads() -> dict[str, str]:
        """Return the boosts of Kueue's Workloads by reservation."""
        return {
            f"default/{owner['name']}": workload["metadata"].get("annotations", {}).get(BOOST, "0")
            for workload in stage.read(f"{KUEUE}/namespaces/default/workloads")["items"]
            for owner in workload["metadata"].get("ownerReferences", [])
        }

    stage.until("the dear one has a boost", lambda: workloads().get(dear) == "1")
    assert workloads()[cheap] == "0"
    pods = {f"default/{pod['metadata']['name']}": pod["metadata"] for pod in stage.reservations()}
    costs = {name: int(meta["annotations"][COST]) for name, meta in pods.items()}
    assert costs[cheap] == 0 < costs[dear], "the trial of the cheap one is suspended with its memory"
    stage.urgent_job("last")
    stage.until("the Job of Kueue has ended", lambda: stage.complete("last"))
    there = {pod["metadata"]["uid"] for pod in stage.reservations()}
    assert pods[dear]["uid"] in there
    assert pods[cheap]["uid"] not in there
    stage.until("its GPU is reserved again", lambda: len(stage.held()) == GPUS)
    stage.end("cheap", "dear")
