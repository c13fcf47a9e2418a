"""The method cuda-checkpoint when something goes wrong at each of its steps: fake driver, real processes and cgroups.

The second of a trial's two processes is the one with the fault, so that there is always one to be brought back.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
from cuda_node import until
from cuda_trial import SIZE, Trial, trial

from podium_suspension import restores
from podium_suspension.base import RESTORE_SCRATCH, SuspensionOutcome, SuspensionState
from podium_suspension.cuda import OUT_OF_MEMORY, CudaDriver, CudaError, ProcessState
from podium_suspension.gpu_memory import GpuMemory, read_memory
from podium_suspension.gpu_state_notes import GpuStateNotes

__all__ = ["trial"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are root's")
ENDLESS = ("hang=", "busy=")


def test_a_suspension_frees_all_memory_and_a_resume_restores_it(trial: Trial) -> None:
    held = trial.held()
    assert held >= 2 * SIZE, "and with a real driver what a context takes"
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code, outcome.freed) == (True, "Checkpointed", held), outcome
    assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0)
    assert trial.resume().ok
    assert (trial.suspension_state, trial.held()) == (SuspensionState.RUNNING, held)
    assert trial.all_work()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("fail=lock", "LockRefused"),
        ("busy=1", "LockTimeout"),
        ("hang=lock", "LockTimeout"),
        ("fail=checkpoint", "CheckpointRefused"),
        ("hang=checkpoint", "CheckpointTimeout"),
        ("lie=1", "GPUMemoryNotReleased"),
    ],
)
def test_a_suspension_that_fails_is_undone(trial: Trial, fault: str, code: str) -> None:
    trial.fault(fault)
    if fault.startswith(ENDLESS):
        trial.gives_up_soon(fault)
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code) == (False, code), outcome
    assert trial.programs[0].continues(), "the one without a fault works again at once"
    trial.node.clear_faults()
    if (
        trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    ):  # a call that hung: the arbiter has it resumed until that is done
        until(lambda: trial.resume().ok, "made whole")
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.all_work()
    until(lambda: trial.suspend().ok, "and it can be suspended after all")
    assert trial.held() == 0


@pytest.mark.parametrize(
    ("fault", "code", "suspension_state"),
    [
        ("fail=restore", "RestoreRefused", SuspensionState.SUSPENDED),
        ("hang=restore", "RestoreTimeout", SuspensionState.PARTLY_SUSPENDED),
        ("fail=unlock", "UnlockRefused", SuspensionState.PARTLY_SUSPENDED),
        ("hang=unlock", "UnlockTimeout", SuspensionState.PARTLY_SUSPENDED),
    ],
)
def test_a_failed_resume_can_be_retried(trial: Trial, fault: str, code: str, suspension_state: SuspensionState) -> None:
    assert trial.suspend().ok
    trial.fault(fault)
    if fault.startswith(ENDLESS):
        trial.gives_up_soon(fault)
    outcome = trial.resume()
    assert (outcome.ok, outcome.code) == (False, code), outcome
    assert trial.suspension_state is suspension_state
    assert trial.fresh().suspension_state(trial.targets) is suspension_state, (
        "an agent that has just started sees it as well"
    )
    if suspension_state is SuspensionState.SUSPENDED:
        assert trial.held() == 0
    trial.node.clear_faults()
    until(lambda: trial.resume().ok, "resumed")
    assert trial.all_work()


def test_a_resume_waits_until_another_process_frees_the_memory(trial: Trial) -> None:
    """The driver would lose the process for good: it is not asked."""
    assert trial.suspend().ok
    trial.node.occupy_memory(0, SIZE)
    trial.method = trial.fresh()
    for _ in range(2):
        outcome = trial.resume()
        assert (outcome.ok, outcome.code) == (False, "InsufficientGPUMemory"), outcome
        assert trial.suspension_state is SuspensionState.SUSPENDED
    trial.node.release_memory(0)
    assert trial.resume().ok
    assert trial.all_work()


@pytest.mark.parametrize("when", ["checkpoint", "restore"])
def test_a_process_that_the_driver_has_lost_is_killed(trial: Trial, when: str) -> None:
    if when == "restore":
        assert trial.suspend().ok
    trial.fault(f"break={when}")
    outcome = trial.suspend() if when == "checkpoint" else trial.resume()
    assert not outcome.ok
    assert outcome.ended == tuple(sorted(program.pid for program in trial.programs))
    for program in trial.programs:
        assert program.process.wait(20) == -9
    assert trial.suspension_state is SuspensionState.GONE
    assert not list((trial.folder / "gpu-state").iterdir()), "nothing is noted of what is gone"


def test_a_process_lost_by_a_dead_agent_is_killed_after_a_minute(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore ran out of memory, and the agent died before the kill: the driver calls it CHECKPOINTED, no more."""
    assert trial.suspend().ok
    trial.node.occupy_memory(0, SIZE)
    driver, lost = CudaDriver(trial.node.library), trial.programs[1].pid
    for target in trial.targets:
        target.ask(False)
    with pytest.raises(CudaError) as short:
        driver.restore(lost)
    assert (short.value.code, driver.state(lost)) == (OUT_OF_MEMORY, ProcessState.CHECKPOINTED)
    trial.node.release_memory(0)
    trial.method = trial.fresh()
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    for _ in range(6):
        assert trial.resume().code == "RestoreRefused"
        assert (trial.suspension_state, trial.held()) == (SuspensionState.SUSPENDED, 0), "the minute is not over"
    monkeypatch.setattr(restores, "LOST_SECONDS", 0.0)
    outcome = trial.resume()
    assert outcome.code == "CUDAFailed"
    assert "although the memory is free; the trial continues from its last checkpoint" in outcome.message
    for program in trial.programs:
        assert program.process.wait(20) == -9
    assert trial.suspension_state is SuspensionState.GONE
    assert not list((trial.folder / "gpu-state").iterdir())


