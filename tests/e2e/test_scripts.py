"""Effects of Podium on scripts (docs/how-to/make-a-script-robust.md): a suspension, then the deletion of the pod.

Two scripts run at a time, each on its own node and GPU. The checks use the record that the script keeps beside its
checkpoints, containerd's logs, the states of the cgroups, and the peer to which the script connects.
"""

from __future__ import annotations

import ast
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import pytest
from script_modules import load

pytestmark = pytest.mark.e2e
SCRIPTS = Path(__file__).with_name("scripts")
LAST = 60
HELD_AT = 53  # the first attempt stops at this step (scripts/steps.py)
PAUSE = 4.0  # seconds of a suspension: longer than the timeout of the peer
IMAGE = "localhost/podium-digits:dev"
VOLUME = "var/lib/podium-digits"  # the volume of the example's job, on the nodes
NODES = ("node-1", "node-2")
OVERRIDES: dict[str, dict[str, Any]] = {  # changes to the spec of a script's job
    "trainer_dicts": {"metrics": {"source": "stdout", "format": "huggingface", "stepKey": "epoch"}},
    "ignores_sigterm": {"suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 3}},
}
RunScript = Callable[[str], "Story"]


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the script's record. `at` is the monotonic time and `cpu` the CPU time, both in seconds."""

    attempt: int
    step: int
    value: int
    at: float
    cpu: float


@dataclass
class Story:
    """The record of a trial that was frozen from `frozen_at` to `thawed_at` and later lost its pod."""

    job: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    before: list[Step] = field(default_factory=list)  # the steps before it was frozen
    log_when_frozen: str = ""
    logs: list[str] = field(default_factory=list)  # the whole log of each attempt
    frozen_at: float = 0.0
    thawed_at: float = 0.0
    files: set[str] = field(default_factory=set)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.trial["status"]
        return status

    def of(self, attempt: int) -> list[Step]:
        return [step for step in self.steps if step.attempt == attempt]


@dataclass
class Stage:
    """The scripts in the cluster, and the peer to which some of them connect."""

    site: Any
    peer: dict[str, Any]

    def apply(self, manifest: dict[str, Any]) -> None:
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def heard(self, trial: str = "") -> list[dict[str, Any]]:
        """Return the rows that the peer printed for a trial, whose lines begin with its name."""
        lines = [text.split(" ", 3)[-1] for text in self.site.log_of(self.peer, "peer").splitlines()]
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [row for row in rows if row.get("line", "").startswith(trial)]

    def job(self, script: str, node: str) -> dict[str, Any]:
        manifest: dict[str, Any] = self.site.example(script.replace("_", "-"))
        manifest["spec"] |= {
            "objective": {"metric": "loss", "direction": "minimize"},
            "parameters": [{"name": "seed", "type": "int", "min": 1, "max": 9}],
            "trials": {"max": 1, "parallel": 1, "maxSteps": LAST},
            "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 20},
            **OVERRIDES.get(script, {}),
        }
        pod = manifest["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
        container = pod["containers"][0]
        container["command"] = ["python3", f"/scripts/{script}.py"]
        container["env"] = [{"name": "PEER", "value": self.peer["status"]["podIP"]}]
        container["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
        return manifest

    def folder(self, job: str) -> Path | None:
        """Return the trial's folder on the node.

        Its name contains the job's UID, because job names are reused.
        """
        uid = self.site.job(job)["metadata"]["uid"][:8]
        nodes = [self.site.cluster.node_root(node) / VOLUME for node in NODES]
        return next((path for node in nodes for path in node.glob(f"*-{job}-{uid}/{job}-0-*")), None)

    def pods(self, job: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.site.objects("pods", "-l", f"podium.dev/job={job}")
        return pods

    def steps(self, job: str) -> list[Step]:
        folder = self.folder(job)
        if folder is None or not (folder / "steps.txt").exists():
            return []
        rows = [line.split() for line in (folder / "steps.txt").read_text().splitlines()]
        return [Step(int(a), int(s), int(v), float(at), float(cpu)) for a, s, v, at, cpu in rows]

    def trial(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.site.get("hyperparamtrial", f"{job}-0")
        return found

    def log(self, pod: dict[str, Any]) -> TextIO:
        """Open the log of a pod. It must remain open, because the kubelet removes the logs of deleted pods."""
        meta = pod["metadata"]
        folder = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        path: Path = self.site.cluster.logs / pod["spec"]["nodeName"] / "pods" / folder / "train" / "0.log"
        return path.open(encoding="utf-8", newline="")  # keeps carriage returns

    def suspend(self, job: str, wanted: bool) -> None:
        patch = json.dumps({"spec": {"suspend": wanted}})
        self.site.kubectl("patch", "hyperparamtrial", f"{job}-0", "--type=merge", "-p", patch)

    def frozen(self, pod: dict[str, Any]) -> bool:
        uid = pod["metadata"]["uid"]
        return any(uid in str(path).replace("_", "-") for path in self.site.frozen())

    def run(self, script: str, node: str) -> Story:
        """Run a script with a suspension and a deletion of its pod; return its record."""
        manifest = self.job(script, node)
        job = manifest["metadata"]["name"]
        story = Story()
        self.apply(manifest)
        try:
            self.site.until(f"{job}: 7 steps", lambda: len(self.steps(job)) >= 7, 120)
            (pod,) = self.pods(job)
            with self.log(pod) as log:
                self._freeze(job, pod, story)
                done = len(story.before)
                self.site.until(f"{job}: 6 more steps", lambda: len(self.steps(job)) >= min(done + 6, HELD_AT), 60)
                self.site.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
                self.site.until(f"{job}: a new attempt makes steps", lambda: self._attempts(job) == {0, 1}, 120)
                story.logs.append(log.read())
            story.job = self.site.until(f"{job}: ended", lambda: self._ended(job), 120)
            story.trial, story.steps = self.trial(job), self.steps(job)
            (last,) = [pod for pod in self.pods(job) if pod["metadata"]["labels"]["podium.dev/attempt"] == "1"]
            with self.log(last) as log:
                story.logs.append(log.read())
            folder = self.folder(job)
            assert folder is not None
            story.files = {path.name for path in folder.iterdir()}
        finally:
            self.site.kubectl("delete", "hyperparamjob", job, "--timeout=60s", timeout=70)
        return story

    def _freeze(self, job: str, pod: dict[str, Any], story: Story) -> None:
        self.suspend(job, True)
        self.site.until(f"{job}: frozen", lambda: self.frozen(pod), 30)
        story.frozen_at = time.monotonic()
        story.before = self.steps(job)
        time.sleep(PAUSE)  # nothing may happen during this time
        story.log_when_frozen = self.site.log_of(pod, "train")
        assert self.frozen(pod)
        story.thawed_at = time.monotonic()
        self.suspend(job, False)
        self.site.until(f"{job}: thawed", lambda: not self.frozen(pod), 30)

    def _attempts(self, job: str) -> set[int]:
        return {step.attempt for step in self.steps(job)}

    def _ended(self, job: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self.site.job(job)
        return found if found["status"]["phase"] in ("Succeeded", "Failed", "Refused") else None


@pytest.fixture(scope="module")
def run_script(stage: Stage, request: pytest.FixtureRequest) -> Iterator[RunScript]:
    """A function that returns the record of a script.

    The scripts of all selected tests run as nodes are free.
    """
    nodes: SimpleQueue[str] = SimpleQueue()
    for node in NODES:
        nodes.put(node)

    def run_on_free_node(script: str) -> Story:
        node = nodes.get()
        try:
            return stage.run(script, node)
        finally:
            nodes.put(node)

    here = [item.name.removeprefix("test_") for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(len(NODES)) as pool:
        stories: dict[str, Future[Story]] = {script: pool.submit(run_on_free_node, script) for script in here}
        yield lambda script: stories[script].result()
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def stage(site: Any) -> Iterator[Stage]:
    texts = {path.name: path.read_text() for path in SCRIPTS.glob("*.py")}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": texts}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "peer"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}],
            "containers": [
                {
                    "name": "peer",
                    "image": IMAGE,
                    "command": ["python3", "/scripts/peer.py"],
                    "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
                    "readinessProbe": {"tcpSocket": {"port": 7002}, "periodSeconds": 1},
                }
            ],
        },
    }
    for manifest in (config, pod):
        site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        site.kubectl("wait", "pod/peer", "--for=condition=Ready", "--timeout=90s", timeout=100)
        yield Stage(site, site.get("pod", "peer"))
    finally:
        site.kubectl("delete", "pod/peer", "configmap/scripts", "--ignore-not-found", "--timeout=60s", timeout=70)


def chain() -> list[tuple[int, int]]:
    """Return (step, value) of an undisturbed run."""
    points, value = [], 1
    for step in range(1, LAST + 1):
        value = (value * 31 + step) % 65521
        points.append((step, value))
    return points


def values(log: str, key: str = "loss", step: str = "epoch") -> list[tuple[int, float]]:
    """Return (step, value) of every JSON or Python dict in the log, each a line or a part of a line."""
    found = []
    # P marks a partial line, which the next line of containerd's log continues
    pieces = [line.split(" ", 3) for line in log.split("\n") if line.count(" ") >= 3]
    text = "".join(piece + ("" if mark.startswith("P") else "\n") for _, _, mark, piece in pieces)
    for part in text.replace("\r", "\n").splitlines():
        if part.startswith("{"):
            row = ast.literal_eval(part.replace("nan", "None").replace("true", "True").replace("false", "False"))
            if key in row:
                found.append((int(row[step]), float(row[key])))
    return found


def check_no_work_lost(story: Story) -> None:
    """Check that a suspended and requeued trial made every step once, with correct values."""
    assert story.job["status"]["phase"] == "Succeeded", story.job["status"]
    assert [(step.step, step.value) for step in story.steps] == chain()
    assert [step.at for step in story.steps if story.frozen_at < step.at < story.thawed_at] == []
    assert {step.attempt for step in story.steps} == {0, 1}
    assert story.status["attempt"] == 1
    assert story.status["suspensions"]["count"] >= 1
    assert story.status.get("lostWork", {}).get("steps", 0) == 0
    assert story.status["lastStep"] == LAST
    printed = dict(chain())
    points = story.status["curve"]["points"]
    assert len(points) >= 15
    assert all(printed[int(point["step"])] == point["value"] for point in points)


def test_buffered_prints(run_script: RunScript) -> None:
    story = run_script("buffered_prints")
    check_no_work_lost(story)
    visible = values(story.log_when_frozen)
    assert len(visible) - len(story.before) in (0, 1), (
        "each print is in the log at once, although the script does not flush"
    )
    assert values(story.log_when_frozen, "late") == [], "output that the script buffers itself is not in the log yet"
    assert [step for step, _ in values(story.logs[0], "late")] == [step.step for step in story.of(0)], "but later it is"
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_progress_bar(run_script: RunScript) -> None:
    story = run_script("progress_bar")
    check_no_work_lost(story)
    assert "\r" in story.logs[0], "the log contains what a terminal would overwrite"
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_trainer_dicts(run_script: RunScript) -> None:
    story = run_script("trainer_dicts")
    check_no_work_lost(story)
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_tcp_connection(stage: Stage, run_script: RunScript) -> None:
    story = run_script("tcp_connection")
    check_no_work_lost(story)
    heard = stage.heard()
    for port, connections in ((7001, range(1, 2)), (7002, range(2, 99))):
        first = [row for row in heard if row["port"] == port and row.get("line", "").startswith("0 ")]
        sent = [int(row["line"].split()[1]) for row in first]
        assert sent == [step.step for step in story.of(0)], "no line is lost or repeated"
        assert len({row["connection"] for row in first}) in connections, f"port {port}"
    ended = [row["at"] for row in heard if row["port"] == 7002 and "ended" in row]
    assert any(story.frozen_at < at < story.thawed_at for at in ended), (
        "the peer with a timeout closed the connection of the frozen script"
    )


def test_heartbeat(stage: Stage, run_script: RunScript) -> None:
    story = run_script("heartbeat")
    check_no_work_lost(story)
    beats = [(row["at"], *row["line"].split()) for row in stage.heard("heartbeat-0 ")]
    assert [at for at, *_ in beats if story.frozen_at + 0.1 < at < story.thawed_at] == [], "silent while suspended"
    for attempt in ("0", "1"):
        numbers = [int(number) for _, _, mine, number in beats if mine == attempt]
        assert numbers == list(range(len(numbers))), "the same thread continues, and no heartbeat is missing"
        assert len(numbers) >= 5
    assert {run for _, run, *_ in beats} == {"heartbeat-0"}, "a tracker that identifies runs by name sees one run"


def test_wall_clock(run_script: RunScript) -> None:
    story = run_script("wall_clock")
    check_no_work_lost(story)
    first = story.of(0)
    gaps = [(b.at - a.at, b.cpu - a.cpu) for a, b in itertools.pairwise(first)]
    wall, processor = max(gaps)
    assert wall >= PAUSE, "in wall-clock time the suspension is one long step"
    assert processor < 1.0, "in CPU time it is not visible"
    by_wall = dict(values(story.logs[0], "by_wall"))
    assert by_wall[first[-1].step] == 1, "a wall-clock limit of 6 s passes after less than 6 s of work"
    assert not any(value for _, value in values(story.logs[0], "by_processor"))
    second = dict(values(story.logs[1], "by_wall"))
    assert second[story.of(1)[0].step] == 0, "a new pod starts from 0 again"


def test_data_loader(run_script: RunScript) -> None:
    story = run_script("data_loader")
    assert [(step.step, step.value) for step in story.steps] == chain()
    printed = values(story.logs[0]) + values(story.logs[1])
    assert printed == [(step, batch(step)) for step in range(1, LAST + 1)], "each batch once, in order"
    assert {"workers-ended-0", "workers-ended-1"} <= story.files, "SIGTERM ended the workers with the script"
    assert story.status.get("lostWork", {}).get("steps", 0) == 0


def batch(step: int) -> float:
    """Return the batch that the script computes for a step."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        module = load(SCRIPTS / "data_loader.py")
        result: float = module.batch(step)
        return result
    finally:
        sys.path.remove(str(SCRIPTS))


def test_ignores_sigterm(run_script: RunScript) -> None:
    """The script is killed after the grace period.

    The status reports the work since its last checkpoint as lost.
    """
    story = run_script("ignores_sigterm")
    assert story.job["status"]["phase"] == "Succeeded"
    first, second = story.of(0), story.of(1)
    resumed = second[0].step - 1
    assert resumed % 5 == 0, "it continued from a checkpoint"
    assert [(step.step, step.value) for step in first] == chain()[: len(first)]
    assert [(step.step, step.value) for step in second] == chain()[resumed:], "the repeated steps have the same values"
    last = values(story.logs[0])[-1][0]
    lost = last - resumed
    losses = story.status.get("lostWork", {})
    assert losses.get("steps", 0) == lost
    assert losses.get("count", 0) == (1 if lost else 0)
    if lost:
        (loss,) = losses["recent"]
        assert (loss["attempt"], loss["step"], loss["resumedFrom"]) == (1, last, resumed)
