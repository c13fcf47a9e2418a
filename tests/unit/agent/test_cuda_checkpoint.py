"""The method cuda-checkpoint when something goes wrong at each of its steps: fake driver, real processes and cgroups.

The second of a trial's two processes is the one with the fault, so that there is always one to be brought back.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cuda_node import until

from podium_agent.cgroups import Freezer
from podium_agent.moving import __main__ as by_hand
from podium_agent.moving.gpus import OffGpus
from podium_agent.moving.refusal import MoveError
from podium_agent.moving.settings import MoveSettings
from podium_agent.suspension import cuda_checkpoint
from podium_agent.suspension import processes as cuda_processes
from podium_agent.suspension.base import Outcome, Standing
from podium_agent.suspension.cuda import CudaDriver, ProcessState
from podium_agent.suspension.cuda_checkpoint import NOWHERE, CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.memory import read_memory
from podium_agent.suspension.parked import Arrival, Parked
from podium_agent.suspension.processes import CudaProcesses

SIZE = 4 << 20
ENDLESS = ("hang=", "busy=")
V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")


@dataclass
class Trial:
    """Two processes, each in a container of its own, and an agent's method for them."""

    node: Any
    folder: Path
    programs: list[Any]
    targets: tuple[Freezer, ...]
    method: CudaCheckpoint
    waits: tuple[float, float] = (20.0, 60.0)  # seconds, for a lock and for a copy: also where the machine is busy

    def gives_up_soon(self) -> None:
        """For a fault whose call never ends."""
        self.waits = (0.2, 0.5)
        self.method = self.fresh()

    def fresh(self) -> CudaCheckpoint:
        """The method of an agent that has just started: it has the notes of the one before."""
        processes = CudaProcesses(CudaDriver(self.node.library), *self.waits)
        return CudaCheckpoint(processes, Freeze(5.0), Parked(self.folder / "parked"))

    def suspend(self) -> Outcome:
        return asyncio.run(self.method.suspend(self.targets))

    def resume(self, onto: Mapping[str, str] = NOWHERE) -> Outcome:
        return asyncio.run(self.method.resume(self.targets, onto))

    @property
    def standing(self) -> Standing:
        return self.method.standing(self.targets)

    def fault(self, *assignments: str) -> None:
        """On the second process."""
        self.node.fault(f"pid={self.programs[1].pid}", *assignments)

    def held(self) -> int:
        """Bytes that its processes hold now."""
        return sum(read_memory().of(frozenset(program.pid for program in self.programs)).values())

    def on(self) -> list[dict[str, int]]:
        """What each process holds on which GPU."""
        memory = read_memory()
        return [dict(memory.of(frozenset({program.pid}))) for program in self.programs]

    def two_gpus(self) -> tuple[str, str]:
        """Where its programs are (the first GPU), and another one."""
        (home,) = read_memory().of(frozenset(program.pid for program in self.programs))
        others = sorted(read_memory().free.keys() - {home})
        if not others:
            pytest.skip("one GPU")
        return home, others[0]

    def all_work(self) -> bool:
        """All go on, and none has lost or repeated a step."""
        return all(program.goes_on() and program.steps() for program in self.programs)


