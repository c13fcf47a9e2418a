"""Searches of small scripts for the fault tests, checked by container logs, cgroups and the API."""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

SCRIPTS = Path(__file__).with_name("scripts")
LAST = 60
FINAL = ("Succeeded", "Failed", "Refused")
CONTAINERS = ("train", "node")  # that train; the second one is Kubeflow Trainer's name


def chain() -> list[tuple[int, int]]:
    """Return (step, value) of an undisturbed run."""
    points, value = [], 1
    for step in range(1, LAST + 1):
        value = (value * 31 + step) % 65521
        points.append((step, value))
    return points


@dataclass
class TrialLogs:
    """The logs of a job's trials.

    They are kept open, because the kubelet removes the logs of deleted pods.
    """

    site: Any
    job: str
    files: dict[tuple[str, str], TextIO] = field(default_factory=dict)

    def open_new(self) -> None:
        """Open the logs that have appeared since the last call: of worker 0, whose pod Podium or a Job creates."""
        trial_and_attempt = re.compile(rf"({re.escape(self.job)}-\d+)-(\d+)(?:-[a-z]+-0-0-\w{{5}})?")
        for path in self.site.cluster.logs.glob(f"node-*/pods/default_{self.job}-*/*/0.log"):
            name = trial_and_attempt.fullmatch(path.parts[-3].split("_")[1])
            if name is not None and path.parts[-2] in CONTAINERS and (key := (name[1], name[2])) not in self.files:
                self.files[key] = path.open(encoding="utf-8")

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def printed(self, trial: str, metric: str = "loss") -> dict[int, list[tuple[int, float]]]:
        """Return the printed (step, value) of each attempt that printed any."""
        found = {}
        for (name, attempt), file in self.files.items():
            file.seek(0)
            points = self.site.evidence.printed(file.read(), metric, "epoch") if name == trial else []
            if points:
                found[int(attempt)] = points
        return dict(sorted(found.items()))


