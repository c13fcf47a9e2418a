"""Containers that came checkpointed from another node: fake driver, real processes and cgroups."""

from __future__ import annotations

import asyncio
import os

import pytest
from cuda_node import until
from cuda_trial import SIZE, Trial, restored, together, trial

from podium_agent.migration import __main__ as by_hand
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.gpu_state import CheckpointedGpuState
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe.cgroups import Freezer
from podium_suspension import cuda_checkpoint, restores
from podium_suspension.base import SuspensionState
from podium_suspension.cuda import CudaDriver
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_memory import read_memory
from podium_suspension.gpu_state_notes import GpuState, GpuStateNotes
from podium_suspension.processes import CudaProcesses

__all__ = ["together", "trial"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")


def test_one_of_two_migrated_containers_is_refused(trial: Trial) -> None:
    """The first is on a GPU of this node from then on, the second still on its old one."""
    held = trial.held()
    _, new = restored(trial)
    trial.fault("fail=restore")
    for _ in range(2):
        assert trial.resume().code == "RestoreRefused"
        assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    trial.node.clear_faults()
    assert trial.resume().ok
    assert sum(gpus[new] for gpus in trial.on()) == held
    assert trial.all_work()


@pytest.mark.parametrize("suspended_again", [False, True])
def test_a_migrated_trial_is_restored_on_its_gpus_of_this_node(trial: Trial, suspended_again: bool) -> None:
    held = trial.held()
    old, new = restored(trial)
    if suspended_again:
        assert trial.suspend().ok
        assert trial.suspension_state is SuspensionState.SUSPENDED
    assert trial.resume().ok
    now = read_memory().held_by(frozenset(program.pid for program in trial.programs))
    assert (dict(now), trial.suspension_state) == ({new: held}, SuspensionState.RUNNING), old
    assert trial.all_work()
    assert trial.suspend().ok, "from now on it is suspended and resumed as any other"
    assert trial.resume().ok
    assert trial.all_work()


def test_a_migrated_trial_can_be_restored_on_another_gpu(trial: Trial) -> None:
    """The note names its GPU of this node, the caller names another one, and the driver gets its old GPU."""
    targets, (left, here) = trial.targets[:1], trial.two_gpus()
    assert asyncio.run(trial.method.suspend(targets)).ok
    notes, name = GpuStateNotes(trial.folder / "gpu-state"), targets[0].name
    gpu_state = GpuState(gpus=dict(notes.held_bytes(name)), processes=1)
    notes.remove(name)
    notes.add_migrated(name, gpu_state, (here,))
    trial.method = trial.fresh()
    moved = asyncio.run(trial.method.resume(targets, {here: left}))
    assert (moved.ok, moved.code) == (True, "Moved"), moved
    assert set(read_memory().held_by(frozenset({trial.programs[0].pid}))) == {left}
    assert trial.all_work()


def test_no_process_is_restored_before_all_are_registered(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_checkpoint, "REGISTRATION_SECONDS", 0.05)
    restored(trial, known=2)
    assert trial.resume().code == "ProcessesNotReady"
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    assert trial.held() == 0


class Clock:
    """A clock that advances by one step at each call."""

    def __init__(self, step: float) -> None:
        self.now, self._step = 0.0, step

    def monotonic(self) -> float:
        self.now += self._step
        return self.now


@pytest.mark.parametrize("suspended", [False, True])
def test_the_registration_time_does_not_run_while_the_trial_is_suspended(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, suspended: bool
) -> None:
    clock = Clock(cuda_checkpoint.REGISTRATION_SECONDS / 4)
    monkeypatch.setattr(restores, "time", clock)
    restored(trial, known=2)
    assert trial.resume().code == "ProcessesNotReady"
    if suspended:
        assert trial.suspend().ok
    clock.now += restores.LONGEST_SECONDS
    assert (trial.resume().code == "ProcessesNotReady") is suspended


def test_short_time_slices_add_up_to_the_registration_time(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each time slice started from zero, a trial that lost a process would never be restored."""
    clock = Clock(cuda_checkpoint.REGISTRATION_SECONDS / 4)
    monkeypatch.setattr(restores, "time", clock)
    restored(trial, known=2)
    for _ in range(2):
        assert trial.resume().code == "ProcessesNotReady"
        clock.now += restores.LONGEST_SECONDS / 2
        assert trial.suspend().ok
        clock.now += restores.LONGEST_SECONDS
    outcome = trial.resume()
    assert outcome.ok, outcome
    assert trial.all_work()


def test_the_next_agent_detects_a_restored_trial(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each agent notes once that a pod came. One of its processes has ended since, and its memory is a stranger's."""
    monkeypatch.setattr(cuda_checkpoint, "REGISTRATION_SECONDS", 0.05)
    old, new = restored(trial)
    assert trial.resume().ok
    trial.programs[1].end()
    full = read_memory().free[new]
    trial.node.overcommit_memory(1, full)
    after = GpuStateNotes(trial.folder / "gpu-state")
    for target in trial.targets:
        after.add_migrated(target.name, GpuState(gpus={old: SIZE}, processes=1), (new,))
    trial.method = trial.fresh()
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    assert trial.resume().ok
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.programs[0].continues()
    trial.node.release_memory(1)


def test_a_migrated_trial_waits_for_gpu_memory(trial: Trial) -> None:
    held = trial.held()
    restored(trial)
    trial.node.occupy_memory(1, held - 1)
    assert trial.resume().code == "InsufficientGPUMemory"
    trial.node.release_memory(1)
    assert trial.resume().ok
    assert trial.all_work()


def test_only_a_checkpointed_container_can_be_migrated(trial: Trial) -> None:
    notes = GpuStateNotes(trial.folder / "gpu-state")

    def asked(target: Freezer) -> str | int:
        try:
            return asyncio.run(CheckpointedGpuState(trial.method._processes, notes, "", 9.0).confirm(target))
        except MigrationError as refused:
            return refused.code

    first, empty = trial.targets[0], trial.targets[0].path / "empty"
    empty.mkdir()
    assert asked(first) == "GPUAttached"
    assert trial.suspend().ok
    first.ask(False)
    assert asked(first) == 1
    assert asked(Freezer(empty, first.unified)) == "GPUAttached", (
        "the driver does not know a process without a CUDA context"
    )
    empty.rmdir()
    assert trial.resume().ok


def test_the_agent_does_not_resume_a_migrating_container(trial: Trial) -> None:
    assert trial.suspend().ok
    target = trial.targets[0]
    mover = CheckpointedGpuState(trial.method._processes, GpuStateNotes(trial.folder / "gpu-state"), target.name, 60.0)
    with mover:
        for one in trial.targets:
            one.ask(False)
        until(lambda: Freeze(5.0).suspension_state(trial.targets) is SuspensionState.RUNNING, "thawed for the dump")
        assert trial.suspension_state is SuspensionState.SUSPENDED
        assert trial.resume().code == "MigrationInProgress"
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    assert trial.resume().ok
    assert trial.all_work()


def test_the_command_can_choose_another_gpu_after_a_refusal(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its two processes one is on the GPU that was named first, the other on its old node's still."""
    trial.targets = trial.targets[:1]
    (trial.targets[0].path / "cgroup.procs").write_text(str(trial.programs[1].pid))
    held = trial.held()
    old, new = restored(trial, known=2)
    settings = MigrationSettings(registry="none:5000")
    gpu_state, notes = GpuState(gpus={old: held}, processes=2), GpuStateNotes(trial.folder / "gpu-state")
    monkeypatch.setattr(by_hand, "_cuda", lambda _: CudaProcesses(CudaDriver(trial.node.library), *trial.waits))

    def restore(gpu: str) -> None:
        asyncio.run(by_hand._restore(settings, notes, trial.targets[0], gpu_state, (gpu,)))

    trial.fault("fail=restore")
    with pytest.raises(MigrationError, match="RestoreRefused"):
        restore(new)
    trial.node.clear_faults()
    restore(old)
    assert sum(gpus[old] for gpus in trial.on()) == held
    assert trial.all_work()


@pytest.mark.parametrize("restarted", [False, True])
def test_one_process_is_refused_after_the_other_was_restored(together: Trial, restarted: bool) -> None:
    """The other is checkpointed again, on a GPU of this node: each is brought back from where it was."""
    _, new = restored(together, known=2)
    together.fault("fail=restore")
    refused = together.resume()
    assert (refused.ok, refused.code, gpus(together)) == (False, "RestoreRefused", set()), refused
    assert together.suspension_state is SuspensionState.SUSPENDED
    (target,) = together.targets
    note = GpuStateNotes(together.folder / "gpu-state").read(target.name)
    assert note.is_split, "it cannot be migrated as it is"
    together.node.clear_faults()
    if restarted:
        together.method = together.fresh()
    outcome = together.resume()
    assert outcome.ok, outcome
    assert gpus(together) == {new}
    assert together.all_work()
    assert not list((together.folder / "gpu-state").iterdir())


def test_a_process_that_died_during_the_migration_is_not_awaited_for_ever(
    together: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_checkpoint, "REGISTRATION_SECONDS", 0.05)
    _, new = restored(together, known=3)
    assert together.resume().code == "ProcessesNotReady"
    assert together.resume().code == "ProcessesNotReady"
    monkeypatch.setattr(restores, "LONGEST_SECONDS", 0.0)
    outcome = together.resume()
    assert outcome.ok, outcome
    assert gpus(together) == {new}
    assert all(program.continues() for program in together.programs)


def gpus(trial: Trial) -> set[str]:
    return {uuid for held in trial.on() for uuid in held}
