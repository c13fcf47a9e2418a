"""One real two-node cluster with Podium on it for the whole e2e layer, and one run of the example with accidents.

The cluster has a name of its own, `e2e` (`e2e-gw0`, ... where pytest-xdist runs files side by side), so no other is
disturbed, and keeps its images for the next session. It is ended afterwards, unless PODIUM_KEEP=1.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kube_reads import Reads
from script_modules import load

from podium_core.schema.manifests import read_manifests
from podium_devcluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
NODES = ("node-1", "node-2")
HERE = Path(__file__).parent
# workers of pytest-xdist take files in this order: the longest first, so that none is at work long after the others
FIRST = (
    *("faults", "carried", "digits", "faults_of_kubernetes", "shared_memory"),
    *("scripts", "leaving", "faults_of_the_agent", "faults_of_moving_memory", "urgent"),
)
# what these leave is no cluster for others: one node less, no Podium. No file of this layer comes after them.
LAST = ("the_end_of_a_node", "uninstall")
NEXT = ("leases", "operator", "extender", "agent", "exclusive")  # of the other layers
UP: list[Cluster] = []  # this session's cluster, while it may be ended


def turn(path: Path) -> int:
    """Where a file comes. The other layers are last: they have many short tests, the best to fill the ends with."""
    name = path.stem.removeprefix("test_")
    if path.parent != HERE:
        return len(FIRST) + 2 + (NEXT.index(name) if name in NEXT else len(NEXT))
    return FIRST.index(name) if name in FIRST else len(FIRST) + (name in LAST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: turn(item.path))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The cluster ends with the last test on it: also an idle one takes a quarter of a processor."""
    if nextitem is not None and nextitem.path.parent != HERE:
        while UP:
            UP.pop().down()


