"""The dev cluster itself: it starts again after a killed start, and `down` leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium_devcluster.cluster import Cluster, ClusterError
from podium_devcluster.paths import Cache
from podium_devcluster.runtime.node_config import KubeletSettings
from podium_devcluster.shell import CommandError

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="the cluster needs root (network namespaces, mounts, cgroups)"),
]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: frozen}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: count
    image: localhost/busybox:1
    command: [sh, -c, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"]
"""


def traces_of(name: str, state: Path) -> list[str]:
    """Return everything of this cluster on the machine, without the cluster's own code."""
    traces = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            membership = (entry / "cgroup").read_text()
        except (OSError, ValueError):
            continue
        if f"{state}/" in command or f"/devcluster-{name}/" in membership:
            traces.append(f"process {entry.name} {command[:80]}")
    names = os.listdir("/run/netns") if Path("/run/netns").is_dir() else []
    traces += [f"netns {entry}" for entry in names if entry.startswith(f"{name}.")]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    traces += [line for line in mounts if f"{state}/" in line or f"/run/netns/{name}." in line]
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        traces += [f"{folder}/{name}" for name in folders if name == f"devcluster-{name}"]
    return traces


def until(ready: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not reached within {seconds:g} s"
        time.sleep(0.02)


def command(*arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "podium_devcluster.main", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.fixture
def plane() -> Iterator[Cluster]:
    cluster = Cluster(f"e2e-plane-{os.getpid()}", nodes=0)
    yield cluster
    cluster.down(purge=True)


@pytest.mark.parametrize("reached", ["etcd", "kube-apiserver", "kube-controller-manager"])
def test_up_after_a_killed_start_works_and_down_leaves_nothing(plane: Cluster, reached: str) -> None:
    process = command("up", "--name", plane.name, "--nodes", "0")
    until(lambda: reached in plane.processes.records(), 60, f"{reached} started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    assert traces_of(plane.name, plane.paths.root), "a killed start leaves something"
    assert not plane.healthy()

    plane.up()
    assert plane.healthy()
    assert "kube-system" in plane.kubectl("get", "namespaces", "-o", "name", timeout=15)

    plane.down()
    assert traces_of(plane.name, plane.paths.root) == []


def test_up_accepts_a_healthy_cluster_and_restarts_a_broken_one(plane: Cluster) -> None:
    plane.up()
    pid = plane.pid("kube-apiserver")
    plane.up()
    assert plane.pid("kube-apiserver") == pid

    plane.kill("kube-apiserver")
    assert plane.problems() == ["kube-apiserver is not running"]

    def healthy_after_manual_starts() -> bool:
        # a controller-manager that loses its API server during its start ends as well
        for component in plane.components():
            if not plane.running(component):
                plane.start(component)
        return plane.healthy()

    until(healthy_after_manual_starts, 60, "healthy again after manual starts")

    plane.kill("etcd")
    plane.up()
    assert plane.healthy()
    assert plane.pid("kube-apiserver") != pid


def test_another_size_is_refused_while_it_runs(plane: Cluster) -> None:
    plane.up()
    with pytest.raises(ClusterError, match=r"it has 0 nodes instead of 1; run `podium-devcluster down"):
        Cluster(plane.name, nodes=1).up()
    Cluster(plane.name).up()  # without a requested size, the running cluster is accepted


def test_a_cluster_of_another_cache_is_not_touched(plane: Cluster, tmp_path: Path) -> None:
    plane.up()
    other = Cluster(plane.name, nodes=0, cache=Cache(tmp_path))
    for attempt in (other.up, other.down):
        with pytest.raises(ClusterError, match=r"is already running, with its state in .*; use another --name"):
            attempt()
    assert plane.healthy()


def test_two_ups_at_once_make_one_cluster(plane: Cluster) -> None:
    both = [command("up", "--name", plane.name, "--nodes", "0") for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert plane.healthy()


def test_an_interrupted_up_cleans_up(plane: Cluster) -> None:
    process = command("up", "--name", plane.name, "--nodes", "0")
    until(lambda: "kube-apiserver" in plane.processes.records(), 60, "kube-apiserver started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert traces_of(plane.name, plane.paths.root) == []


@pytest.fixture
def one_node() -> Iterator[Cluster]:
    cluster = Cluster(
        f"e2e-node-{os.getpid()}",
        nodes=1,
        kubelet=KubeletSettings(log_max_size="16Ki", log_monitor_interval="3s"),
    )
    cluster.up()
    yield cluster
    cluster.down(purge=True)


def test_a_node_survives_restarts_and_down_ends_frozen_containers(one_node: Cluster) -> None:
    one_node.kubectl("apply", "-f", "-", stdin=POD)
    one_node.kubectl("wait", "--for=condition=Ready", "pod/frozen", "--timeout=60s", timeout=70)
    pods = one_node.logs / "node-1" / "pods"
    (log,) = pods.glob("default_frozen_*/count/0.log")
    one_node.restart("containerd", "node-1")
    one_node.restart("kubelet", "node-1")
    until(one_node.healthy, 120, "node Ready after the restarts")
    before = log.stat().st_ino, log.stat().st_size
    until(lambda: (log.stat().st_ino, log.stat().st_size) != before, 60, "the container continues and its log grows")
    until(lambda: can_exec(one_node), 180, "kubectl exec works again")

    groups = freeze(one_node)
    assert groups, "no container to freeze"
    one_node.down()
    assert traces_of(one_node.name, one_node.paths.root) == []

    one_node.up()  # the image store is kept, the old containers are removed
    assert one_node.node_exec("node-1", ["ctr", "-n", "k8s.io", "containers", "ls", "-q"]).strip() == ""
    assert "localhost/busybox:1" in one_node.node_exec("node-1", ["ctr", "-n", "k8s.io", "images", "ls", "-q"])


def can_exec(cluster: Cluster) -> bool:
    """Return whether exec works; a restarted kubelet first has to learn its pods."""
    try:
        return cluster.kubectl("exec", "frozen", "--", "hostname").strip() == "frozen"
    except CommandError:
        return False


def freeze(cluster: Cluster) -> list[Path]:
    """Freeze all containers of the node's pods without the runtime; return their groups."""
    assert cluster.cgroups.hierarchies.tracking is not None
    root = cluster.cgroups.hierarchies.tracking / cluster.cgroups.name / "node-1" / "kubepods"
    frozen = []
    for folder in root.rglob("pod*/*"):
        for name, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
            if (folder / name).exists() and (folder / "cgroup.procs").read_text().strip():
                (folder / name).write_text(value)
                frozen.append(folder)
    return frozen