@pytest.fixture
def trial(cuda_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setattr(cuda_processes, "GRACE_SECONDS", 0.1)
    unified = not V1.is_dir()
    root = (V2 if unified else V1) / f"podium-cuda-{uuid.uuid4().hex[:8]}"
    programs, targets = [], []
    for number in range(2):
        path = root / f"container-{number}"
        path.mkdir(parents=True)
        programs.append(cuda_node.start(SIZE))
        (path / "cgroup.procs").write_text(str(programs[-1].pid))
        targets.append(Freezer(path, unified))
    made = Trial(cuda_node, tmp_path, programs, tuple(targets), None)  # type: ignore[arg-type]
    made.method = made.fresh()
    yield made
    cuda_node.clear_faults()
    for target in targets:
        target.ask(False)
    for program in programs:
        program.end()

    def removed(path: Path) -> bool:
        with suppress(OSError):
            path.rmdir()
        return not path.exists()

    for path in (*(target.path for target in targets), root):
        until(lambda path=path: removed(path), "an empty cgroup")


def test_what_it_frees_is_what_it_says_and_all_of_it_comes_back(trial: Trial) -> None:
    held = trial.held()
    assert held >= 2 * SIZE, "and with a real driver what a context takes"
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code, outcome.freed) == (True, "Checkpointed", held), outcome
    assert (trial.standing, trial.held()) == (Standing.PARKED, 0)
    assert trial.resume().ok
    assert (trial.standing, trial.held()) == (Standing.WORKING, held)
    assert trial.all_work()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("fail=lock", "LockRefused"),
        ("busy=1", "LockTimeout"),
        ("hang=lock", "LockTimeout"),
        ("fail=checkpoint", "CheckpointRefused"),
        ("hang=checkpoint", "CheckpointTimeout"),
        ("lie=1", "NotReleased"),
    ],
)
def test_a_suspension_that_fails_is_undone(trial: Trial, fault: str, code: str) -> None:
    trial.fault(fault)
    if fault.startswith(ENDLESS):
        trial.gives_up_soon()
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code) == (False, code), outcome
    assert trial.programs[0].goes_on(), "the one without a fault works again at once"
    trial.node.clear_faults()
    if trial.standing is Standing.TORN:  # a call that hung: the arbiter has it resumed until that is done
        until(lambda: trial.resume().ok, "made whole")
    assert trial.standing is Standing.WORKING
    assert trial.all_work()
    until(lambda: trial.suspend().ok, "and it can be suspended after all")
    assert trial.held() == 0


@pytest.mark.parametrize(
    ("fault", "code", "standing"),
    [
        ("fail=restore", "RestoreRefused", Standing.PARKED),
        ("hang=restore", "RestoreTimeout", Standing.TORN),
        ("fail=unlock", "UnlockRefused", Standing.TORN),
        ("hang=unlock", "UnlockTimeout", Standing.TORN),
    ],
)
def test_a_resumption_that_fails_can_be_tried_again(trial: Trial, fault: str, code: str, standing: Standing) -> None:
    assert trial.suspend().ok
    trial.fault(fault)
    if fault.startswith(ENDLESS):
        trial.gives_up_soon()
    outcome = trial.resume()
    assert (outcome.ok, outcome.code) == (False, code), outcome
    assert trial.standing is standing
    assert trial.fresh().standing(trial.targets) is standing, "an agent that has just started sees it as well"
    if standing is Standing.PARKED:
        assert trial.held() == 0
    trial.node.clear_faults()
    until(lambda: trial.resume().ok, "resumed")
    assert trial.all_work()


def test_a_stranger_who_took_the_memory_costs_nothing_but_time(trial: Trial) -> None:
    """The driver would lose the process for good: it is not asked."""
    assert trial.suspend().ok
    trial.node.stranger(0, (16 << 30) - SIZE)
    trial.method = trial.fresh()
    for _ in range(2):
        outcome = trial.resume()
        assert (outcome.ok, outcome.code) == (False, "NoMemory"), outcome
        assert trial.standing is Standing.PARKED
    trial.node.stranger(0, 0)
    assert trial.resume().ok
    assert trial.all_work()


