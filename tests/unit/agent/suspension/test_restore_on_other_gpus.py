"""A trial that comes back on other GPUs of its node, by cuda-checkpoint: fake driver, real processes and cgroups."""

from __future__ import annotations

import asyncio
import os

import pytest
from cuda_node import until
from cuda_trial import SIZE, Trial, together, trial

from podium_agent.migration.errors import MigrationError
from podium_agent.migration.gpu_state import CheckpointedGpuState
from podium_suspension.base import SuspensionState
from podium_suspension.cuda import CudaDriver
from podium_suspension.cuda_checkpoint import NO_GPU_MAP
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes

__all__ = ["together", "trial"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")


def let_the_first_go_on(trial: Trial) -> None:
    """As a resumption does that dies before it comes to the second process: all are thawed, one works."""
    driver = CudaDriver(trial.node.library)
    for target in trial.targets:
        target.ask(False)
    until(lambda: Freeze(5.0).suspension_state(trial.targets) is SuspensionState.RUNNING, "thawed")
    driver.restore(trial.programs[0].pid)
    driver.unlock(trial.programs[0].pid)


def test_a_trial_of_one_process_is_restored_on_another_gpu(trial: Trial) -> None:
    program, targets = trial.programs[0], trial.targets[:1]
    home, away = trial.two_gpus()

    def on() -> set[str]:
        return set(read_memory().held_by(frozenset({program.pid})))

    assert on() == {home}
    assert asyncio.run(trial.method.suspend(targets)).ok
    incomplete = asyncio.run(trial.method.resume(targets, {away: home}))
    assert (incomplete.ok, incomplete.code) == (False, "GPUMapIncomplete"), incomplete
    assert trial.method.suspension_state(targets) is SuspensionState.SUSPENDED
    moved = asyncio.run(trial.method.resume(targets, {home: away}))
    assert (moved.ok, moved.code) == (True, "Moved"), moved
    assert on() == {away}
    assert program.continues()
    assert asyncio.run(trial.method.suspend(targets)).ok, "and from there as from anywhere"
    assert on() == set()
    assert asyncio.run(trial.method.resume(targets)).ok
    assert on() == {away}
    assert program.continues()
    assert program.steps()


def test_a_restore_waits_for_memory_on_the_other_gpu(trial: Trial) -> None:
    targets = trial.targets[:1]
    home, away = trial.two_gpus()
    assert asyncio.run(trial.method.suspend(targets)).ok
    trial.node.occupy_memory(1, SIZE - 1)
    outcome = asyncio.run(trial.method.resume(targets, {home: away}))
    assert (outcome.ok, outcome.code) == (False, "InsufficientGPUMemory"), outcome
    assert f"GPU {away} has " in outcome.message
    assert trial.method.suspension_state(targets) is SuspensionState.SUSPENDED
    trial.node.release_memory(1)
    assert asyncio.run(trial.method.resume(targets)).ok
    assert trial.all_work()


def test_all_processes_are_restored_on_another_gpu(trial: Trial) -> None:
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    moved = trial.resume({home: away})
    assert (moved.ok, moved.code, trial.suspension_state) == (True, "Moved", SuspensionState.RUNNING), moved
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()
    assert trial.suspend().ok, "and from there as from anywhere"
    assert trial.resume().ok
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()


@pytest.mark.parametrize("then", ["home", "away"])
@pytest.mark.parametrize("fresh", [False, True], ids=["same agent", "next agent"])
def test_one_of_two_processes_is_moved_and_the_other_refused(trial: Trial, then: str, fresh: bool) -> None:
    """All are off again, the first from another GPU than the second: the next try brings them together."""
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    trial.fault("fail=restore")
    for _ in range(2):
        refused = trial.resume({home: away})
        assert (refused.ok, refused.code) == (False, "RestoreRefused"), refused
        assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    mover = CheckpointedGpuState(
        trial.method._processes, GpuStateNotes(trial.folder / "gpu-state"), trial.targets[0].name, 9.0
    )
    trial.targets[0].ask(False)
    with pytest.raises(MigrationError, match="SplitAcrossGPUs"):
        asyncio.run(mover.confirm(trial.targets[0]))
    trial.node.clear_faults()
    if fresh:
        trial.method = trial.fresh()
    assert trial.resume({home: away} if then == "away" else NO_GPU_MAP).ok
    assert trial.on() == [{away if then == "away" else home: gpus[home]} for gpus in before]
    assert trial.all_work()
    assert trial.suspend().ok
    assert trial.resume().ok
    assert trial.all_work()


def test_a_failed_restore_on_the_own_gpu_is_recorded(trial: Trial) -> None:
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    for gpu_map in ({home: away}, NO_GPU_MAP):  # the first goes there and home again, the second stays
        trial.fault("fail=restore")
        assert trial.resume(gpu_map).code == "RestoreRefused"
        trial.node.clear_faults()
    assert trial.resume({home: away}).ok
    assert trial.on() == [{away: gpus[home]} for gpus in before]
    assert trial.all_work()


@pytest.mark.parametrize("gpu_map", ["home", "away"])
def test_a_running_process_is_suspended_with_the_others(trial: Trial, gpu_map: str) -> None:
    """A process that was resumed before another one was refused is suspended again with the others."""
    home, away = trial.two_gpus()
    assert trial.suspend().ok
    let_the_first_go_on(trial)
    if gpu_map == "home":
        trial.fault("fail=restore")
    assert not trial.resume(NO_GPU_MAP if gpu_map == "home" else {home: away}).ok
    assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    trial.node.clear_faults()
    assert trial.resume(NO_GPU_MAP if gpu_map == "home" else {home: away}).ok
    assert [set(gpus) for gpus in trial.on()] == [{home if gpu_map == "home" else away}] * 2
    assert trial.all_work()


@pytest.mark.parametrize("containers", ["trial", "together"])
def test_memory_allocated_since_the_suspension_is_noted_before_a_restore(
    containers: str, request: pytest.FixtureRequest
) -> None:
    """A restore without enough memory ends a process, so the note of its memory must be current.

    Only the note knows the memory of the processes that are still suspended.
    """
    trial: Trial = request.getfixturevalue(containers)
    assert trial.suspend().ok
    notes, container = GpuStateNotes(trial.folder / "gpu-state"), trial.targets[0].name
    held, note, less = (
        dict(notes.held_bytes(container)),
        notes.read(container),
        dict.fromkeys(notes.held_bytes(container), 1),
    )
    held_by_process = {**note.held_by_process, trial.programs[0].pid: less}
    notes.write(container, note.model_copy(update={"held": less, "held_by_process": held_by_process}))
    let_the_first_go_on(trial)
    trial.fault("fail=restore")
    assert trial.resume().code == "RestoreRefused"
    assert trial.suspension_state is SuspensionState.SUSPENDED
    assert notes.held_bytes(container) == held
    trial.node.clear_faults()
    assert trial.resume().ok
    assert trial.all_work()


@pytest.mark.parametrize("order", ["resume", "suspend"])
def test_an_agent_that_died_during_a_restore_on_another_gpu(trial: Trial, order: str) -> None:
    """The first process is on the other GPU, the second was not asked yet."""
    home, away = trial.two_gpus()
    before = trial.on()
    assert trial.suspend().ok
    dead, driver = trial.method, CudaDriver(trial.node.library)
    for target in trial.targets:
        target.ask(False)
    until(lambda: Freeze(5.0).suspension_state(trial.targets) is SuspensionState.RUNNING, "thawed")
    dead._set_target_gpus(trial.targets, {home: away})
    driver.restore(trial.programs[0].pid, {home: away})
    trial.method = trial.fresh()
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    if order == "suspend":
        assert trial.suspend().ok
        assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    assert trial.resume().ok, "it continues on the target GPU, or on its own once it is suspended again"
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
    assert trial.resume({first: second, second: second}).code == "GPUMapIncomplete"
    trial.fault("fail=restore")
    assert trial.resume(swap).code == "RestoreRefused"
    assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    trial.node.clear_faults()
    assert trial.resume(swap).ok
    assert trial.on() == [{swap[uuid]: count for uuid, count in gpus.items()} for gpus in before]
    assert trial.all_work()


def test_one_of_two_processes_is_moved_and_the_other_lost(trial: Trial) -> None:
    home, away = trial.two_gpus()
    assert trial.suspend().ok
    trial.fault("break=restore")
    assert trial.resume({home: away}).code == "CUDAFailed"
    for program in trial.programs:
        assert program.process.wait(20) == -9
    assert trial.suspension_state is SuspensionState.GONE
    assert not list((trial.folder / "gpu-state").iterdir())
