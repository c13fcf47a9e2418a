"""A real two-node cluster with Podium for the e2e layer, and a run of the example with faults.

The cluster has its own name, `e2e`, or `e2e-gw0` and so on for the workers of pytest-xdist. It disturbs no other
cluster and keeps its images for the next session. It is removed at the end, unless PODIUM_KEEP=1.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import grant_records
import pytest
from kube_reads import ApiReader
from script_modules import load

from podium_core.schema.manifests import read_manifests
from podium_devcluster.audit_log import AuditLog
from podium_devcluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
NODES = ("node-1", "node-2")
HERE = Path(__file__).parent
# workers of pytest-xdist take files in this order: the longest first, so that all workers end at about the same time
FIRST = (
    *("faults", "live_migration", "digits", "kueue", "upgrade", "kubernetes_faults", "shared_memory"),
    *("scripts", "evictions", "agent_faults", "checkpoint_faults", "exclusive_pods"),
)
# these remove a node or Podium from the cluster, so no other file of this layer may come after them
LAST = ("node_loss", "uninstall", "offline_install")
NEXT = ("reservations", "operator", "extender", "agent", "exclusive")  # of the other layers
UP: list[RecordedCluster] = []  # the cluster of this session, unless it must be kept
STARTS: dict[str, float] = {}  # the time at which each test of this layer started, in seconds of the epoch
PASSED: set[str] = set()


def position(path: Path) -> int:
    """Return the position of a file in the order.

    The other layers come last: their short tests fill the gaps.
    """
    name = path.stem.removeprefix("test_")
    if path.parent != HERE:
        return len(FIRST) + 1 + len(LAST) + (NEXT.index(name) if name in NEXT else len(NEXT))
    if name in LAST:
        return len(FIRST) + 1 + LAST.index(name)
    return FIRST.index(name) if name in FIRST else len(FIRST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: position(item.path))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Remove the cluster after its last test: even an idle cluster uses a quarter of a processor."""
    if nextitem is not None and nextitem.path.parent != HERE:
        while UP:
            UP.pop().down()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what the records of the audit log need: which test ran when, and which ones passed."""
    if report.nodeid.startswith(str(HERE.relative_to(ROOT))):
        STARTS.setdefault(report.nodeid, report.start)
        if report.when == "call" and report.passed:
            PASSED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    if (folder := grant_records.folder()) is not None and PASSED:
        grant_records.save(grant_records.Record(tests=frozenset(PASSED)), folder)


@dataclass
class RecordedCluster:
    """A cluster with Podium. What its audit log has about Podium's accounts is recorded before its end."""

    cluster: Cluster

    def down(self) -> None:
        """Remove the cluster."""
        try:
            self.save()
        finally:
            self.cluster.down()

    def save(self) -> None:
        """Write the record, if this run writes any."""
        if (folder := grant_records.folder()) is not None:
            grant_records.save(self._record(), folder)

    def _record(self) -> grant_records.Record:
        log = AuditLog(self.cluster.paths)
        record = grant_records.record_of(log.new_events(), "system:serviceaccount:podium-system:", STARTS)
        roles = []
        for kind, names, options in grant_records.KUBERNETES_ROLES:
            roles += json.loads(self.cluster.kubectl("get", kind, *names, *options, "-o", "json"))["items"]
        return replace(record, cluster=self.cluster.name, complete=log.complete, roles=tuple(roles))