def test_a_trial_of_one_process_comes_back_on_another_gpu(trial: Trial) -> None:
    program, targets = trial.programs[0], trial.targets[:1]
    home, away = trial.two_gpus()

    def on() -> set[str]:
        return set(read_memory().of(frozenset({program.pid})))

    assert on() == {home}
    assert asyncio.run(trial.method.suspend(targets)).ok
    incomplete = asyncio.run(trial.method.resume(targets, {away: home}))
    assert (incomplete.ok, incomplete.code) == (False, "MapIncomplete"), incomplete
    assert trial.method.standing(targets) is Standing.PARKED
    moved = asyncio.run(trial.method.resume(targets, {home: away}))
    assert (moved.ok, moved.code) == (True, "Moved"), moved
    assert on() == {away}
    assert program.goes_on()
    assert asyncio.run(trial.method.suspend(targets)).ok, "and from there as from anywhere"
    assert on() == set()
    assert asyncio.run(trial.method.resume(targets)).ok
    assert on() == {away}
    assert program.goes_on()
    assert program.steps()


def test_no_memory_on_the_other_gpu_costs_nothing_but_time(trial: Trial) -> None:
    targets = trial.targets[:1]
    home, away = trial.two_gpus()
    assert asyncio.run(trial.method.suspend(targets)).ok
    trial.node.stranger(1, (16 << 30) - SIZE + 1)
    outcome = asyncio.run(trial.method.resume(targets, {home: away}))
    assert (outcome.ok, outcome.code) == (False, "NoMemory"), outcome
    assert f"GPU {away} has " in outcome.message
    assert trial.method.standing(targets) is Standing.PARKED
    trial.node.stranger(1, 0)
    assert asyncio.run(trial.method.resume(targets)).ok
    assert trial.all_work()


def test_all_processes_come_back_on_another_gpu(trial: Trial) -> None:
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    moved = trial.resume({home: away})
    assert (moved.ok, moved.code, trial.standing) == (True, "Moved", Standing.WORKING), moved
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()
    assert trial.suspend().ok, "and from there as from anywhere"
    assert trial.resume().ok
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()


@pytest.mark.parametrize("then", ["home", "away"])
@pytest.mark.parametrize("fresh", [False, True], ids=["same agent", "next agent"])
def test_of_two_one_is_moved_and_the_other_refused(trial: Trial, then: str, fresh: bool) -> None:
    """All are off again, the first from another GPU than the second: the next try brings them together."""
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    trial.fault("fail=restore")
    for _ in range(2):
        refused = trial.resume({home: away})
        assert (refused.ok, refused.code) == (False, "RestoreRefused"), refused
        assert (trial.standing, trial.held()) == (Standing.PARKED, 0)
    mover = OffGpus(trial.method._processes, Parked(trial.folder / "parked"), trial.targets[0].path.name, 9.0)
    trial.targets[0].ask(False)
    with pytest.raises(MoveError, match="OnSeveralGpus"):
        asyncio.run(mover.confirm(trial.targets[0]))
    trial.node.clear_faults()
    if fresh:
        trial.method = trial.fresh()
    assert trial.resume({home: away} if then == "away" else NOWHERE).ok
    assert trial.on() == [{away if then == "away" else home: gpus[home]} for gpus in before]
    assert trial.all_work()
    assert trial.suspend().ok
    assert trial.resume().ok
    assert trial.all_work()


def test_a_way_home_that_fails_in_the_middle_is_known_as_well(trial: Trial) -> None:
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    for onto in ({home: away}, NOWHERE):  # the first goes there and home again, the second stays
        trial.fault("fail=restore")
        assert trial.resume(onto).code == "RestoreRefused"
        trial.node.clear_faults()
    assert trial.resume({home: away}).ok
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()


@pytest.mark.parametrize("order", ["resume", "suspend"])
def test_an_agent_that_died_in_the_middle_of_a_move(trial: Trial, order: str) -> None:
    """The first process is on the other GPU, the second was not asked yet."""
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    dead, driver = trial.method, CudaDriver(trial.node.library)
    for target in trial.targets:
        target.ask(False)
    until(lambda: Freeze(5.0).standing(trial.targets) is Standing.WORKING, "thawed")
    dead._aim(trial.targets, {home: away})
    driver.restore(trial.programs[0].pid, {home: away})
    trial.method = trial.fresh()
    assert trial.standing is Standing.TORN
    if order == "suspend":
        assert trial.suspend().ok
        assert (trial.standing, trial.held()) == (Standing.PARKED, 0)
    assert trial.resume().ok, "it goes on to where it was aimed, or home once it is off again"
    assert trial.on() == [{away if order == "resume" else home: gpus[home]} for gpus in before]
    assert trial.all_work()