def test_refusals_count_only_the_seconds_of_attempts() -> None:
    times = iter((*range(0, 60, 5), 1000, 1100, 1105, 4700, 4705, 9000, 9100))
    seen = restores.RestoreRefusals(lambda: float(next(times)))
    assert not any(seen.lost(["a"]) for _ in range(12)), "the minute is not over"
    seen.forget(["a"])
    assert not any(seen.lost(["a"]) for _ in range(6)), "the hours between its turns count a quarter of a minute each"
    assert seen.lost(["a"]).startswith("the driver refused 7 times")


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_a_process_that_dies_during_a_step_does_not_block_the_others(trial: Trial, step: str) -> None:
    out = step in ("lock", "checkpoint")
    if not out:
        assert trial.suspend().ok
    trial.fault(f"hang={step}")
    states = {"lock": ProcessState.RUNNING, "checkpoint": ProcessState.LOCKED}
    states |= {"restore": ProcessState.CHECKPOINTED, "unlock": ProcessState.LOCKED}
    driver, dying = CudaDriver(trial.node.library), trial.programs[1]

    async def act() -> SuspensionOutcome:
        act = trial.method.suspend if out else trial.method.resume
        task = asyncio.ensure_future(act(trial.targets))
        asked = trial.method._processes._pending
        while dying.pid not in asked or driver.state(dying.pid) is not states[step]:
            assert not task.done(), "the step was never asked for"
            await asyncio.sleep(0.002)
        dying.process.kill()
        return await task

    outcome = asyncio.run(act())
    assert (outcome.ok, outcome.ended) == (True, (dying.pid,)), outcome
    assert trial.suspension_state is (SuspensionState.SUSPENDED if out else SuspensionState.RUNNING)
    if out:
        assert trial.resume().ended == ()
    assert trial.programs[0].continues()


@pytest.mark.parametrize("steps", [("lock",), ("lock", "checkpoint")])
def test_a_resume_completes_what_a_dead_agent_left_unfinished(trial: Trial, steps: tuple[str, ...]) -> None:
    driver, dead = CudaDriver(trial.node.library), GpuStateNotes(trial.folder / "gpu-state")
    for program, target in zip(trial.programs, trial.targets, strict=True):
        dead.write_held(target.name, read_memory().held_by(frozenset({program.pid})))
    driver.lock(trial.programs[0].pid, 5.0)
    if "checkpoint" in steps:
        driver.checkpoint(trial.programs[0].pid)
    trial.method = trial.fresh()
    assert trial.suspension_state is SuspensionState.PARTLY_SUSPENDED
    assert trial.resume().ok
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.all_work()


def test_a_cancelled_suspension_leaves_all_processes_running(trial: Trial) -> None:
    trial.fault("hang=checkpoint")

    async def cancel() -> None:
        task = asyncio.ensure_future(trial.method.suspend(trial.targets))
        driver = CudaDriver(trial.node.library)
        while driver.state(trial.programs[1].pid) is not ProcessState.LOCKED:  # noqa: ASYNC110 - the driver sends no event
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or not task.result().ok, "on a busy machine its own time may be over first"

    asyncio.run(cancel())
    trial.node.clear_faults()
    until(lambda: trial.resume().ok, "made whole")
    assert trial.all_work()


def test_a_trial_that_fills_its_gpu_is_not_suspended(trial: Trial) -> None:
    """A restore takes some more than it brings: it would find no room even alone, and the driver would lose it."""
    (uuid,) = read_memory().held_by(frozenset(program.pid for program in trial.programs))
    held = trial.held()
    full = {uuid: held + RESTORE_SCRATCH - 1}
    trial.method = trial.fresh(lambda: replace(read_memory(), usable=full))
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code) == (False, "InsufficientRestoreMemory"), outcome
    assert f"the trial holds {held} of the " in outcome.message
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.all_work()


def test_a_locked_process_needs_no_free_memory_to_continue(trial: Trial) -> None:
    """It gave some memory back before its lock was refused, and a stranger took that at once."""
    looks: list[GpuMemory] = []

    def memory() -> GpuMemory:
        found = read_memory()
        if looks:
            less = {pid: {uuid: count - 1 for uuid, count in held.items()} for pid, held in found.held.items()}
            found = replace(found, held=less, free=dict.fromkeys(found.free, 0))
        looks.append(found)
        return found

    trial.method = trial.fresh(memory)
    trial.fault("fail=lock")
    outcome = trial.suspend()
    assert (outcome.ok, outcome.code) == (False, "LockRefused"), outcome
    assert trial.suspension_state is SuspensionState.RUNNING
    assert trial.all_work()
