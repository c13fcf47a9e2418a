"""Podium on one machine without Kubernetes: the operator's own `plan`, applied to processes.

It serves bench-rivals alone. A core stands for a GPU; SIGSTOP and SIGCONT suspend and resume. As with the agent, the
next trial of a run queue starts only when the previous holder is stopped or gone. Nodes, images and the delay of the
API, which one machine does not have, are left out.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType

from benchmarks.rivals.training import Training
from podium_core.domain.actions import Action, CreatePod, CreateTrial, DeletePod, EndJob, EndTrial, WriteRunQueues
from podium_core.domain.gpu_view import GpuView, RunQueueView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.pod_view import PodView
from podium_core.domain.snapshot import Costs, JobView, Point, Scalar, Snapshot, TrialOrigin, TrialUsage, TrialView
from podium_core.planning.planner import plan

NODE = "here"
USUAL = Costs()
CYCLE = 2.0  # seconds: the operator plans at least this often
Propose = Callable[[int], Mapping[str, Scalar]]
Launch = Callable[[str, Mapping[str, Scalar]], Training]


@dataclass(frozen=True, slots=True)
class Machine:
    """`slots`: how many trials a core may have, of which one runs.

    `usual`: the assumed seconds of a switch until one is measured; `cycle`: seconds after which a plan is made in any
    case. Both default to the operator's.
    """

    cores: int
    slots: int
    usual: Costs = USUAL
    cycle: float = CYCLE


@dataclass(slots=True, eq=False)
class Trial:
    """One trial. `suspends`, `resumes`: seconds of its suspensions and resumptions."""

    key: TrialKey
    number: int
    parameters: Mapping[str, Scalar]
    created: float = field(default_factory=time.monotonic)
    phase: TrialPhase = TrialPhase.PENDING
    core: str | None = None
    training: Training | None = None
    points: list[Point] = field(default_factory=list)
    held_since: float | None = None
    held: float = 0.0
    suspends: list[float] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)


class LocalRunner:
    """One job, from its first trial to its end."""

    def __init__(self, view: JobView, machine: Machine, propose: Propose, launch: Launch) -> None:
        self._view, self._machine, self._propose, self._launch = view, machine, propose, launch
        self._cores = tuple(f"core-{index}" for index in range(machine.cores))
        self._run_queues: dict[str, tuple[TrialKey, ...]] = dict.fromkeys(self._cores, ())
        self._epoch = 0
        self._ended: EndJob | None = None
        self._selector = selectors.DefaultSelector()
        self.trials: dict[TrialKey, Trial] = {}

    def run(self) -> EndJob:
        """Run until the planner ends the job. No trial's process remains, whatever happens."""
        try:
            while True:
                snapshot = self._snapshot()
                decided = plan(snapshot)
                for action in decided.actions:
                    self._apply(action)
                self._switch()
                if self._ended is not None:
                    return self._ended
                if any(not isinstance(action, WriteRunQueues) for action in decided.actions):
                    continue  # the planner sees its own writes
                wake = self._machine.cycle
                if decided.wake_at is not None:
                    wake = min(wake, decided.wake_at - time.monotonic())
                self._listen(max(0.0, wake))
        finally:
            for trial in self.trials.values():
                self._end(trial)
            self._selector.close()

    def _snapshot(self) -> Snapshot:
        now, trials = time.monotonic(), self.trials.values()
        suspends = [seconds for trial in trials for seconds in trial.suspends]
        resumes = [seconds for trial in trials for seconds in trial.resumes]
        usual = self._machine.usual
        costs = Costs(fmean(suspends) if suspends else usual.suspend, fmean(resumes) if resumes else usual.resume)
        gpus = tuple(self._core(core) for core in self._cores)
        epochs = MappingProxyType({NODE: self._epoch})
        return Snapshot(now, (self._view,), tuple(self._trial(t, now) for t in trials), gpus, costs, epochs)

    def _trial(self, trial: Trial, now: float) -> TrialView:
        running = 0.0 if trial.held_since is None else now - trial.held_since
        return TrialView(
            key=trial.key,
            job=self._view.key,
            number=trial.number,
            origin=TrialOrigin(trial.created, tuple(trial.parameters.items())),
            phase=trial.phase,
            curve=tuple(trial.points),
            pod=None if trial.core is None else PodView(trial.key.name, NODE, (trial.core,)),
            usage=TrialUsage(
                trial.held + running, fmean(trial.suspends) + fmean(trial.resumes) if trial.resumes else None
            ),
        )

    def _core(self, core: str) -> GpuView:
        here = [trial for trial in self.trials.values() if trial.core == core]
        holder = next((trial for trial in here if trial.held_since is not None), None)
        return GpuView(
            node=NODE,
            uuid=core,
            health="Healthy",
            slots=self._machine.slots,
            holder=None if holder is None else holder.key,
            holder_since=None if holder is None else holder.held_since,
            trials=tuple(trial.key for trial in here),
            run_queue=RunQueueView(self._run_queues[core]),
            free_slots=self._machine.slots - len(here),
        )

    def _apply(self, action: Action) -> None:
        match action:
            case CreateTrial(job, number):
                key = TrialKey(job.namespace, f"{job.name}-{number}", str(number))
                self.trials[key] = Trial(key, number, self._propose(number))
            case CreatePod(key):
                on = [trial.core for trial in self.trials.values()]
                # the planner creates at most as many pods as there are slots
                self.trials[key].core = min(self._cores, key=on.count)
                self.trials[key].phase = TrialPhase.GATED
            case DeletePod(key):
                self._end(self.trials[key])
            case EndTrial(key, phase):
                self.trials[key].phase = phase
            case EndJob():
                self._ended = action
            case WriteRunQueues(_, epoch, gpus):
                self._epoch = epoch
                self._run_queues |= {core: tuple(entry.trial for entry in entries) for core, entries in gpus}
            case _:
                raise RuntimeError(f"{action}: trials that can be stopped in place are not requeued")

    def _switch(self) -> None:
        """Give each core to the first trial of its run queue that has not ended; suspend another holder first."""
        for core in self._cores:
            here = {trial.key: trial for trial in self.trials.values() if trial.core == core}
            wanted = next((here[key] for key in self._run_queues[core] if key in here), None)
            for trial in here.values():
                if trial is not wanted and trial.held_since is not None:
                    self._suspend(trial)
            if wanted is not None and wanted.held_since is None and wanted.core is not None:
                self._run_trial(wanted)

    def _suspend(self, trial: Trial) -> None:
        assert trial.training is not None
        begun, pid = time.monotonic(), trial.training.process.pid
        os.killpg(pid, signal.SIGSTOP)
        seen = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # Popen waits for an ended process
        self._release(trial)
        if seen is not None and seen.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, pid, os.WSTOPPED)  # removes the stop that was seen
        trial.suspends.append(time.monotonic() - begun)
        trial.phase = TrialPhase.SUSPENDED

    def _run_trial(self, trial: Trial) -> None:
        begun = time.monotonic()
        if trial.training is None:
            trial.training = self._launch(trial.key.name, trial.parameters)
            self._selector.register(trial.training.output, selectors.EVENT_READ, trial)
        else:
            os.killpg(trial.training.process.pid, signal.SIGCONT)
            trial.resumes.append(time.monotonic() - begun)
        trial.held_since, trial.phase = begun, TrialPhase.RUNNING

    def _release(self, trial: Trial) -> None:
        if trial.held_since is not None:
            trial.held += time.monotonic() - trial.held_since
            trial.held_since = None

    def _listen(self, seconds: float) -> None:
        """Read what the trainings have written, or wait until the time has passed."""
        for ready, _ in self._selector.select(seconds):
            trial = ready.data
            seen = trial.training.receive()
            if seen is not None:
                trial.points += [Point(float(epoch), value, time.monotonic()) for epoch, value in seen]
                continue
            code = trial.training.process.returncode
            self._end(trial)
            trial.phase = TrialPhase.FAILED if code else TrialPhase.SUCCEEDED

    def _end(self, trial: Trial) -> None:
        """End the trial's process and free its slot."""
        self._release(trial)
        if trial.training is not None and trial.phase not in FINAL and trial.core is not None:
            self._selector.unregister(trial.training.output)
            trial.training.kill()
        trial.core = None
