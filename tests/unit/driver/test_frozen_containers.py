"""The daemon's measurements of a frozen container: its ID from the cgroup, and no work."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CONTAINER = "5eed" * 16
V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")


class Cgroup:
    """A cgroup as a container runtime creates it, of cgroup version 1 or 2."""

    def __init__(self, root: Path, v1: bool) -> None:
        self.parent = root / f"kubepods-test-{uuid.uuid4().hex[:8]}"
        self.folder = self.parent / CONTAINER
        self.folder.mkdir(parents=True)
        self._file, self._frozen, self._thawed = (
            (self.folder / "freezer.state", "FROZEN", "THAWED") if v1 else (self.folder / "cgroup.freeze", "1", "0")
        )

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def freeze(self) -> None:
        self._file.write_text(self._frozen)

    def frozen(self) -> bool:
        if self._frozen == "1":
            return "frozen 1" in (self.folder / "cgroup.events").read_text()
        return self._file.read_text().strip() == "FROZEN"

    def thaw(self) -> None:
        self._file.write_text(self._thawed)

    def empty(self) -> bool:
        return not (self.folder / "cgroup.procs").read_text()


@pytest.fixture
def cgroup(until: Callable[..., None]) -> Iterator[Cgroup]:
    v1 = (V1 / "cgroup.procs").exists()
    try:
        made = Cgroup(V1 if v1 else V2, v1)
    except OSError as error:
        pytest.skip(f"cannot create a cgroup: {error}")
    yield made
    made.thaw()
    for pid in (made.folder / "cgroup.procs").read_text().split():
        os.kill(int(pid), 9)
    until(made.empty, "an empty cgroup")
    made.folder.rmdir()
    made.parent.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create cgroups")
def test_a_frozen_container_does_no_work(gpud: Any, cgroup: Cgroup, until: Callable[..., None]) -> None:
    worker = gpud.work(gpud.uuid(0), memory=1 << 30)
    cgroup.add(worker.pid)
    witness = gpud.work(gpud.uuid(1))

    def works_since(pid: int, moment: float) -> bool:
        return any(i.pid == pid and i.certain_start > moment for i in gpud.log())

    until(lambda: any(i.container == CONTAINER for i in gpud.log()), "the container ID in the log")
    cgroup.freeze()
    until(cgroup.frozen, "frozen")
    frozen = time.monotonic()
    until(lambda: works_since(witness.pid, frozen + 0.5), "half a second of another process's work")
    utilisation = "answer = [n.nvmlDeviceGetUtilizationRates(h[0]).gpu, n.nvmlDeviceGetMemoryInfo(h[0]).used >> 30]"
    until(lambda: gpud.nvml(utilisation) == [0, 1], "an idle GPU whose memory is still in use")
    thawed = time.monotonic()
    cgroup.thaw()
    until(lambda: works_since(worker.pid, thawed), "work after the thaw")
    mine = [i for i in gpud.log() if i.pid == worker.pid]
    assert [i for i in mine if i.certain_end > frozen and i.certain_start < thawed] == []