@dataclass
class Site:
    """The cluster, and the requests of the tests to it. Every request has a time limit."""

    cluster: Cluster
    demo: ModuleType
    place: Any
    evidence: ModuleType = field(default_factory=lambda: load(Path(__file__).with_name("evidence.py")))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return self.cluster.kubectl(*arguments, stdin=stdin, timeout=timeout)

    @cached_property
    def _reads(self) -> ApiReader:
        return ApiReader(self.cluster)

    def get(self, *words: str) -> dict[str, Any]:
        """Return the result of `kubectl get WORDS -o json`, at a tenth of its CPU time."""
        return self._reads.get(*words)

    def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(kind, *arguments)["items"]
        return items

    def job(self, name: str) -> dict[str, Any]:
        return self.get("hyperparamjob", name)

    def example(self, name: str) -> dict[str, Any]:
        """Return the example's job with another name, for the test to change."""
        manifest: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
        manifest["metadata"]["name"] = name
        return manifest

    def until(self, what: str, condition: Callable[[], Any], seconds: float, pause: float = 0.25) -> Any:
        """Return the first true result of `condition`; fail with the state of the cluster."""
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
        """Change values of Podium's chart (`name=value`); keep the others."""
        chart, options = str(ROOT / "charts/podium"), [f"--set={value}" for value in values]
        argv = [self.place.tool("helm"), "upgrade", "podium", chart, "--reuse-values", *options]
        self.demo.call(self.place, [*argv, "-n", "podium-system", "--wait", "--timeout=150s"], 170, quiet=True)

    def set_rebalancing(self, enabled: bool) -> None:
        """Enable or disable rebalancing of trials between nodes."""
        self.upgrade(f"operator.rebalancing.enabled={str(enabled).lower()}", "operator.rebalancing.minStaySeconds=2")

    def work(self) -> list[Any]:
        """Return the intervals of work in the work.log files of both nodes."""
        found = []
        for node in NODES:
            folder = self.cluster.node_root(node) / "var/lib/podium-fake-driver"
            for name in ("work.log.1", "work.log"):
                if (folder / name).exists():
                    found += list(self.evidence.work_of((folder / name).read_text()))
        return found

    def driver(self, node: str) -> Any:
        """Return the fake driver of a node, which is read without Podium."""
        module = load(Path(__file__).with_name("fake_driver.py"))
        return module.FakeDriver(self.cluster.node_root(node) / "var/lib/podium-fake-driver")

    def log_of(self, pod: dict[str, Any], container: str) -> str:
        """Return the log of a container as containerd wrote it on the node."""
        meta = pod["metadata"]
        folder = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        return (self.cluster.logs / pod["spec"]["nodeName"] / "pods" / folder / container / "0.log").read_text()

    def cgroup_roots(self) -> list[Path]:
        """Return the cgroups of this cluster in the hierarchies of the freezer (v1) and of v2."""
        roots = [Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")]
        return [root for base in roots if (root := base / f"devcluster-{self.cluster.name}").is_dir()]

    def frozen(self) -> list[Path]:
        found: list[Path] = self.evidence.frozen_cgroups(self.cgroup_roots())
        return found

    def restarted(self, container: str) -> bool:
        """Return whether every Podium container with this name has restarted and is ready."""
        statuses = [
            status
            for pod in self.objects("pods", "-n", "podium-system")
            for status in pod["status"].get("containerStatuses", [])
            if status["name"] == container
        ]
        return bool(statuses) and all(status["restartCount"] >= 1 and status["ready"] for status in statuses)

    def processes(self, program: str) -> list[int]:
        """Return the PIDs of this cluster's containers that run `program`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                cgroup = (folder / "cgroup").read_text()
            except OSError:
                continue
            in_cluster = f"devcluster-{self.cluster.name}/" in cgroup
            if in_cluster and any(Path(word.decode(errors="replace")).name == program for word in words[:2]):
                found.append(int(folder.name))
        return found

    def kill_program(self, program: str) -> int:
        """Send SIGKILL to every process of this cluster's containers that runs `program`; return their number."""
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
    cluster.down()  # a killed session may have left a cluster with searches
    try:
        demo.install(place)
        if not os.environ.get("PODIUM_KEEP"):
            UP.append(RecordedCluster(cluster))
        yield Site(cluster, demo, place)
    finally:
        while UP:
            UP.pop().down()
        if not os.environ.get("PODIUM_KEEP"):
            cluster.down()  # also if Podium could not be installed


@pytest.fixture(scope="session")
def site_of() -> Callable[[Cluster], Site]:
    """Return a function that makes the site of a cluster which a file has for itself."""
    demo = load(ROOT / "examples" / "demo.py")
    return lambda cluster: Site(cluster, demo, demo.Installation(cluster.cache.root, cluster.name))


@pytest.fixture(scope="session")
def record_grants() -> Callable[[Cluster], None]:
    """Return a function that records the requests on a cluster which a file has for itself."""
    return lambda cluster: RecordedCluster(cluster).save()


@dataclass
class Run:
    """The example search after its end, and the faults that were injected."""

    job: dict[str, Any]
    trials: list[dict[str, Any]]
    pods: dict[str, dict[str, Any]]
    killed: dict[str, int]
    work: list[Any]
    most_frozen: int


@pytest.fixture(scope="session")
def digits(site: Site) -> Run:
    """Run the example search once, with SIGKILL for the operator, the agents and the extender.

    Each epoch has a tenth of the example's work. The tests check switches and records, and several clusters share the
    machine's processors.
    """
    manifest = site.example("digits")
    manifest["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, "--work=20")
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    killed: dict[str, int] = {}
    most_frozen = 0

    def suspensions() -> int:
        return sum(t.get("status", {}).get("suspensions", {}).get("count", 0) for t in site.objects("hyperparamtrials"))

    # between switches, one after another: each component is back before the next one is killed
    for enough, component in ((2, "operator"), (3, "agent"), (5, "extender")):
        site.until(f"{enough} suspensions", lambda enough=enough: suspensions() >= enough, 300)
        most_frozen = max(most_frozen, len(site.frozen()))
        killed[component] = site.kill_program(f"podium-{component}")
        site.until(f"{component} is back", lambda component=component: site.restarted(component), 120)

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
    """A scene whose searches and their folders are deleted after each file."""
    yield made_scene
    made_scene.wait_until_deleted()


@pytest.fixture
def scene(stage_of_scenes: Any) -> Iterator[Any]:
    """A scene for searches of small scripts with injected faults.

    The searches of a failed test are deleted, so that they do not hold the GPUs of the next test.
    """
    yield stage_of_scenes
    if stage_of_scenes.trial_logs:
        stage_of_scenes.finish(*stage_of_scenes.trial_logs)
        stage_of_scenes.wait_until_deleted()
