"""The development cluster: `up` recovers from a kill, and `down` leaves nothing on the machine."""

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


def traces(name: str, state: Path) -> list[str]:
    """Return the processes, namespaces, mounts and cgroups of a cluster, without the cluster's own code."""
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
def control_plane() -> Iterator[Cluster]:
    cluster = Cluster(f"e2e-plane-{os.getpid()}", nodes=0)
    yield cluster
    cluster.down(purge=True)


@pytest.mark.parametrize("reached", ["etcd", "kube-apiserver", "kube-controller-manager"])
def test_up_recovers_from_a_killed_up_and_down_leaves_nothing(control_plane: Cluster, reached: str) -> None:
    process = command("up", "--name", control_plane.name, "--nodes", "0")
    until(lambda: reached in control_plane.processes.records(), 60, f"{reached} started")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    assert traces(control_plane.name, control_plane.paths.root), "the killed run should have left something"
    assert not control_plane.healthy()

    control_plane.up()
    assert control_plane.healthy()
    assert "kube-system" in control_plane.kubectl("get", "namespaces", "-o", "name", timeout=15)

    control_plane.down()
    assert traces(control_plane.name, control_plane.paths.root) == []


def test_up_is_idempotent_and_restarts_dead_components(control_plane: Cluster) -> None:
    control_plane.up()
    pid = control_plane.pid("kube-apiserver")
    control_plane.up()
    assert control_plane.pid("kube-apiserver") == pid

    control_plane.kill("kube-apiserver")
    assert control_plane.complaints() == ["kube-apiserver is not running"]

    def healthy_after_starts_by_hand() -> bool:
        # a controller-manager that loses the API server while it starts its controllers exits, too
        for component in control_plane.components():
            if not control_plane.running(component):
                control_plane.start(component)
        return control_plane.healthy()

    until(healthy_after_starts_by_hand, 60, "healthy again after starts by hand")

    control_plane.kill("etcd")
    control_plane.up()
    assert control_plane.healthy()
    assert control_plane.pid("kube-apiserver") != pid


def test_another_size_is_refused_while_the_cluster_runs(control_plane: Cluster) -> None:
    control_plane.up()
    with pytest.raises(ClusterError, match=r"it has 0 nodes, 1 are asked for: `down` it first"):
        Cluster(control_plane.name, nodes=1).up()
    Cluster(control_plane.name).up()  # without a size, `up` uses the running cluster


def test_a_cluster_with_the_same_name_in_another_cache_is_not_touched(control_plane: Cluster, tmp_path: Path) -> None:
    control_plane.up()
    other = Cluster(control_plane.name, nodes=0, cache=Cache(tmp_path))
    for attempt in (other.up, other.down):
        with pytest.raises(ClusterError, match=r"runs already, with its state in .*: use another --name"):
            attempt()
    assert control_plane.healthy()


def test_two_concurrent_ups_create_one_cluster(control_plane: Cluster) -> None:
    both = [command("up", "--name", control_plane.name, "--nodes", "0") for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert control_plane.healthy()


def test_an_interrupted_up_cleans_up(control_plane: Cluster) -> None:
    process = command("up", "--name", control_plane.name, "--nodes", "0")
    until(lambda: "kube-apiserver" in control_plane.processes.records(), 60, "kube-apiserver started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert traces(control_plane.name, control_plane.paths.root) == []


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

    frozen = freeze(one_node)
    assert frozen, "no container to freeze"
    one_node.down()
    assert traces(one_node.name, one_node.paths.root) == []

    one_node.up()  # the image store is kept, the old containers are not
    assert one_node.node_exec("node-1", ["ctr", "-n", "k8s.io", "containers", "ls", "-q"]).strip() == ""
    assert "localhost/busybox:1" in one_node.node_exec("node-1", ["ctr", "-n", "k8s.io", "images", "ls", "-q"])


def can_exec(cluster: Cluster) -> bool:
    """Return whether kubectl exec works. A restarted kubelet must first find its pods."""
    try:
        return cluster.kubectl("exec", "frozen", "--", "hostname").strip() == "frozen"
    except CommandError:
        return False


def freeze(cluster: Cluster) -> list[Path]:
    """Freeze the cgroups of all containers of the node's pods (v1 or v2); return these cgroups."""
    assert cluster.cgroups.hierarchies.tracking is not None
    root = cluster.cgroups.hierarchies.tracking / cluster.cgroups.name / "node-1" / "kubepods"
    done = []
    for folder in root.rglob("pod*/*"):
        for name, value in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
            if (folder / name).exists() and (folder / "cgroup.procs").read_text().strip():
                (folder / name).write_text(value)
                done.append(folder)
    return done
