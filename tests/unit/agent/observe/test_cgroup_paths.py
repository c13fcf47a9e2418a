"""The cgroup paths of every runtime: which container a process is in, which cgroup is frozen, how notes are named.

Each row is a tree of files with the paths of the processes, as the kernel names them. Sources of the names: containerd
and crun as seen on nodes; CRI-O, cri-dockerd, k3s, RKE2 and kind as their source and documentation name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from podium_agent.observe.cgroup_paths import Peer, cgroup_names, parse_path, peer_of
from podium_agent.observe.cgroups import (
    find_containers,
    find_remaining_containers,
)
from podium_suspension.gpu_state_notes import GpuStateNotes

UID, ID, OTHER = "63f2a1e3-fd76-4290-8912-1ef46c2601fa", "ab" * 32, "cd" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
GUARANTEED = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
CGROUPFS = f"/kubepods/burstable/pod{UID}"
KIND = f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-{SLICE}"
FIRST = 100


@dataclass(frozen=True)
class Layout:
    """Paths of processes, the first one with the lowest pid.

    `main`: position of the container's first process; all after it are in the container. `frozen`: the cgroup to
    freeze. `name`: the name of the notes about the container. An agent reads the notes of earlier releases, so a name
    may never change.
    """

    paths: tuple[str, ...]
    frozen: str
    name: str
    main: int = 0


def one(path: str, below: str = "") -> Layout:
    """Return the layout of a container with one process, which is in `path` or below it."""
    return Layout((path + below,), path, path.rpartition("/")[2])


def crun(scope: str, below: str = "") -> Layout:
    return Layout((f"{scope}/container{below}",), f"{scope}/container", scope.rpartition("/")[2])


CRI = f"cri-containerd-{ID}.scope"
MONITOR, CRIO = f"crio-conmon-{ID}.scope", f"crio-{ID}.scope"
BOTH_VERSIONS: Mapping[str, Layout] = {
    "containerd, runc, cgroupfs": one(f"{CGROUPFS}/{ID}"),
    "containerd, runc, cgroupfs, guaranteed": one(f"/kubepods/pod{UID}/{ID}"),
    "containerd, runc, systemd": one(f"{SYSTEMD}/{CRI}"),
    "containerd, runc, systemd, guaranteed": one(f"{GUARANTEED}/{CRI}"),
    "containerd with systemd, kubelet with cgroupfs": one(
        f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}"
    ),
    "CRI-O, runc, systemd": Layout((f"/system.slice/{MONITOR}", f"{SYSTEMD}/{CRIO}"), f"{SYSTEMD}/{CRIO}", CRIO, 1),
    "CRI-O, runc, systemd, monitor in the pod": Layout(
        (f"{SYSTEMD}/{MONITOR}", f"{SYSTEMD}/{CRIO}"), f"{SYSTEMD}/{CRIO}", CRIO, 1
    ),
    "CRI-O, runc, cgroupfs": Layout(
        (f"{CGROUPFS}/crio-conmon-{ID}", f"{CGROUPFS}/crio-{ID}"), f"{CGROUPFS}/crio-{ID}", f"crio-{ID}", 1
    ),
    "OpenShift": Layout((f"/system.slice/{MONITOR}", f"{GUARANTEED}/{CRIO}"), f"{GUARANTEED}/{CRIO}", CRIO, 1),
    "cri-dockerd, cgroupfs": one(f"{CGROUPFS}/{ID}"),
    "cri-dockerd, systemd": one(f"{SYSTEMD}/docker-{ID}.scope"),
    "k3s": one(f"{CGROUPFS}/{ID}"),
    "k3s, rootless": one(f"/user.slice/user-1.slice/user@1.service/app.slice/k3s-rootless.service{CGROUPFS}/{ID}"),
    "k3d": one(f"/docker/{OTHER}{CGROUPFS}/{ID}"),
    "RKE2": one(f"{SYSTEMD}/{CRI}"),
    "kind, from the node": one(f"{KIND}/{CRI}"),
    "kind, from the host": one(f"/system.slice/docker-{OTHER}.scope{KIND}/{CRI}"),
    "systemd in the container": Layout(
        (f"{SYSTEMD}/{CRI}/init.scope", f"{SYSTEMD}/{CRI}/system.slice/dbus.service"), f"{SYSTEMD}/{CRI}", CRI
    ),
    "Docker in the container": Layout(
        (f"{SYSTEMD}/{CRI}/init", f"{SYSTEMD}/{CRI}/docker/{OTHER}"), f"{SYSTEMD}/{CRI}", CRI
    ),
    "Docker in the container, cgroupfs": Layout(
        (f"{CGROUPFS}/{ID}", f"{CGROUPFS}/{ID}/docker/{OTHER}"), f"{CGROUPFS}/{ID}", ID
    ),
    "a cluster in the container": one(f"{CGROUPFS}/{ID}", f"/kubepods/pod{UID[::-1].replace('-', '_')}/{OTHER}"),
}
ONLY_V2: Mapping[str, Layout] = {
    "containerd, crun, systemd": crun(f"{SYSTEMD}/{CRI}"),
    "containerd, crun, cgroupfs": one(f"{CGROUPFS}/{ID}"),
    "CRI-O, crun": Layout(
        (f"/system.slice/{MONITOR}", f"{SYSTEMD}/{CRIO}/container"), f"{SYSTEMD}/{CRIO}/container", CRIO, 1
    ),
    "OpenShift, crun": crun(f"{GUARANTEED}/{CRIO}"),
    "crun, systemd in the container": crun(f"{SYSTEMD}/{CRI}", "/init.scope"),
    "runc, a trial that names its cgroup as crun does": Layout(
        (f"{SYSTEMD}/{CRI}/container", f"{SYSTEMD}/{CRI}/another"), f"{SYSTEMD}/{CRI}", CRI
    ),
    "runc, a trial that names one of its cgroups as crun does": Layout(
        (f"{SYSTEMD}/{CRI}", f"{SYSTEMD}/{CRI}/container"), f"{SYSTEMD}/{CRI}", CRI
    ),
    "cgroupfs, a trial that names its cgroup as crun does": one(f"{CGROUPFS}/{ID}", "/container"),
}


@dataclass(frozen=True)
class Tree:
    """A tree of files like /proc and /sys/fs/cgroup with the processes of one layout."""

    proc: Path
    root: Path
    mount: Path

    def add(self, layout: Layout, line: str, file: str, value: str) -> None:
        for pid, path in enumerate(layout.paths, start=FIRST):
            (self.proc / str(pid)).mkdir(parents=True)
            (self.proc / str(pid) / "cgroup").write_text(line.format(path=path))
            (self.proc / str(pid) / "comm").write_text("python\n")
            place = self.mount / path.lstrip("/")
            for folder in (place, *(one for one in place.parents if one.is_relative_to(self.mount))):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(value)
                (folder / "cgroup.procs").touch()
            with (place / "cgroup.procs").open("a") as procs:
                procs.write(f"{pid}\n")


# the kernel lists the freezer of v1 among others; in a hybrid setup, systemd alone uses v2
V1 = "12:pids:{path}\n8:freezer:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::/system.slice/c.service\n"
CASES = [
    *((f"v1: {title}", layout, False) for title, layout in BOTH_VERSIONS.items()),
    *((f"v2: {title}", layout, True) for title, layout in (BOTH_VERSIONS | ONLY_V2).items()),
]


@pytest.mark.parametrize(("layout", "unified"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_container_is_found_and_frozen_at_the_right_level(tmp_path: Path, layout: Layout, unified: bool) -> None:
    root = tmp_path / "cgroup"
    tree = Tree(tmp_path / "proc", root, root if unified else root / "freezer")
    if unified:
        tree.add(layout, "0::{path}\n", "cgroup.freeze", "0\n")
    else:
        tree.add(layout, V1, "freezer.state", "THAWED\n")
    found = find_containers(tree.proc, root, frozenset({ID, OTHER}))
    assert set(found) == {ID}, "a container in the container is a part of it"
    freezer = found[ID].freezer
    assert "/" + str(freezer.path.relative_to(tree.mount)) == layout.frozen
    assert (found[ID].pid, freezer.unified, freezer.name) == (FIRST + layout.main, unified, layout.name)
    inside = frozenset(range(FIRST + layout.main, FIRST + len(layout.paths)))
    assert freezer.processes() == inside
    pids = range(FIRST, FIRST + len(layout.paths))
    assert {pid for pid in pids if peer_of(tree.proc, pid) == Peer(UID, ID)} == inside
    left = find_remaining_containers(tree.proc, root, frozenset({UID}))
    assert {uid: [one.freezer for one in containers] for uid, containers in left.items()} == {UID: [freezer]}


@pytest.mark.parametrize("layout", (BOTH_VERSIONS | ONLY_V2).values(), ids=(BOTH_VERSIONS | ONLY_V2).keys())
def test_a_note_of_the_container_outlives_the_agent(tmp_path: Path, layout: Layout) -> None:
    tree = Tree(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "cgroup")
    tree.add(layout, "0::{path}\n", "cgroup.freeze", "0\n")
    name = find_containers(tree.proc, tree.root, frozenset({ID}))[ID].freezer.name
    before = GpuStateNotes(tmp_path / "gpu-state")
    for container in (name, f"cri-containerd-{'ef' * 32}.scope"):
        before.write_held(container, {"G": 7})
    after = GpuStateNotes(tmp_path / "gpu-state")
    after.remove_stale(cgroup_names(tree.proc))
    assert [file.name for file in (tmp_path / "gpu-state").iterdir()] == [name], "the other container has ended"
    assert after.held_bytes(name) == {"G": 7}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/system.slice/kubelet.service",
        f"{SYSTEMD}",
        f"/system.slice/{MONITOR}",
        f"{SYSTEMD}/{MONITOR}",
        f"{CGROUPFS}/crio-conmon-{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"{CGROUPFS}/{ID[:-1]}",
        f"{CGROUPFS}/{ID}0",
        f"{CGROUPFS}/{ID}.slice",
        f"/my-podcast-{UID}/{ID}",
    ],
)
def test_other_paths_are_of_no_container(path: str) -> None:
    assert parse_path(path) is None
