"""Saves of a running trial, as its writer sees them: while it works, and the last one after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_builders import FIRST_PID, TrialServer, pod
from agent_writing import Writing, end, kill, started

from podium_agent.observe.cgroups import Container
from podium_core.attempts.lost_work import GateReport
from podium_core.attempts.usage_ledger import SuspensionCost
from podium_core.schema.gpunode import SlotState

TRAIN = "ab" * 32
RUNNING, SUSPENDED = SlotState.RUNNING, SlotState.SUSPENDED


class Saving:
    """A trial whose container saves into its folder."""

    def __init__(self, writing: Writing) -> None:
        self.machine, self.server = writing.machine, writing.server
        self.pod = pod(settings__checkpoint="/ckpt", containers__main=TRAIN)
        self.freezer = self.machine.run(self.pod, TRAIN)
        self.folder = self.machine.root(TRAIN) / "ckpt"
        self.folder.mkdir()
        self.trial_record = started(self.pod, GateReport(None))

    def found(self) -> None:
        self.trial_record.main = Container(TRAIN, FIRST_PID, self.freezer)
        self.trial_record.follow(RUNNING, ("A",), 100.0)

    def save(self, step: int) -> None:
        (self.folder / "aside").write_text(f'{{"step": {step}, "path": "step-{step}", "onRequest": true}}')
        (self.folder / "aside").replace(self.folder / "podium-checkpoint.json")

    def step(self) -> float | None:
        saved = self.server.parsed.checkpoint
        return None if saved is None else saved.step


def test_checkpoints_are_seen_while_the_trial_runs_and_after_its_end(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        trial = Saving(writing)
        task = writing.start(trial.trial_record)
        trial.found()
        for step in (3, 4):
            trial.save(step)
            await writing.until(lambda n=step: trial.step() == n, f"save {step}")
        trial.save(5)  # it ends at once: only an open folder still shows its files
        trial.machine.end(trial.freezer)
        end(trial.trial_record)
        await asyncio.wait_for(task, 300)

    saved = write(scene).parsed.checkpoint
    assert saved is not None
    assert (saved.step, saved.path, saved.node, saved.attempt) == (5.0, "step-5", "n", 0)


def test_a_checkpoint_seen_again_keeps_its_time_and_gpu_seconds(
    write: Callable[..., TrialServer],
) -> None:
    seen: list[Any] = []

    async def scene(writing: Writing) -> None:
        trial = Saving(writing)
        trial.save(3)
        for _ in range(2):
            trial.trial_record = started(trial.pod)
            task = writing.start(trial.trial_record, holder_report_seconds=0.01)
            trial.found()
            before = writing.server.patches
            await writing.until(lambda n=before: writing.server.patches > n + 2 and trial.step() == 3.0, "the save")
            seen.append(writing.server.status["checkpoint"])
            await kill(task)

    write(scene)
    assert seen[0] == seen[1]


def test_checkpoints_and_suspensions_are_kept_without_the_api(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        writing.server.away = True
        trial = Saving(writing)
        task = writing.start(trial.trial_record)
        trial.found()
        trial.save(3)
        trial.trial_record.suspended(SuspensionCost("freeze", 110.0, 0.5))
        await writing.until(lambda: trial.trial_record.writing.version >= 3, "the save noted")
        end(trial.trial_record)
        writing.server.away = False
        await asyncio.wait_for(task, 300)

    status = write(scene).parsed
    assert status.checkpoint is not None
    assert (status.checkpoint.step, status.suspensions.count) == (3.0, 1)


def test_a_frozen_trial_is_checked_once(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        trial = Saving(writing)
        trial.save(3)
        task = writing.start(trial.trial_record)
        trial.found()
        trial.trial_record.follow(SUSPENDED, ("A",), 110.0)
        await writing.until(lambda: trial.step() == 3.0, "its last save")
        trial.save(4)  # no check: it is frozen
        before = writing.server.patches
        trial.trial_record.suspended(SuspensionCost("freeze", 110.0, 0.5))
        await writing.until(lambda: writing.server.patches > before, "a turn of the writer")
        assert trial.step() == 3.0
        trial.trial_record.follow(RUNNING, ("A",), 120.0)
        await writing.until(lambda: trial.step() == 4.0, "it works again")
        await kill(task)

    write(scene)
