"""Containers with cgroups of their own, on real processes in real cgroups of this machine (v1 and v2).

The freezer must stop every process of the container, wherever in it the process is, and let all of them continue.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from podium_agent.observe.cgroups import Freezer, find_containers
from podium_suspension.base import SuspensionState
from podium_suspension.freeze import Freeze
from podium_suspension.target import FreezerState

ROOT = Path("/sys/fs/cgroup")
V2 = next((path for path in (ROOT, ROOT / "unified") if (path / "cgroup.procs").exists()), None)
MOUNTS = {"v1": ROOT / "freezer", "v2": V2}
COUNT = "import sys, time\nwhile True:\n    print(end='.', flush=True); time.sleep(0.001)"
WAIT_SECONDS = 60.0


@dataclass
class Pod:
    """A cgroup like that of a pod, and the processes that a test starts below it."""

    path: Path
    unified: bool
    id: str
    folder: Path
    running: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def run(self, place: str) -> int:
        """Start a process that counts in a cgroup below the pod's; return its number."""
        cgroup, output = self.path / place, self.folder / str(len(self.running))
        cgroup.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-S", "-E", "-c", COUNT], stdout=file)
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        self.running.append((process, output))
        return len(self.running) - 1

    def freezer(self) -> Freezer:
        return find_containers(Path("/proc"), ROOT, frozenset({self.id}))[self.id].freezer

    def counts(self) -> list[int]:
        return [output.stat().st_size for _, output in self.running]

    def all_count(self) -> bool:
        before, end = self.counts(), time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if all(now > then for now, then in zip(self.counts(), before, strict=True)):
                return True
            time.sleep(0.005)
        return False

    def end(self) -> None:
        places = sorted((path for path in self.path.rglob("*") if path.is_dir()), reverse=True)
        for place in (*places, self.path):
            Freezer(place, self.unified).ask(False)
        for process, _ in self.running:
            process.kill()
            process.wait(10)
        for place in (*places, self.path, self.path.parent):
            end = time.monotonic() + WAIT_SECONDS  # the kernel releases a cgroup a moment after its last process ends
            while place.exists() and time.monotonic() < end:
                try:
                    place.rmdir()
                except OSError:
                    time.sleep(0.01)


@pytest.fixture
def make_pod(tmp_path: Path) -> Iterator[Callable[[str], Pod]]:
    made: list[Pod] = []

    def make(version: str) -> Pod:
        mount = MOUNTS[version]
        if os.geteuid() != 0 or mount is None or not mount.is_dir():
            pytest.skip(f"needs root and a cgroup {version} freezer")
        path = mount / f"podium-nested-{os.getpid()}" / f"kubepods-pod{str(uuid.uuid4()).replace('-', '_')}.slice"
        path.mkdir(parents=True)
        made.append(Pod(path, version == "v2", os.urandom(32).hex(), tmp_path))
        return made[-1]

    yield make
    for pod in made:
        pod.end()


NESTED = {
    "runc": ("{scope}", "{scope}"),
    "systemd in the container": ("{scope}", "{scope}/init.scope", "{scope}/system.slice/dbus.service"),
    "Docker in the container": ("{scope}", "{scope}/init", "{scope}/docker/" + "cd" * 32),
    "crun": ("{scope}/container", "{scope}/container"),
    "crun, systemd in the container": ("{scope}/container", "{scope}/container/init.scope"),
    "a cgroup named as crun does, beside another": ("{scope}", "{scope}/container", "{scope}/another"),
}


@pytest.mark.parametrize("version", MOUNTS)
@pytest.mark.parametrize(("frozen", "places"), [(one[0], one[1:]) for one in NESTED.values()], ids=NESTED)
def test_every_process_of_the_container_stops_and_continues(
    make_pod: Callable[[str], Pod], version: str, frozen: str, places: tuple[str, ...]
) -> None:
    pod = make_pod(version)
    scope = f"cri-containerd-{pod.id}.scope"
    for place in places:
        pod.run(place.format(scope=scope))
    freezer, method = pod.freezer(), Freeze(WAIT_SECONDS)
    level = frozen if pod.unified else "{scope}"  # crun makes no second cgroup with v1
    assert freezer.path == pod.path / level.format(scope=scope)
    assert freezer.name == scope
    assert freezer.processes() == {process.pid for process, _ in pod.running}
    assert pod.all_count()
    assert asyncio.run(method.suspend((freezer,))).ok
    stopped = pod.counts()
    time.sleep(0.1)
    assert pod.counts() == stopped, "a process of the container continued"
    assert method.suspension_state((freezer,)) is SuspensionState.SUSPENDED
    assert pod.freezer() == freezer, "an agent that starts now finds the same"
    assert asyncio.run(method.resume((freezer,))).ok
    assert pod.all_count()


@pytest.mark.parametrize("version", MOUNTS)
def test_a_cgroup_that_appears_in_a_frozen_container_is_frozen(make_pod: Callable[[str], Pod], version: str) -> None:
    pod = make_pod(version)
    scope = f"cri-containerd-{pod.id}.scope"
    pod.run(f"{scope}/init.scope")
    freezer = pod.freezer()
    assert asyncio.run(Freeze(WAIT_SECONDS).suspend((freezer,))).ok
    (pod.path / scope / "late").mkdir()
    late = pod.run(f"{scope}/late")
    end = time.monotonic() + WAIT_SECONDS
    while freezer.frost() is not FreezerState.FROZEN:
        assert time.monotonic() < end
        time.sleep(0.005)
    stopped = pod.counts()[late]
    time.sleep(0.1)
    assert pod.counts()[late] == stopped
    assert asyncio.run(Freeze(WAIT_SECONDS).resume((freezer,))).ok
    assert pod.all_count()


def test_a_cgroup_of_threads_hides_no_process(make_pod: Callable[[str], Pod]) -> None:
    """Its list of processes cannot be read (EOPNOTSUPP); that of the cgroup above it is complete."""
    pod = make_pod("v2")
    scope = f"cri-containerd-{pod.id}.scope"
    pod.run(scope)
    (pod.path / scope / "threads").mkdir()
    (pod.path / scope / "threads" / "cgroup.type").write_text("threaded")
    process = pod.running[0][0]
    (pod.path / scope / "threads" / "cgroup.threads").write_text(str(process.pid))
    with pytest.raises(OSError, match="not supported"):
        (pod.path / scope / "threads" / "cgroup.procs").read_text()
    assert pod.freezer().processes() == {process.pid}
