"""The dev cluster itself, seen from outside: killed midway it comes up again; down leaves nothing on the machine."""

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
from podium_devcluster.node_config import KubeletSettings
from podium_devcluster.paths import Cache
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


def seen_from_outside(name: str, state: Path) -> list[str]:
    """Everything of this cluster that the machine shows, asked without the cluster's own code."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            membership = (entry / "cgroup").read_text()
        except (OSError, ValueError):
            continue
        if f"{state}/" in command or f"/devcluster-{name}/" in membership:
            found.append(f"process {entry.name} {command[:80]}")
    names = os.listdir("/run/netns") if Path("/run/netns").is_dir() else []
    found += [f"netns {entry}" for entry in names if entry.startswith(f"{name}.")]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [line for line in mounts if f"{state}/" in line or f"/run/netns/{name}." in line]
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{one}" for one in folders if one == f"devcluster-{name}"]
    return found


def until(ready: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
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
def test_killed_midway_then_up_then_down_leaves_nothing(plane: Cluster, reached: str) -> None:
    process = command("up", "--name", plane.name, "--nodes", "0")
    until(lambda: reached in plane.processes.records(), 60, f"{reached} started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    assert seen_from_outside(plane.name, plane.paths.root), "the killed run should have left something"
    assert not plane.healthy()

    plane.up()
    assert plane.healthy()
    assert "kube-system" in plane.kubectl("get", "namespaces", "-o", "name", timeout=15)

    plane.down()
    assert seen_from_outside(plane.name, plane.paths.root) == []


def test_up_is_idempotent_and_mends_what_died(plane: Cluster) -> None:
    plane.up()
    pid = plane.pid("kube-apiserver")
    plane.up()
    assert plane.pid("kube-apiserver") == pid

    plane.kill("kube-apiserver")
    assert plane.complaints() == ["kube-apiserver is not running"]

    def healthy_after_starts_by_hand() -> bool:
        # a controller-manager that loses its API server while it is still starting its controllers ends as well
        for component in plane.components():
            if not plane.running(component):
                plane.start(component)
        return plane.healthy()

    until(healthy_after_starts_by_hand, 60, "healthy again after starts by hand")

    plane.kill("etcd")
    plane.up()
    assert plane.healthy()
    assert plane.pid("kube-apiserver") != pid


def test_another_size_is_refused_while_it_runs(plane: Cluster) -> None:
    plane.up()
    with pytest.raises(ClusterError, match=r"it has 0 nodes, 1 are asked for: `down` it first"):
        Cluster(plane.name, nodes=1).up()
    Cluster(plane.name).up()  # who asks for nothing takes what runs


def test_the_same_name_of_another_cache_is_left_alone(plane: Cluster, tmp_path: Path) -> None:
    plane.up()
    stranger = Cluster(plane.name, nodes=0, cache=Cache(tmp_path))
    for attempt in (stranger.up, stranger.down):
        with pytest.raises(ClusterError, match=r"runs already, with its state in .*: use another --name"):
            attempt()
    assert plane.healthy()


def test_two_ups_at_once_make_one_cluster(plane: Cluster) -> None:
    both = [command("up", "--name", plane.name, "--nodes", "0") for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert plane.healthy()


def test_interrupted_up_clears_up_after_itself(plane: Cluster) -> None:
    process = command("up", "--name", plane.name, "--nodes", "0")
    until(lambda: "kube-apiserver" in plane.processes.records(), 60, "kube-apiserver started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert seen_from_outside(plane.name, plane.paths.root) == []


@pytest.fixture
def noded() -> Iterator[Cluster]:
    cluster = Cluster(
        f"e2e-node-{os.getpid()}",
        nodes=1,
        kubelet=KubeletSettings(log_max_size="16Ki", log_monitor_interval="3s"),
    )
    cluster.up()
    yield cluster
    cluster.down(purge=True)


def test_node_survives_restarts_and_down_ends_frozen_containers(noded: Cluster) -> None:
    noded.kubectl("apply", "-f", "-", stdin=POD)
    noded.kubectl("wait", "--for=condition=Ready", "pod/frozen", "--timeout=60s", timeout=70)
    pods = noded.logs / "node-1" / "pods"
    (log,) = pods.glob("default_frozen_*/count/0.log")
    noded.restart("containerd", "node-1")
    noded.restart("kubelet", "node-1")
    until(noded.healthy, 120, "node Ready after the restarts")
    before = log.stat().st_ino, log.stat().st_size
    until(lambda: (log.stat().st_ino, log.stat().st_size) != before, 60, "the container goes on and its log grows")
    until(lambda: can_exec(noded), 180, "kubectl exec works again")

    frozen = freeze(noded)
    assert frozen, "no container to freeze"
    noded.down()
    assert seen_from_outside(noded.name, noded.paths.root) == []

    noded.up()  # the image store was kept, the old containers are forgotten
    assert noded.node_exec("node-1", ["ctr", "-n", "k8s.io", "containers", "ls", "-q"]).strip() == ""
    assert "localhost/busybox:1" in noded.node_exec("node-1", ["ctr", "-n", "k8s.io", "images", "ls", "-q"])


def can_exec(cluster: Cluster) -> bool:
    """Not at once: a restarted kubelet first learns its pods anew."""
    try:
        return cluster.kubectl("exec", "frozen", "--", "hostname").strip() == "frozen"
    except CommandError:
        return False


def freeze(cluster: Cluster) -> list[Path]:
    """All containers of the node's pods, behind the runtime's back, on cgroup v1 or v2."""
    assert cluster.cgroups.hierarchies.tracking is not None
    root = cluster.cgroups.hierarchies.tracking / cluster.cgroups.name / "node-1" / "kubepods"
    done = []
    for folder in root.rglob("pod*/*"):
        for name, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
            if (folder / name).exists() and (folder / "cgroup.procs").read_text().strip():
                (folder / name).write_text(value)
                done.append(folder)
    return done
