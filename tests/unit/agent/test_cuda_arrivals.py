"""A container of several processes that came checkpointed from another node: fake driver, real processes and cgroup."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cuda_node import until

from podium_agent.cgroups import Freezer
from podium_agent.suspension import arrivals, cuda_checkpoint
from podium_agent.suspension.base import Outcome, Standing
from podium_agent.suspension.cuda import CudaDriver
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.memory import read_memory
from podium_agent.suspension.parked import Arrival, Parked
from podium_agent.suspension.processes import CudaProcesses

SIZE = 4 << 20
V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")


@dataclass
class Came:
    """Two processes on the first GPU, in one container."""

    node: Any
    folder: Path
    target: Freezer
    programs: list[Any]

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """An agent that knows nothing but the notes."""
        processes = CudaProcesses(CudaDriver(self.node.library), 20.0, 60.0)
        self.method = CudaCheckpoint(processes, Freeze(5.0), Parked(self.folder / "parked"))

    def resume(self) -> Outcome:
        return asyncio.run(self.method.resume((self.target,)))

    def suspend(self) -> Outcome:
        return asyncio.run(self.method.suspend((self.target,)))

    def gpus(self) -> set[str]:
        return set(read_memory().of(frozenset(program.pid for program in self.programs)))

    def arrive(self, processes: int = 2) -> str:
        """Suspended, thawed, and noted as one that came; the GPU that it is to have instead of its first."""
        (old,) = self.gpus()
        others = sorted(read_memory().free.keys() - {old})
        if not others:
            pytest.skip("it takes two GPUs to come back on another one")
        assert self.suspend().ok
        left, name = Parked(self.folder / "parked"), self.target.path.name
        arrival = Arrival(gpus=dict(left.read(name)), processes=processes)
        left.forget(name)
        left.arrives(name, arrival, (others[0],))
        self.target.ask(False)
        self.restart()
        until(lambda: self.method.standing((self.target,)) is Standing.TORN, "its processes run, and wait")
        return others[0]


@pytest.fixture
def came(cuda_node: Any, tmp_path: Path) -> Iterator[Came]:
    unified = not V1.is_dir()
    path = (V2 if unified else V1) / f"podium-came-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    programs = [cuda_node.start(SIZE) for _ in range(2)]
    for program in programs:
        (path / "cgroup.procs").write_text(str(program.pid))
    made = Came(cuda_node, tmp_path, Freezer(path, unified), programs)
    yield made
    cuda_node.clear_faults()
    made.target.ask(False)
    for program in programs:
        program.end()

    def removed() -> bool:
        with suppress(OSError):
            path.rmdir()
        return not path.exists()

    until(removed, "an empty cgroup")


@pytest.mark.parametrize("restarted", [False, True])
def test_one_is_refused_after_the_other_was_brought_back(came: Came, restarted: bool) -> None:
    """The other is checkpointed again, on a GPU of this node: each is brought back from where it was."""
    new = came.arrive()
    came.node.fault(f"pid={came.programs[1].pid}", "fail=restore")
    refused = came.resume()
    assert (refused.ok, refused.code, came.gpus()) == (False, "RestoreRefused", set()), refused
    assert came.method.standing((came.target,)) is Standing.PARKED
    assert Parked(came.folder / "parked").whole(came.target.path.name).apart, "it cannot be carried on as it is"
    came.node.clear_faults()
    if restarted:
        came.restart()
    outcome = came.resume()
    assert outcome.ok, outcome
    assert came.gpus() == {new}
    assert all(program.goes_on() and program.steps() for program in came.programs)
    assert not list((came.folder / "parked").iterdir())


def test_one_that_died_on_the_way_is_not_waited_for_for_ever(came: Came, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_checkpoint, "ARRIVE_SECONDS", 0.05)
    new = came.arrive(processes=3)
    assert came.resume().code == "NotThereYet"
    assert came.resume().code == "NotThereYet"
    monkeypatch.setattr(arrivals, "LONGEST_SECONDS", 0.0)
    outcome = came.resume()
    assert outcome.ok, outcome
    assert came.gpus() == {new}
    assert all(program.goes_on() for program in came.programs)
