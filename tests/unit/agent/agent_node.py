"""A machine with an agent's observer, gates and executor, observed one step at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_builders import Machine, key

from podium_agent.metrics import Metrics
from podium_agent.observe.observer import Observer
from podium_agent.observe.pods import TrialPod
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.executor import (
    Executor,
    ExecutorHooks,
    TrialStart,
)
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_core.attempts.local_scheduler import QueueEntry, RunQueues, decide
from podium_core.attempts.local_trial import LocalTrial
from podium_core.schema.gpunode import SlotState
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.methods import SuspensionMethods


class Node(Machine):
    """A machine with an agent's observer, gates and executor."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.trial_records: dict[str, TrialRecord] = {}
        self.settled = asyncio.Event()
        self._start_agent()

    def restart_agent(self) -> None:
        """Start a new agent; only what the machine holds remains of the previous one."""
        for record in self.observer.records():
            self.observer._drop(record.processes)
        self._start_agent()

    def _start_agent(self) -> None:
        settings, self.notes = self.settings(), GpuStateNotes(self.folder / "gpu-state")
        methods = SuspensionMethods(Freeze(1.0), notes=self.notes)
        self.gates = Gates(settings.proc, lambda: None)
        admissions = Admissions(settings.admissions_dir)
        self.observer = Observer(settings, self.gates, admissions, methods, lambda: None)
        self.executor = Executor(
            self.observer,
            methods,
            TrialStart(self.gates, admissions, MemoryAdmission(self.observer.records, methods)),
            Metrics(),
            5.0,
            ExecutorHooks(self.trial_records.get, lambda: self.settled.set()),
        )

    def look(self, *pods: TrialPod, now: float = 1.0) -> tuple[LocalTrial, ...]:
        """Observe twice, since containers are searched at most twice a second; all trials are on GPU G."""
        for one in self.observer.records():
            one.processes.searched_at = 0.0
        self.observer.observe(pods, now)
        for one in self.observer.records():
            one.gpus = ("G",)
        return self.observer.observe(pods, now)

    def state(self, *pods: TrialPod) -> SlotState | None:
        """Of the first one."""
        trials = self.look(*pods)
        return trials[0].state if trials else None

    def steps(self, run_queues: RunQueues, *pods: TrialPod, now: float = 1.0) -> set[str]:
        steps = decide(run_queues, self.look(*pods, now=now), now)
        return {f"{type(step).__name__.lower()} {step.trial.pod.name} {step.reason}" for step in steps}

    def forget(self) -> None:
        """What runs here has ended: the observer closes what it watches."""
        for place in (self.folder / "cgroup").rglob("cgroup.procs"):
            place.write_text("")
        self.observer.observe((), 2.0)

    def waits_at_its_gate(self, one: TrialPod) -> None:
        self.gates._sessions[one.uid] = None  # type: ignore[assignment]


def order(*names: str) -> RunQueues:
    return RunQueues(1, {"G": tuple(QueueEntry(key(name)) for name in names)})