def test_a_trial_on_two_gpus_swaps_them(trial: Trial) -> None:
    """Each process gets the pairs of its own GPUs; the one with the fault is on the first, with another that moves."""
    first, second = trial.two_gpus()
    trial.programs.append(trial.node.start(SIZE, gpu=1))
    (trial.targets[1].path / "cgroup.procs").write_text(str(trial.programs[2].pid))
    before = trial.on()
    swap = {first: second, second: first}
    assert trial.suspend().ok
    assert trial.resume({first: second, second: second}).code == "MapIncomplete"
    trial.fault("fail=restore")
    assert trial.resume(swap).code == "RestoreRefused"
    assert (trial.standing, trial.held()) == (Standing.PARKED, 0)
    trial.node.clear_faults()
    assert trial.resume(swap).ok
    assert trial.on() == [{swap[uuid]: count for uuid, count in gpus.items()} for gpus in before]
    assert trial.all_work()


def test_of_two_one_is_moved_and_the_other_lost(trial: Trial) -> None:
    home, away = trial.two_gpus()
    assert trial.suspend().ok
    trial.fault("break=restore")
    assert trial.resume({home: away}).code == "CudaFailed"
    for program in trial.programs:
        assert program.process.wait(20) == -9
    assert trial.standing is Standing.GONE
    assert not list((trial.folder / "parked").iterdir())


def test_of_two_that_came_from_another_node_one_is_refused(trial: Trial) -> None:
    """The first is on a GPU of this node from then on, the second still on its old one."""
    held = trial.held()
    _, new = carried(trial)
    trial.fault("fail=restore")
    for _ in range(2):
        assert trial.resume().code == "RestoreRefused"
        assert (trial.standing, trial.held()) == (Standing.PARKED, 0)
    trial.node.clear_faults()
    assert trial.resume().ok
    assert sum(gpus[new] for gpus in trial.on()) == held
    assert trial.all_work()


@pytest.mark.parametrize("when", ["checkpoint", "restore"])
def test_a_process_that_the_driver_has_lost_is_killed(trial: Trial, when: str) -> None:
    if when == "restore":
        assert trial.suspend().ok
    trial.fault(f"break={when}")
    outcome = trial.suspend() if when == "checkpoint" else trial.resume()
    assert not outcome.ok
    for program in trial.programs:
        assert program.process.wait(20) == -9
    assert trial.standing is Standing.GONE
    assert not list((trial.folder / "parked").iterdir()), "nothing is noted of what is gone"


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_a_process_that_dies_over_a_step_keeps_nobody(trial: Trial, step: str) -> None:
    out = step in ("lock", "checkpoint")
    if not out:
        assert trial.suspend().ok
    trial.fault(f"hang={step}")
    states = {"lock": ProcessState.RUNNING, "checkpoint": ProcessState.LOCKED}
    states |= {"restore": ProcessState.CHECKPOINTED, "unlock": ProcessState.LOCKED}
    driver, dying = CudaDriver(trial.node.library), trial.programs[1]

    async def act() -> Outcome:
        act = trial.method.suspend if out else trial.method.resume
        task = asyncio.ensure_future(act(trial.targets))
        asked = trial.method._processes._under_way
        while dying.pid not in asked or driver.state(dying.pid) is not states[step]:
            assert not task.done(), "the step was never asked for"
            await asyncio.sleep(0.002)
        dying.process.kill()
        return await task

    assert asyncio.run(act()).ok
    assert trial.standing is (Standing.PARKED if out else Standing.WORKING)
    if out:
        assert trial.resume().ok
    assert trial.programs[0].goes_on()


