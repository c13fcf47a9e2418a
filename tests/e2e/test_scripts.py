"""What a script feels (docs/scripts.md), row by row: each script is suspended for a while, then its pod is deleted.
Two stories are told at a time, each on a node and a GPU of its own.

Judged from outside: by the record that the script keeps beside its saves (read on the node), the logs of containerd,
the states of the cgroups, and the peer that the script talks to.
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
HELD_AT = 53  # the first attempt goes no further (scripts/steps.py)
PAUSE = 4.0  # seconds for which a script is suspended: longer than the impatient peer waits
IMAGE = "localhost/podium-digits:dev"
SAVES = "var/lib/podium-digits"  # on the nodes: the volume of the example's job
NODES = ("node-1", "node-2")
SPECIAL: dict[str, dict[str, Any]] = {  # what a script's job says otherwise
    "trainer_dicts": {"metrics": {"source": "stdout", "format": "huggingface", "stepKey": "epoch"}},
    "ignores_sigterm": {"suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 3}},
}
Tell = Callable[[str], "Story"]


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the script's own record; `at` and `cpu` in seconds, of the machine's clock and of its processor."""

    attempt: int
    step: int
    value: int
    at: float
    cpu: float


@dataclass
class Story:
    """One trial: it ran, was frozen from `frozen_at` to `thawed_at`, ran, lost its pod, and ran to its end."""

    job: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    before: list[Step] = field(default_factory=list)  # what had been done when it was frozen
    log_when_frozen: str = ""
    logs: list[str] = field(default_factory=list)  # of each attempt, whole
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
    """The scripts in the cluster, and the peer that some of them talk to."""

    site: Any
    peer: dict[str, Any]

    def apply(self, manifest: dict[str, Any]) -> None:
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def heard(self, trial: str = "") -> list[dict[str, Any]]:
        """What the peer printed; its pod has no other log, so the rows of one trial are told apart by their lines."""
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
            **SPECIAL.get(script, {}),
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
        """The trial's folder on the node, as the volume has it; with the job's uid, as earlier ones had its name."""
        uid = self.site.job(job)["metadata"]["uid"][:8]
        nodes = [self.site.cluster.node_root(node) / SAVES for node in NODES]
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
        """Kept open: the kubelet removes the logs of a pod that is gone."""
        meta = pod["metadata"]
        folder = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        path: Path = self.site.cluster.logs / pod["spec"]["nodeName"] / "pods" / folder / "train" / "0.log"
        return path.open(encoding="utf-8", newline="")  # a carriage return stays one

    def suspend(self, job: str, wanted: bool) -> None:
        patch = json.dumps({"spec": {"suspend": wanted}})
        self.site.kubectl("patch", "hyperparamtrial", f"{job}-0", "--type=merge", "-p", patch)

    def frozen(self, pod: dict[str, Any]) -> bool:
        uid = pod["metadata"]["uid"]
        return any(uid in str(path).replace("_", "-") for path in self.site.frozen())

    def tell(self, script: str, node: str) -> Story:
        """The whole story of one script; fails where a part of it takes too long."""
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
                self.site.until(f"{job}: a new attempt works", lambda: self._attempts(job) == {0, 1}, 120)
                story.logs.append(log.read())
            story.job = self.site.until(f"{job}: over", lambda: self._over(job), 120)
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
        time.sleep(PAUSE)  # the experiment: so long nothing may happen
        story.log_when_frozen = self.site.log_of(pod, "train")
        assert self.frozen(pod)
        story.thawed_at = time.monotonic()
        self.suspend(job, False)
        self.site.until(f"{job}: thawed", lambda: not self.frozen(pod), 30)

    def _attempts(self, job: str) -> set[int]:
        return {step.attempt for step in self.steps(job)}

    def _over(self, job: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self.site.job(job)
        return found if found["status"]["phase"] in ("Succeeded", "Failed", "Refused") else None


@pytest.fixture(scope="module")
def tell(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Tell]:
    """The story of a script. Those of all tests that were asked for are begun at once, as nodes are free."""
    nodes: SimpleQueue[str] = SimpleQueue()
    for node in NODES:
        nodes.put(node)

    def told(script: str) -> Story:
        node = nodes.get()
        try:
            return stage.tell(script, node)
        finally:
            nodes.put(node)

    here = [item.name.removeprefix("test_") for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(len(NODES)) as pool:
        stories: dict[str, Future[Story]] = {script: pool.submit(told, script) for script in here}
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
    """(step, value) of a run that nobody disturbed."""
    points, value = [], 1
    for step in range(1, LAST + 1):
        value = (value * 31 + step) % 65521
        points.append((step, value))
    return points


def values(log: str, key: str = "loss", step: str = "epoch") -> list[tuple[int, float]]:
    """(step, value) of every line, or piece of a line, that says both: JSON or a dict of Python's."""
    found = []
    # P: the next line of containerd's log goes on with this one, so what a bar wrote for long is one line again
    pieces = [line.split(" ", 3) for line in log.split("\n") if line.count(" ") >= 3]
    text = "".join(piece + ("" if mark.startswith("P") else "\n") for _, _, mark, piece in pieces)
    for part in text.replace("\r", "\n").splitlines():
        if part.startswith("{"):
            row = ast.literal_eval(part.replace("nan", "None").replace("true", "True").replace("false", "False"))
            if key in row:
                found.append((int(row[step]), float(row[key])))
    return found


def nothing_was_lost(story: Story) -> None:
    """Suspended, requeued, and every step done once, with the result of an undisturbed run."""
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


def test_buffered_prints(tell: Tell) -> None:
    story = tell("buffered_prints")
    nothing_was_lost(story)
    shown = values(story.log_when_frozen)
    assert len(shown) - len(story.before) in (0, 1), "each print was seen at once, although none was flushed"
    assert values(story.log_when_frozen, "late") == [], "what a script buffers itself comes later"
    assert [step for step, _ in values(story.logs[0], "late")] == [step.step for step in story.of(0)], "but it comes"
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_progress_bar(tell: Tell) -> None:
    story = tell("progress_bar")
    nothing_was_lost(story)
    assert "\r" in story.logs[0], "the log holds what a terminal would have drawn over"
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_trainer_dicts(tell: Tell) -> None:
    story = tell("trainer_dicts")
    nothing_was_lost(story)
    assert values(story.logs[0]) + values(story.logs[1]) == chain()


def test_tcp_connection(stage: Stage, tell: Tell) -> None:
    story = tell("tcp_connection")
    nothing_was_lost(story)
    heard = stage.heard()
    for port, often in ((7001, range(1, 2)), (7002, range(2, 99))):
        first = [row for row in heard if row["port"] == port and row.get("line", "").startswith("0 ")]
        said = [int(row["line"].split()[1]) for row in first]
        assert said == [step.step for step in story.of(0)], "no line is lost or said twice"
        assert len({row["connection"] for row in first}) in often, f"port {port}"
    ended = [row["at"] for row in heard if row["port"] == 7002 and "ended" in row]
    assert any(story.frozen_at < at < story.thawed_at for at in ended), "the impatient peer hung up on the frozen one"


def test_heartbeat(stage: Stage, tell: Tell) -> None:
    story = tell("heartbeat")
    nothing_was_lost(story)
    beats = [(row["at"], *row["line"].split()) for row in stage.heard("heartbeat-0 ")]
    assert [at for at, *_ in beats if story.frozen_at + 0.1 < at < story.thawed_at] == [], "silent while suspended"
    for attempt in ("0", "1"):
        numbers = [int(number) for _, _, mine, number in beats if mine == attempt]
        assert numbers == list(range(len(numbers))), "the same thread goes on, no beat is missing"
        assert len(numbers) >= 5
    assert {run for _, run, *_ in beats} == {"heartbeat-0"}, "a tracker that knows the run by its name sees one run"


def test_wall_clock(tell: Tell) -> None:
    story = tell("wall_clock")
    nothing_was_lost(story)
    first = story.of(0)
    gaps = [(b.at - a.at, b.cpu - a.cpu) for a, b in itertools.pairwise(first)]
    wall, processor = max(gaps)
    assert wall >= PAUSE, "to the wall's clock the suspension was one long step"
    assert processor < 1.0, "to the processor's it was none"
    by_wall = dict(values(story.logs[0], "by_wall"))
    assert by_wall[first[-1].step] == 1, "a limit of 6 s by the wall is over after less than 6 s of work"
    assert not any(value for _, value in values(story.logs[0], "by_processor"))
    second = dict(values(story.logs[1], "by_wall"))
    assert second[story.of(1)[0].step] == 0, "and a new pod counts from 0 again"


def test_data_loader(tell: Tell) -> None:
    story = tell("data_loader")
    assert [(step.step, step.value) for step in story.steps] == chain()
    printed = values(story.logs[0]) + values(story.logs[1])
    assert printed == [(step, batch(step)) for step in range(1, LAST + 1)], "each batch once, in order"
    assert {"workers-ended-0", "workers-ended-1"} <= story.files, "SIGTERM ended the workers with the script"
    assert story.status.get("lostWork", {}).get("steps", 0) == 0


def batch(step: int) -> float:
    """The script's own function, here without a worker, a pod or a cluster."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        module = load(SCRIPTS / "data_loader.py")
        result: float = module.batch(step)
        return result
    finally:
        sys.path.remove(str(SCRIPTS))


def test_ignores_sigterm(tell: Tell) -> None:
    """It is killed when the grace period is over; what it did since its last save is lost, and the status says so."""
    story = tell("ignores_sigterm")
    assert story.job["status"]["phase"] == "Succeeded"
    first, second = story.of(0), story.of(1)
    resumed = second[0].step - 1
    assert resumed % 5 == 0, "from a save"
    assert [(step.step, step.value) for step in first] == chain()[: len(first)]
    assert [(step.step, step.value) for step in second] == chain()[resumed:], "what was done again was done right"
    last = values(story.logs[0])[-1][0]
    lost = last - resumed
    losses = story.status.get("lostWork", {})
    assert losses.get("steps", 0) == lost
    assert losses.get("count", 0) == (1 if lost else 0)
    if lost:
        (loss,) = losses["recent"]
        assert (loss["attempt"], loss["step"], loss["resumedFrom"]) == (1, last, resumed)
