"""Searches of small scripts for the fault tests, judged by containerd's logs, the cgroups, the API."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

SCRIPTS = Path(__file__).with_name("scripts")
LAST = 60
FINAL = ("Succeeded", "Failed", "Refused")


def chain() -> list[tuple[int, int]]:
    """(step, value) of a run that nobody disturbed."""
    points, value = [], 1
    for step in range(1, LAST + 1):
        value = (value * 31 + step) % 65521
        points.append((step, value))
    return points


@dataclass
class Witness:
    """Opens every trial's log as soon as it is there and keeps it: the kubelet removes a gone pod's logs."""

    site: Any
    job: str
    files: dict[tuple[str, str], TextIO] = field(default_factory=dict)

    def look(self) -> None:
        for path in self.site.cluster.logs.glob(f"node-*/pods/default_{self.job}-*/train/0.log"):
            trial, _, attempt = path.parts[-3].split("_")[1].rpartition("-")
            if (trial, attempt) not in self.files:
                self.files[trial, attempt] = path.open(encoding="utf-8")

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def printed(self, trial: str, metric: str = "loss") -> dict[int, list[tuple[int, float]]]:
        """attempt > (step, value) in the order printed, of attempts that printed anything."""
        found = {}
        for (name, attempt), file in self.files.items():
            file.seek(0)
            points = self.site.evidence.printed(file.read(), metric, "epoch") if name == trial else []
            if points:
                found[int(attempt)] = points
        return dict(sorted(found.items()))


@dataclass
class Scene:
    site: Any
    witnesses: dict[str, Witness] = field(default_factory=dict)
    going: list[str] = field(default_factory=list)  # jobs that are deleted, perhaps not quite gone yet

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
    ) -> Witness:
        """A search of so many trials at once, of `LAST` steps of so many seconds each. `steps`: its maxSteps;
        `cordoned`: some node takes no pods, on purpose.
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
            self.site.until("every node takes pods", self.nodes_take_pods, 120)
        self.apply(manifest)
        self.witnesses[name] = Witness(self.site, name)
        return self.witnesses[name]

    def nodes_take_pods(self) -> bool:
        """After an accident the controllers may hold a node back for a while; a kubelet tells of its shares late."""
        return all(
            not node["spec"].get("taints") and int(node["status"]["allocatable"].get("podium.dev/gpu", "0")) > 0
            for node in self.site.objects("nodes")
        )

    def phase(self, name: str) -> str:
        return str(self.site.job(name).get("status", {}).get("phase", ""))

    def until(self, witness: Witness, what: str, condition: Any, seconds: float) -> Any:
        def looked() -> Any:
            witness.look()
            return condition()

        return self.site.until(f"{witness.job}: {what}", looked, seconds)

    def until_over(self, witness: Witness, seconds: float = 240) -> dict[str, Any]:
        self.until(witness, "over", lambda: self.phase(witness.job) in FINAL, seconds)
        found: dict[str, Any] = self.site.job(witness.job)
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
        """The pod of a trial that stands there now."""
        names = {t["status"]["pod"] for t in self.trials(name) if t.get("status", {}).get("phase") == phase}
        return next((pod for pod in self.pods(name) if pod["metadata"]["name"] in names), None)

    def folder(self, name: str, trial: str) -> Path:
        """The trial's folder on the volume that all nodes share."""
        uid = self.site.job(name)["metadata"]["uid"][:8]
        path: Path = next(self.site.cluster.paths.shared.glob(f"*-{name}-{uid}/{trial}-*"))
        return path

    def let_go(self, name: str) -> None:
        """Trials of the mode `held` may end from now on; each has trained already."""
        for trial in self.trials(name):
            (self.folder(name, trial["metadata"]["name"]) / "go").touch()

    def freezer(self, pod: dict[str, Any]) -> Path:
        """The cgroup of a pod's main container that the agent freezes."""
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        found = (f for root in self.site.cgroup_roots() for f in root.glob(f"**/*{container}*") if f.is_dir())
        return next(folder for folder in found if any((folder / file).exists() for file in self.site.evidence.THAWED))

    def finish(self, *names: str) -> None:
        """They go beside what comes next: each takes the operator seconds, for its folders go with it."""
        for name in names:
            self.witnesses.pop(name).close()
        self.site.kubectl("delete", "hyperparamjob", *names, "--wait=false")
        self.going += names

    def all_gone(self) -> None:
        self.site.until(
            f"{', '.join(self.going)} gone",
            lambda: not {job["metadata"]["name"] for job in self.site.objects("hyperparamjobs")} & set(self.going),
            90,
        )
        self.going.clear()

    def judge(self, witness: Witness, exact: bool = True) -> int:
        """Every trial has the values of an undisturbed run, and lost what its status says; the steps lost in all."""
        right, total = dict(chain()), 0.0
        # whose pod ended while nobody could be told is over before its agent has said all
        self.site.until(
            f"{witness.job}: the agents' last words",
            lambda: all(self.last_step(trial) == LAST for trial in self.trials(witness.job)),
            90,
        )
        for trial in self.trials(witness.job):
            name, status = trial["metadata"]["name"], trial["status"]
            assert status["phase"] == "Succeeded", f"{name}: {status}"
            assert status["lastStep"] == LAST
            assert all(right[int(p["step"])] == p["value"] for p in status["curve"]["points"]), name
            attempts = witness.printed(name)
            lost = 0
            for points in attempts.values():
                steps = [step for step, _ in points]
                assert steps == list(range(steps[0], steps[-1] + 1)), f"{name}: {steps}"
                assert all(right[step] == value for step, value in points), name
            ordered = list(attempts.values())
            for before, after in itertools.pairwise(ordered):
                lost += before[-1][0] - (after[0][0] - 1)
            said = status.get("lostWork", {}).get("steps", 0)
            if exact:
                assert said == lost, f"{name} lost {lost} steps by its logs, {said} by its status"
            total += said
        assert self.site.job(witness.job)["status"].get("lostWork", {}).get("steps", 0) == total
        return int(total)

    def nothing_leaks(self, name: str) -> None:
        """After the search: nothing frozen, no pod that works, every share free."""
        self.site.until(f"{name}: nothing is frozen", lambda: not self.site.frozen(), 90)
        self.site.until(
            f"{name}: no pod is alive",  # a busy kubelet tells late that one has ended
            lambda: not [pod for pod in self.pods(name) if pod["status"]["phase"] in ("Running", "Pending")],
            90,
        )
        self.site.until(
            f"{name}: all shares are free",
            lambda: all(
                not gpu.get("trials") for node in self.site.objects("gpunodes") for gpu in node["status"]["gpus"]
            ),
            90,
        )

    @staticmethod
    def last_step(trial: dict[str, Any]) -> float:
        return float(trial.get("status", {}).get("lastStep", 0))

    def kill(self, program: str, pods: str) -> int:
        """SIGKILL, then a new pod at once: the kubelet would start the old one's container ever later."""
        killed: int = self.site.kill_program(program)
        component = f"app.kubernetes.io/component={pods}"
        arguments = ("delete", "pod", "-n", "podium-system", "-l", component, "--force", "--grace-period=0")
        self.site.kubectl(*arguments)
        return killed


def set_up(site: Any) -> Scene:
    """Scripts, and a volume that all nodes share (/shared of the dev cluster)."""
    texts = {path.name: path.read_text() for path in SCRIPTS.glob("*.py")}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fault-scripts"}, "data": texts}
    room = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {**room, "hostPath": {"path": "/shared"}, "persistentVolumeReclaimPolicy": "Retain"},
    }
    wish = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared", "volumeName": "shared"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {**wish, "resources": {"requests": {"storage": "1Gi"}}},
    }
    site.cluster.paths.shared.chmod(0o777)
    for manifest in (config, volume, claim):
        site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    site.kubectl("wait", "pvc/shared", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", timeout=70)
    return Scene(site)