@pytest.mark.parametrize("steps", [("lock",), ("lock", "checkpoint")])
def test_what_an_agent_left_when_it_died_is_torn_and_made_whole(trial: Trial, steps: tuple[str, ...]) -> None:
    driver, dead = CudaDriver(trial.node.library), Parked(trial.folder / "parked")
    for program, target in zip(trial.programs, trial.targets, strict=True):
        dead.note(target.path.name, read_memory().of(frozenset({program.pid})))
    driver.lock(trial.programs[0].pid, 5.0)
    if "checkpoint" in steps:
        driver.checkpoint(trial.programs[0].pid)
    trial.method = trial.fresh()
    assert trial.standing is Standing.TORN
    assert trial.resume().ok
    assert trial.standing is Standing.WORKING
    assert trial.all_work()


def test_a_cancelled_suspension_leaves_all_at_work(trial: Trial) -> None:
    trial.fault("hang=checkpoint")

    async def cancel() -> None:
        task = asyncio.ensure_future(trial.method.suspend(trial.targets))
        driver = CudaDriver(trial.node.library)
        while driver.state(trial.programs[1].pid) is not ProcessState.LOCKED:  # noqa: ASYNC110 - the driver tells nobody
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or not task.result().ok, "on a busy machine its own time may be over first"

    asyncio.run(cancel())
    trial.node.clear_faults()
    until(lambda: trial.resume().ok, "made whole")
    assert trial.all_work()


def carried(trial: Trial, known: int = 1) -> tuple[str, str]:
    """Suspended, and found as a container is that has come from another node; (the GPU that it left, the one here)."""
    memory = read_memory()
    if len(memory.free) < 2:
        pytest.skip("it takes two GPUs to come back on another one")
    (old,) = memory.of(frozenset(program.pid for program in trial.programs))
    new = next(uuid for uuid in memory.free if uuid != old)
    assert trial.suspend().ok
    left = Parked(trial.folder / "parked")
    for target in trial.targets:
        arrival = Arrival(gpus=dict(left.read(target.path.name)), processes=known)
        left.forget(target.path.name)
        left.arrives(target.path.name, arrival, (new,))
        target.ask(False)
    trial.method = trial.fresh()
    until(lambda: trial.standing is Standing.TORN, "its processes run and wait for their GPU")
    return old, new


@pytest.mark.parametrize("suspended_again", [False, True])
def test_what_came_from_another_node_comes_back_onto_the_gpus_that_it_has_here(
    trial: Trial, suspended_again: bool
) -> None:
    held = trial.held()
    old, new = carried(trial)
    if suspended_again:
        assert trial.suspend().ok
        assert trial.standing is Standing.PARKED
    assert trial.resume().ok
    now = read_memory().of(frozenset(program.pid for program in trial.programs))
    assert (dict(now), trial.standing) == ({new: held}, Standing.WORKING), old
    assert trial.all_work()
    assert trial.suspend().ok, "from now on it is suspended and resumed as any other"
    assert trial.resume().ok
    assert trial.all_work()


def test_what_came_from_another_node_may_still_be_sent_to_another_gpu(trial: Trial) -> None:
    """Its note names the GPU that it has here, the caller another one; the driver is told where it was."""
    targets, (left, here) = trial.targets[:1], trial.two_gpus()
    assert asyncio.run(trial.method.suspend(targets)).ok
    parked, name = Parked(trial.folder / "parked"), targets[0].path.name
    arrival = Arrival(gpus=dict(parked.read(name)), processes=1)
    parked.forget(name)
    parked.arrives(name, arrival, (here,))
    trial.method = trial.fresh()
    moved = asyncio.run(trial.method.resume(targets, {here: left}))
    assert (moved.ok, moved.code) == (True, "Moved"), moved
    assert set(read_memory().of(frozenset({trial.programs[0].pid}))) == {left}
    assert trial.all_work()