@dataclass
class Scene:
    """Searches on the cluster, and the checks of their results."""

    site: Any
    trial_logs: dict[str, TrialLogs] = field(default_factory=dict)
    deleting: list[str] = field(default_factory=list)  # jobs whose deletion may not be complete

    def apply(self, manifest: dict[str, Any]) -> None:
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def search(
        self,
        name: str,
        mode: str = "steady",
        trials: int = 4,
        seconds: float = 0.2,
        cpu: str = "50m",
        steps: int = LAST,
        cordoned: bool = False,
        **spec: Any,
    ) -> TrialLogs:
        """Start a search with `trials` trials in parallel, each of `LAST` steps of `seconds`.

        `mode` is that of scripts/steady.py. `steps` is the job's maxSteps. With `cordoned` a node accepts no pods on
        purpose. `spec` changes the spec of the job.
        """
        manifest: dict[str, Any] = self.site.example(name)
        manifest["spec"] |= {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "seed", "type": "int", "min": 1, "max": 99}],
            "trials": {"max": trials, "parallel": trials, "maxSteps": steps, "maxFailed": trials},
            "policy": {"name": "round_robin", "settings": {"quantum": 2}},
            "gpus": {"perTrial": 1},
            "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 10},
            "checkpoint": {"path": "/ckpt", "volume": {"claimName": "shared"}},
            **spec,
        }
        pod = manifest["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "scripts", "configMap": {"name": "fault-scripts"}}]
        container = pod["containers"][0]
        container["command"] = ["python3", "/scripts/steady.py", mode, str(seconds)]
        container["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
        container["resources"] = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
        if not cordoned:
            self.site.until("every node accepts pods", self.nodes_accept_pods, 120)
        return self.start(manifest)

    def start(self, manifest: dict[str, Any]) -> TrialLogs:
        """Start a search, which is deleted at the end of the test at the latest."""
        name = manifest["metadata"]["name"]
        self.apply(manifest)
        self.trial_logs[name] = TrialLogs(self.site, name)
        return self.trial_logs[name]

    def nodes_accept_pods(self) -> bool:
        """Return whether all nodes accept pods; after a fault a node may be tainted or lack its slots."""
        return all(
            not node["spec"].get("taints") and int(node["status"]["allocatable"].get("podium.dev/gpu", "0")) > 0
            for node in self.site.objects("nodes")
        )

    def phase(self, name: str) -> str:
        return str(self.site.job(name).get("status", {}).get("phase", ""))

    def until(self, logs: TrialLogs, what: str, condition: Any, seconds: float) -> Any:
        def checked() -> Any:
            logs.open_new()
            return condition()

        return self.site.until(f"{logs.job}: {what}", checked, seconds)

    def wait_for_end(self, logs: TrialLogs, seconds: float = 240) -> dict[str, Any]:
        self.until(logs, "ended", lambda: self.phase(logs.job) in FINAL, seconds)
        found: dict[str, Any] = self.site.job(logs.job)
        return found

    def trials(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
        return found

    def pods(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.objects("pods", "-l", f"podium.dev/job={name}")
        return found

    def suspensions(self, name: str) -> int:
        return sum(trial.get("status", {}).get("suspensions", {}).get("count", 0) for trial in self.trials(name))

    def in_phase(self, name: str, phase: str) -> dict[str, Any] | None:
        """Return the pod of a trial that is in this phase now."""
        names = {t["status"]["pod"] for t in self.trials(name) if t.get("status", {}).get("phase") == phase}
        return next((pod for pod in self.pods(name) if pod["metadata"]["name"] in names), None)

    def folder(self, name: str, trial: str) -> Path:
        """Return the trial's checkpoint folder on the volume that all nodes share."""
        uid = self.site.job(name)["metadata"]["uid"][:8]
        path: Path = next(self.site.cluster.paths.shared.glob(f"*-{name}-{uid}/{trial}-*"))
        return path

    def release(self, name: str) -> None:
        """Let the trials of the modes `held` and `deaf` continue to their end. Each must have trained already."""
        for trial in self.trials(name):
            (self.folder(name, trial["metadata"]["name"]) / "go").touch()

    def freezer(self, pod: dict[str, Any]) -> Path:
        """Return the cgroup of a pod's main container, which the agent freezes."""
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        walked = (Path(place) for root in self.site.cgroup_roots() for place, _, _ in os.walk(root))
        found = (folder for folder in walked if container in folder.name)
        return next(folder for folder in found if any((folder / file).exists() for file in self.site.evidence.THAWED))

    def finish(self, *names: str) -> None:
        """Delete searches without waiting: the operator takes seconds to remove their folders."""
        for name in names:
            self.trial_logs.pop(name).close()
        self.site.kubectl("delete", "hyperparamjob", *names, "--wait=false")
        self.deleting += names

    def wait_until_deleted(self) -> None:
        self.site.until(
            f"{', '.join(self.deleting)} deleted",
            lambda: not {job["metadata"]["name"] for job in self.site.objects("hyperparamjobs")} & set(self.deleting),
            90,
        )
        self.deleting.clear()

    def check_results(self, logs: TrialLogs, exact: bool = True) -> int:
        """Check that all trials have correct values and report their lost work; return all lost steps."""
        right, total = dict(chain()), 0.0
        # a trial whose pod ended during an outage may succeed before its agent has reported everything
        self.site.until(
            f"{logs.job}: the final reports",
            lambda: all(self.last_step(trial) == LAST for trial in self.trials(logs.job)),
            90,
        )
        for trial in self.trials(logs.job):
            name, status = trial["metadata"]["name"], trial["status"]
            assert status["phase"] == "Succeeded", f"{name}: {status}"
            assert status["lastStep"] == LAST
            assert all(right[int(p["step"])] == p["value"] for p in status["curve"]["points"]), name
            attempts = logs.printed(name)
            lost = 0
            for points in attempts.values():
                steps = [step for step, _ in points]
                assert steps == list(range(steps[0], steps[-1] + 1)), f"{name}: {steps}"
                assert all(right[step] == value for step, value in points), name
            ordered = list(attempts.values())
            for before, after in itertools.pairwise(ordered):
                lost += before[-1][0] - (after[0][0] - 1)
            reported = status.get("lostWork", {}).get("steps", 0)
            if exact:
                assert reported == lost, f"{name} lost {lost} steps by its logs, {reported} by its status"
            total += reported
        assert self.site.job(logs.job)["status"].get("lostWork", {}).get("steps", 0) == total
        return int(total)

    def check_no_leaks(self, name: str) -> None:
        """Check that after the search nothing is frozen, no pod runs and every slot is free."""
        self.site.until(f"{name}: nothing is frozen", lambda: not self.site.frozen(), 90)
        self.site.until(
            f"{name}: no pod is alive",  # a busy kubelet reports the end of a pod late
            lambda: not [pod for pod in self.pods(name) if pod["status"]["phase"] in ("Running", "Pending")],
            90,
        )
        self.site.until(
            f"{name}: all slots are free",
            lambda: all(
                not gpu.get("trials") for node in self.site.objects("gpunodes") for gpu in node["status"]["gpus"]
            ),
            90,
        )

    @staticmethod
    def last_step(trial: dict[str, Any]) -> float:
        return float(trial.get("status", {}).get("lastStep", 0))

    def kill(self, program: str, pods: str) -> int:
        """Send SIGKILL and replace the pods; return the number of processes.

        The kubelet would restart the old pod's container with growing delays.
        """
        killed: int = self.site.kill_program(program)
        component = f"app.kubernetes.io/component={pods}"
        arguments = ("delete", "pod", "-n", "podium-system", "-l", component, "--force", "--grace-period=0")
        self.site.kubectl(*arguments)
        return killed


def set_up(site: Any) -> Scene:
    """Create the scripts and a volume that all nodes share (/shared of the development cluster)."""
    texts = {path.name: path.read_text() for path in SCRIPTS.glob("*.py")}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fault-scripts"}, "data": texts}
    volume_spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {**volume_spec, "hostPath": {"path": "/shared"}, "persistentVolumeReclaimPolicy": "Retain"},
    }
    claim_spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared", "volumeName": "shared"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {**claim_spec, "resources": {"requests": {"storage": "1Gi"}}},
    }
    site.cluster.paths.shared.chmod(0o777)
    for manifest in (config, volume, claim):
        site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    site.kubectl("wait", "pvc/shared", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", timeout=70)
    return Scene(site)
