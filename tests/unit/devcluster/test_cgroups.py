"""Control groups on v1, hybrid and v2: the hierarchy in use, creation and removal."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium_devcluster.runtime.cgroups import CgroupError, ClusterCgroups, Hierarchies, parse_mounts

V1 = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
"""
HYBRID = V1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "v2", "tracking", "count"),
    [
        (V1, False, "/sys/fs/cgroup/freezer", 3),
        (HYBRID, False, "/sys/fs/cgroup/freezer", 4),
        (V2, True, "/sys/fs/cgroup", 1),
        ("", True, None, 0),
    ],
)
def test_parse_mounts(mounts: str, v2: bool, tracking: str | None, count: int) -> None:
    hierarchies = parse_mounts(mounts)
    assert hierarchies.v2 is v2
    assert len(hierarchies.roots) == count
    assert hierarchies.tracking == (Path(tracking) if tracking else None)


def test_missing_controllers() -> None:
    assert parse_mounts(V1).missing() == ["cpuset", "devices", "pids"]


def test_missing_controllers_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    assert Hierarchies(True, (tmp_path,), tmp_path).missing() == ["pids"]


def test_a_machine_without_hierarchies_is_reported() -> None:
    with pytest.raises(CgroupError, match="no cgroup v2 mount"):
        _ = ClusterCgroups("a", parse_mounts("")).procs_file


def test_on_v1_groups_are_made_and_removed(tmp_path: Path) -> None:
    root = tmp_path / "freezer"
    root.mkdir()
    groups = ClusterCgroups("a", Hierarchies(False, (root,), root))
    groups.create(("node-1",))
    assert groups.kubelet_root("node-1") == "/devcluster-a/node-1"
    assert (root / "devcluster-a" / "node-1").is_dir()
    deep = root / "devcluster-a" / "node-1" / "kubepods" / "pod1"
    deep.mkdir(parents=True)
    assert groups.remaining() == [root / "devcluster-a"]
    assert groups.remove() == []
    assert groups.remaining() == []


def test_pods_have_the_cpu_time_of_one_program_with_the_nice_level_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nice, shares in ((0, "1024"), (15, "36"), (19, "15"), (-10, "1024")):
        top = tmp_path / f"nice{nice}" / "devcluster-a"
        top.mkdir(parents=True)
        (top / "cpu.shares").write_text("1")
        monkeypatch.setattr("os.nice", lambda _, nice=nice: nice)
        ClusterCgroups("a", Hierarchies(False, (top.parent,), top.parent)).create(())
        assert (top / "cpu.shares").read_text() == shares


def test_on_v2_the_available_controllers_are_delegated(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids misc\n")
    top = tmp_path / "devcluster-a"
    top.mkdir()
    (top / "cgroup.controllers").write_text("cpu memory pids\n")
    ClusterCgroups("a", Hierarchies(True, (tmp_path,), tmp_path)).create(("node-1",))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (top / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