def test_nobody_comes_back_before_all_are_there(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_checkpoint, "ARRIVE_SECONDS", 0.05)
    carried(trial, known=2)
    assert trial.resume().code == "NotThereYet"
    assert trial.standing is Standing.TORN
    assert trial.held() == 0


def test_the_next_agent_finds_that_it_is_back(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each agent notes once that a pod came. One of its processes has ended since, and its memory is a stranger's."""
    monkeypatch.setattr(cuda_checkpoint, "ARRIVE_SECONDS", 0.05)
    old, new = carried(trial)
    assert trial.resume().ok
    trial.programs[1].end()
    full = read_memory().free[new]
    trial.node.stranger(1, full)
    after = Parked(trial.folder / "parked")
    for target in trial.targets:
        after.arrives(target.path.name, Arrival(gpus={old: SIZE}, processes=1), (new,))
    trial.method = trial.fresh()
    assert trial.standing is Standing.TORN
    assert trial.resume().ok
    assert trial.standing is Standing.WORKING
    assert trial.programs[0].goes_on()
    trial.node.stranger(1, 0)


def test_what_came_waits_for_room(trial: Trial) -> None:
    held = trial.held()
    _, new = carried(trial)
    full = read_memory().free[new] - held + 1
    trial.node.stranger(1, full)
    assert trial.resume().code == "NoMemory"
    trial.node.stranger(1, 0)
    assert trial.resume().ok
    assert trial.all_work()


def test_only_what_the_driver_has_checkpointed_may_leave(trial: Trial) -> None:
    parked = Parked(trial.folder / "parked")

    def asked(target: Freezer) -> str | int:
        try:
            return asyncio.run(OffGpus(trial.method._processes, parked, "", 9.0).confirm(target))
        except MoveError as refused:
            return refused.code

    first, empty = trial.targets[0], trial.targets[0].path / "empty"
    empty.mkdir()
    assert asked(first) == "HoldsGpu"
    assert trial.suspend().ok
    first.ask(False)
    assert asked(first) == 1
    assert asked(Freezer(empty, first.unified)) == "HoldsGpu", "nobody knows what does not hold CUDA by the driver"
    empty.rmdir()
    assert trial.resume().ok


def test_while_it_is_carried_away_its_agent_lets_it_be(trial: Trial) -> None:
    assert trial.suspend().ok
    target = trial.targets[0]
    mover = OffGpus(trial.method._processes, Parked(trial.folder / "parked"), target.path.name, 60.0)
    with mover:
        for one in trial.targets:
            one.ask(False)
        until(lambda: Freeze(5.0).standing(trial.targets) is Standing.WORKING, "thawed for the dump")
        assert trial.standing is Standing.PARKED
        assert trial.resume().code == "Leaving"
    assert trial.standing is Standing.TORN
    assert trial.resume().ok
    assert trial.all_work()


def test_by_hand_it_may_be_sent_elsewhere_after_a_refusal(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its two processes one is on the GPU that was named first, the other on its old node's still."""
    trial.targets = trial.targets[:1]
    (trial.targets[0].path / "cgroup.procs").write_text(str(trial.programs[1].pid))
    held = trial.held()
    old, new = carried(trial, known=2)
    settings = MoveSettings(registry="none:5000")
    arrival, parked = Arrival(gpus={old: held}, processes=2), Parked(trial.folder / "parked")
    monkeypatch.setattr(by_hand, "_cuda", lambda _: CudaProcesses(CudaDriver(trial.node.library), *trial.waits))

    def bring_back(gpu: str) -> None:
        asyncio.run(by_hand._bring_back(settings, parked, trial.targets[0], arrival, (gpu,)))

    trial.fault("fail=restore")
    with pytest.raises(MoveError, match="RestoreRefused"):
        bring_back(new)
    trial.node.clear_faults()
    bring_back(old)
    assert sum(gpus[old] for gpus in trial.on()) == held
    assert trial.all_work()