@dataclass
class Site:
    """The cluster, and what the tests ask it. Everything has a time limit."""

    cluster: Cluster
    demo: ModuleType
    place: Any
    evidence: ModuleType = field(default_factory=lambda: load(Path(__file__).with_name("evidence.py")))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return self.cluster.kubectl(*arguments, stdin=stdin, timeout=timeout)

    @cached_property
    def _reads(self) -> Reads:
        return Reads(self.cluster)

    def get(self, *words: str) -> dict[str, Any]:
        """As `kubectl get WORDS -o json`, at a tenth of the price."""
        return self._reads.get(*words)

    def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(kind, *arguments)["items"]
        return items

    def job(self, name: str) -> dict[str, Any]:
        return self.get("hyperparamjob", name)

    def example(self, name: str) -> dict[str, Any]:
        """The example's job under another name, to be changed."""
        manifest: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
        manifest["metadata"]["name"] = name
        return manifest

    def until(self, what: str, condition: Callable[[], Any], seconds: float, pause: float = 0.25) -> Any:
        """The first true answer of `condition`; fails with the state of the cluster."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = condition()
            if answer:
                return answer
            time.sleep(pause)
        self.demo.diagnose(self.place)
        pytest.fail(f"{what}: not within {seconds:g} s")

    def podium(self, *arguments: str, timeout: float = 60.0) -> str:
        output: str = self.demo.call(self.place, [*self.demo.module("podium_cli"), *arguments], timeout, quiet=True)
        return output

    def upgrade(self, *values: str) -> None:
        """Podium with other values of its chart (`name=value`), the rest as it was."""
        chart, told = str(ROOT / "charts/podium"), [f"--set={value}" for value in values]
        argv = [self.place.tool("helm"), "upgrade", "podium", chart, "--reuse-values", *told]
        self.demo.call(self.place, [*argv, "-n", "podium-system", "--wait", "--timeout=150s"], 170, quiet=True)

    def level(self, enabled: bool) -> None:
        """Whether trials change nodes so that GPUs have about equally many."""
        self.upgrade(f"operator.rebalancing.enabled={str(enabled).lower()}", "operator.rebalancing.minStaySeconds=2")

    def work(self) -> list[Any]:
        """The fake drivers' record of both nodes."""
        found = []
        for node in NODES:
            folder = self.cluster.node_root(node) / "var/lib/podium-fake-driver"
            for name in ("work.log.1", "work.log"):
                if (folder / name).exists():
                    found += list(self.evidence.work_of((folder / name).read_text()))
        return found

    def driver(self, node: str) -> Any:
        """The node's fake driver, asked without Podium."""
        module = load(Path(__file__).with_name("fake_driver.py"))
        return module.FakeDriver(self.cluster.node_root(node) / "var/lib/podium-fake-driver")

    def log_of(self, pod: dict[str, Any], container: str) -> str:
        """A container's log as containerd wrote it on the node."""
        meta = pod["metadata"]
        folder = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        return (self.cluster.logs / pod["spec"]["nodeName"] / "pods" / folder / container / "0.log").read_text()

    def cgroup_roots(self) -> list[Path]:
        """Where the containers of this cluster's nodes are in the freezer's hierarchy (v1) or the one of v2."""
        roots = [Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")]
        return [root for base in roots if (root := base / f"devcluster-{self.cluster.name}").is_dir()]

    def frozen(self) -> list[Path]:
        found: list[Path] = self.evidence.frozen_cgroups(self.cgroup_roots())
        return found

    def restarted(self, container: str) -> bool:
        """Whether every container of that name of Podium's has been started again and is ready."""
        statuses = [
            status
            for pod in self.objects("pods", "-n", "podium-system")
            for status in pod["status"].get("containerStatuses", [])
            if status["name"] == container
        ]
        return bool(statuses) and all(status["restartCount"] >= 1 and status["ready"] for status in statuses)

    def processes(self, program: str) -> list[int]:
        """Those of this cluster's containers that run `program`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                cgroup = (folder / "cgroup").read_text()
            except OSError:
                continue
            ours = f"devcluster-{self.cluster.name}/" in cgroup
            if ours and any(Path(word.decode(errors="replace")).name == program for word in words[:2]):
                found.append(int(folder.name))
        return found

    def kill_program(self, program: str) -> int:
        """SIGKILL every process of this cluster's containers that runs `program`; how many there were."""
        found = self.processes(program)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        return len(found)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    name = f"e2e-{worker}" if worker else "e2e"
    demo = load(ROOT / "examples" / "demo.py")
    cluster = Cluster(name)
    place = demo.Installation(cluster.cache.root, name)
    cluster.down()  # what a killed session left has searches of its own
    try:
        demo.install(place)
        if not os.environ.get("PODIUM_KEEP"):
            UP.append(cluster)
        yield Site(cluster, demo, place)
    finally:
        if not os.environ.get("PODIUM_KEEP"):
            cluster.down()


@dataclass
class Run:
    """The example search after it ended, with what was done to it on the way."""

    job: dict[str, Any]
    trials: list[dict[str, Any]]
    pods: dict[str, dict[str, Any]]
    killed: dict[str, int]
    work: list[Any]
    most_frozen: int


@pytest.fixture(scope="session")
def digits(site: Site) -> Run:
    """The main job, once, with operator, agents and extender SIGKILLed on the way. Each epoch has a tenth of the
    example's work: what is judged are hand-overs and records, and several clusters share this machine's processors.
    """
    manifest = site.example("digits")
    manifest["spec"]["policy"] = {"name": "hermes", "settings": {"warmup": 2}}  # switches more often than the default
    manifest["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, "--work=20")
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    killed: dict[str, int] = {}
    most_frozen = 0

    def suspensions() -> int:
        return sum(t.get("status", {}).get("suspensions", {}).get("count", 0) for t in site.objects("hyperparamtrials"))

    # in the middle of hand-overs, one after another: each has come back before the next dies
    for enough, part in ((3, "operator"), (6, "agent"), (9, "extender")):
        site.until(f"{enough} suspensions", lambda enough=enough: suspensions() >= enough, 300)
        most_frozen = max(most_frozen, len(site.frozen()))
        killed[part] = site.kill_program(f"podium-{part}")
        site.until(f"{part} is back", lambda part=part: site.restarted(part), 120)

    def ended() -> dict[str, Any] | None:
        nonlocal most_frozen
        most_frozen = max(most_frozen, len(site.frozen()))
        job = site.job("digits")
        return job if job["status"]["phase"] in ("Succeeded", "Failed", "Refused") else None

    job = site.until("the search ends", ended, 900)
    trials = site.objects("hyperparamtrials", "-l", "podium.dev/job=digits")
    pods = {pod["metadata"]["name"]: pod for pod in site.objects("pods", "-l", "podium.dev/job=digits")}
    return Run(job, trials, pods, killed, site.work(), most_frozen)


@pytest.fixture(scope="session")
def made_scene(site: Site) -> Any:
    return load(Path(__file__).with_name("scene.py")).set_up(site)


@pytest.fixture(scope="module")
def stage_of_scenes(made_scene: Any) -> Iterator[Any]:
    """With a file's end its searches are gone, folders and all."""
    yield made_scene
    made_scene.all_gone()


@pytest.fixture
def scene(stage_of_scenes: Any) -> Iterator[Any]:
    """Searches of small scripts that accidents are done to. Those of a test that failed end with it: they would hold
    the GPUs of the next one.
    """
    yield stage_of_scenes
    if stage_of_scenes.witnesses:
        stage_of_scenes.finish(*stage_of_scenes.witnesses)
        stage_of_scenes.all_gone()
