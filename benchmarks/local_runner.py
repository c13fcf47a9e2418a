"""Podium on one machine without Kubernetes, for `make bench-rivals` alone: the cluster's own `plan` on real time, and
its actions carried out on processes. A core stands for a GPU; SIGSTOP and SIGCONT are the suspension.

As the agent does, the next trial of an order is let in only when the one before was seen stopped or gone. Left out is
what one machine does not have: nodes, images, the API's delay. Called by rivals_podium and its test.
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

from rivals_trial import Training

from podium_core.domain.actions import Action, CreatePod, CreateTrial, DeletePod, EndJob, EndTrial, WriteRunQueues
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Costs, GpuView, JobView, Point, Scalar, Snapshot, TrialKey, TrialView
from podium_core.planning.planner import plan

NODE = "here"
USUAL = Costs()
CYCLE = 2.0  # seconds: the operator plans at least this often
Propose = Callable[[int], Mapping[str, Scalar]]
Launch = Callable[[str, Mapping[str, Scalar]], Training]


@dataclass(slots=True, eq=False)
class Trial:
    """`out`, `back`: seconds that its suspensions and resumptions took."""

    key: TrialKey
    number: int
    parameters: Mapping[str, Scalar]
    phase: TrialPhase = TrialPhase.PENDING
    core: str | None = None
    training: Training | None = None
    points: list[Point] = field(default_factory=list)
    held_since: float | None = None
    held: float = 0.0
    out: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)


class LocalRunner:
    """One job, from its first trial to its end. `shares`: how many trials a core may have, one of them at work;
    `usual`: what a hand-over is taken to cost until one was measured, `cycle`: seconds after which it plans anyway;
    both are the operator's by default.
    """

    def __init__(
        self,
        view: JobView,
        cores: int,
        shares: int,
        propose: Propose,
        launch: Launch,
        usual: Costs = USUAL,
        cycle: float = CYCLE,
    ) -> None:
        self._view, self._propose, self._launch, self._shares, self._usual = view, propose, launch, shares, usual
        self._cycle = cycle
        self._cores = tuple(f"core-{index}" for index in range(cores))
        self._orders: dict[str, tuple[TrialKey, ...]] = dict.fromkeys(self._cores, ())
        self._epoch = 0
        self._ended: EndJob | None = None
        self._selector = selectors.DefaultSelector()
        self.trials: dict[TrialKey, Trial] = {}

    def run(self) -> EndJob:
        """Until the planner ends the job. No trial's process is left, whatever happens."""
        try:
            while True:
                snapshot = self._snapshot()
                decided = plan(snapshot)
                for action in decided.actions:
                    self._carry_out(action)
                self._hand_over()
                if self._ended is not None:
                    return self._ended
                if any(not isinstance(action, WriteRunQueues) for action in decided.actions):
                    continue  # the planner sees its own writes
                wake = self._cycle if decided.wake_at is None else min(self._cycle, decided.wake_at - time.monotonic())
                self._listen(max(0.0, wake))
        finally:
            for trial in self.trials.values():
                self._end(trial)
            self._selector.close()

    def _snapshot(self) -> Snapshot:
        now, trials = time.monotonic(), self.trials.values()
        outs, backs, usual = [s for t in trials for s in t.out], [s for t in trials for s in t.back], self._usual
        costs = Costs(fmean(outs) if outs else usual.suspend, fmean(backs) if backs else usual.resume)
        gpus = tuple(self._core(core) for core in self._cores)
        epochs = MappingProxyType({NODE: self._epoch})
        return Snapshot(now, (self._view,), tuple(self._trial(t, now) for t in trials), gpus, costs, epochs)

    def _trial(self, trial: Trial, now: float) -> TrialView:
        running = 0.0 if trial.held_since is None else now - trial.held_since
        has_pod = trial.core is not None
        return TrialView(
            key=trial.key,
            job=self._view.key,
            number=trial.number,
            created=0.0,
            phase=trial.phase,
            curve=tuple(trial.points),
            pod=trial.key.name if has_pod else None,
            node=NODE if has_pod else None,
            gpus=() if trial.core is None else (trial.core,),
            gpu_seconds=trial.held + running,
            switch_seconds=fmean(trial.out) + fmean(trial.back) if trial.back else None,
            parameters=tuple(trial.parameters.items()),
        )

    def _core(self, core: str) -> GpuView:
        here = [trial for trial in self.trials.values() if trial.core == core]
        holder = next((trial for trial in here if trial.held_since is not None), None)
        return GpuView(
            node=NODE,
            uuid=core,
            health="Healthy",
            slots=self._shares,
            holder=None if holder is None else holder.key,
            holder_since=None if holder is None else holder.held_since,
            trials=tuple(trial.key for trial in here),
            run_queue=self._orders[core],
            free_slots=self._shares - len(here),
        )

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreateTrial(job, number):
                key = TrialKey(job.namespace, f"{job.name}-{number}", str(number))
                self.trials[key] = Trial(key, number, self._propose(number))
            case CreatePod(key):
                on = [trial.core for trial in self.trials.values()]
                self.trials[key].core = min(
                    self._cores, key=on.count
                )  # the planner makes no more than there are shares
                self.trials[key].phase = TrialPhase.GATED
            case DeletePod(key):
                self._end(self.trials[key])
            case EndTrial(key, phase):
                self.trials[key].phase = phase
            case EndJob():
                self._ended = action
            case WriteRunQueues(_, epoch, gpus):
                self._epoch = epoch
                self._orders |= {core: tuple(place.trial for place in places) for core, places in gpus}
            case _:
                raise RuntimeError(f"{action}: trials that can be stopped in place are not requeued")

    def _hand_over(self) -> None:
        """Each core to the first of its order that has not ended; whoever else works there is stopped first."""
        for core in self._cores:
            here = {trial.key: trial for trial in self.trials.values() if trial.core == core}
            wanted = next((here[key] for key in self._orders[core] if key in here), None)
            for trial in here.values():
                if trial is not wanted and trial.held_since is not None:
                    self._suspend(trial)
            if wanted is not None and wanted.held_since is None and wanted.core is not None:
                self._let_in(wanted)

    def _suspend(self, trial: Trial) -> None:
        assert trial.training is not None
        begun, pid = time.monotonic(), trial.training.process.pid
        os.killpg(pid, signal.SIGSTOP)
        seen = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # one that ended is waited for by Popen
        self._release(trial)
        if seen is not None and seen.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, pid, os.WSTOPPED)  # it has been noted
        trial.out.append(time.monotonic() - begun)
        trial.phase = TrialPhase.SUSPENDED

    def _let_in(self, trial: Trial) -> None:
        begun = time.monotonic()
        if trial.training is None:
            trial.training = self._launch(trial.key.name, trial.parameters)
            self._selector.register(trial.training.output, selectors.EVENT_READ, trial)
        else:
            os.killpg(trial.training.process.pid, signal.SIGCONT)
            trial.back.append(time.monotonic() - begun)
        trial.held_since, trial.phase = begun, TrialPhase.RUNNING

    def _release(self, trial: Trial) -> None:
        if trial.held_since is not None:
            trial.held += time.monotonic() - trial.held_since
            trial.held_since = None

    def _listen(self, seconds: float) -> None:
        """What the trainings say, or that time has passed."""
        for found, _ in self._selector.select(seconds):
            trial = found.data
            seen = trial.training.receive()
            if seen is not None:
                trial.points += [Point(float(epoch), value, time.monotonic()) for epoch, value in seen]
                continue
            code = trial.training.process.returncode
            self._end(trial)
            trial.phase = TrialPhase.FAILED if code else TrialPhase.SUCCEEDED

    def _end(self, trial: Trial) -> None:
        """Its process is gone and its share is free."""
        self._release(trial)
        if trial.training is not None and trial.phase not in FINAL and trial.core is not None:
            self._selector.unregister(trial.training.output)
            trial.training.kill()
        trial.core = None
