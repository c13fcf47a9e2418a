"""The loop of local mode: observe, plan, act, store. The third of its kind, beside the operator and the simulator.

The decisions are those of a cluster: `plan` decides which trials exist, have slots and hold devices, and the agents'
local scheduler decides which process is started, suspended and resumed. Only the acts differ: they concern processes.
Call `run` in a thread that lives as long as the run, because the kernel ends the trials together with it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from podium_core.domain.actions import EndJob
from podium_core.domain.phase import FINAL
from podium_core.planning.eta import estimate
from podium_core.planning.planner import plan
from podium_core.planning.ranking import RankingError
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_local.errors import Kind, LocalError
from podium_local.executor import Executor
from podium_local.processes.process import Guardian
from podium_local.run_state import RunState
from podium_local.snapshot import is_finished, snapshot_of
from podium_local.status import job_status, machine_status
from podium_local.trial import Trial

POLL_SECONDS = 0.25  # between two looks at the logs
PLAN_SECONDS = 0.5  # between two plans, if only values were reported
CYCLE_SECONDS = 5.0  # longest time between two plans
SHOW_SECONDS = 1.0  # between two calls of `show` without a change of phase
STORE_SECONDS = 2.0  # between two writes of a trial whose phase did not change
SHORTEST_SECONDS = 0.05
MAX_ROUNDS = 64  # plans in a row that see the acts of the one before


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run for people: the objects of a cluster. `now`: seconds since the Unix epoch."""

    job: HyperParamJob
    trials: tuple[HyperParamTrial, ...]
    machine: GPUNode
    now: float


@dataclass(slots=True)
class PlanTimes:
    """When the next plan is due. Times are seconds of the run's clock.

    Values wait until `PLAN_SECONDS` after the last plan. An urgent change does not wait, such as the end of a trial:
    its device is free.
    """

    _planned_at: float = -1e9
    _wake_at: float = 0.0
    _waiting: bool = False  # something changed since the last plan

    def due(self, now: float, *, changed: bool, urgent: bool) -> bool:
        """Return whether to plan now."""
        self._waiting |= changed
        soon = self._waiting and (urgent or now >= self._planned_at + PLAN_SECONDS)
        return soon or now >= min(self._wake_at, self._planned_at + CYCLE_SECONDS)

    def planned(self, now: float, wake_at: float | None) -> None:
        """Note a plan, and when it wants to be made again at the latest."""
        self._planned_at, self._waiting = now, False
        self._wake_at = now + CYCLE_SECONDS if wake_at is None else max(wake_at, now + SHORTEST_SECONDS)

    def wake(self, now: float) -> None:
        """Let the next plan be due at once."""
        self._wake_at = now

    def seconds_left(self, now: float) -> float:
        """Return the seconds until a plan is due without a change, at most `POLL_SECONDS`."""
        return min(POLL_SECONDS, max(0.0, self._wake_at - now))


class Runner:
    """Runner of one search. Other threads and signal handlers may call only `stop`."""

    def __init__(self, state: RunState, show: Callable[[RunView], None] = lambda view: None) -> None:
        self._state = state
        self._show = show
        self._stops = 0
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._times = PlanTimes()
        self._shown_at = -1e9
        self._stored_at: dict[str, float] = {}
        self._manifests: dict[str, HyperParamTrial] = {}
        self._end: EndJob | None = None

    @property
    def stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stops > 0

    @property
    def interrupted(self) -> bool:
        """Return whether the run was stopped before its job ended."""
        return self._stops > 0 and not is_finished(self._state.job)

    def stop(self) -> None:
        """End the run: the first call lets trials checkpoint, the second one kills them."""
        self._stops += 1
        with suppress(OSError):
            os.write(self._wake_writer, b"x")

    def run(self) -> HyperParamJob:
        """Run until the job has ended or `stop` was called, and return the job."""
        state = self._state
        guardian = Guardian(state.folder.path)
        executor: Executor | None = None
        try:
            executor = Executor(state, guardian)
            while True:
                changed = executor.observe(state.clock.now())
                now = state.clock.now()
                if self._stops:
                    executor.interrupt(now)
                    if self._stops > 1:
                        executor.kill()
                elif not is_finished(state.job) or any(executor.live()):
                    changed = self._plan_if_due(executor, changed, now) or changed
                self._store(now)
                self._show_if_due(executor, changed, now)
                if not executor.live() and (self._stops or is_finished(state.job)):
                    break
                self._wait(executor, now)
        finally:
            if executor is not None:
                executor.close()
            guardian.close()
            self._close()
        return state.job

    def _close(self) -> None:
        now = self._state.clock.now()
        for trial in self._state.trials.values():
            trial.urgent = trial.changed
        self._store(now)
        self._state.folder.write_job(self._state.job, durable=True)
        self._state.folder.close()
        writer, self._wake_writer = self._wake_writer, -1  # a later `stop` must not write to another file
        os.close(self._wake_reader)
        os.close(writer)

    def _plan_if_due(self, executor: Executor, changed: bool, now: float) -> bool:
        """Plan and act if something changed or the plan's time has come, and return whether it did."""
        state = self._state
        urgent = any(trial.urgent for trial in state.trials.values())
        if not self._times.due(now, changed=changed, urgent=urgent):
            return False
        view = state.view()
        for _ in range(MAX_ROUNDS):
            snapshot = snapshot_of(view, state.ordered, state.machine, now)
            try:
                decided = plan(snapshot)
            except RankingError as error:
                text = f"{error}; set another spec.policy.name to continue, and report this"
                raise LocalError(Kind.FAILED, "PolicyFailed", text) from error
            self._end = next((one for one in decided.actions if isinstance(one, EndJob)), self._end)
            acted = executor.act(decided.actions, now)
            executor.schedule(now)
            if not acted:
                break
        for ranking in decided.ranks:
            trial = state.trials[ranking.trial]
            if trial.phase not in FINAL and not trial.shows_end:
                trial.set_rank(ranking)
        self._times.planned(now, decided.wake_at)
        eta = estimate(view, snapshot)
        status = job_status(state.job, state.ordered, view.limits.max_trials, eta, self._end, now)
        ended = self._end is not None and not is_finished(state.job)
        state.job = state.job.model_copy(update={"status": status})
        if ended:
            state.folder.write_job(state.job, durable=True)
            self._times.wake(now)
        return True

    def _store(self, now: float) -> None:
        """Write the trials that changed: at once if a phase changed, otherwise now and then."""
        for trial in self._state.trials.values():
            uid = trial.key.uid
            if trial.changed and (trial.urgent or now >= self._stored_at.get(uid, -1e9) + STORE_SECONDS):
                manifest = trial.manifest(now)
                self._state.folder.write_trial(manifest, durable=trial.urgent)
                self._manifests[uid] = manifest
                self._stored_at[uid] = now
                trial.changed = trial.urgent = False

    def _show_if_due(self, executor: Executor, changed: bool, now: float) -> None:
        if not changed and now < self._shown_at + SHOW_SECONDS:
            return
        self._shown_at = now
        state = self._state
        machine = machine_status(state.machine, state.ordered, executor.ranks, executor.methods)
        state.folder.write_machine(machine)
        state.folder.write_job(state.job, durable=False)
        trials = tuple(
            trial.manifest(now) if trial.changed or trial.attempt is not None else self._known(trial, now)
            for trial in state.ordered
        )
        self._show(RunView(state.job, trials, machine, now))
        for trial in state.trials.values():
            trial.shows_end = False

    def _known(self, trial: Trial, now: float) -> HyperParamTrial:
        """Return a trial that did not change since it was stored or shown."""
        uid = trial.key.uid
        if uid not in self._manifests:
            self._manifests[uid] = trial.manifest(now)
        return self._manifests[uid]

    def _wait(self, executor: Executor, now: float) -> None:
        """Wait for the end of a process, a call of `stop`, or the time of the next look."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        for trial in executor.live():
            if trial.attempt is not None and trial.attempt.process is not None and trial.attempt.runs:
                poll.register(trial.attempt.process.ended, select.POLLIN)
        poll.poll(max(1.0, 1000.0 * self._times.seconds_left(now)))
        with suppress(BlockingIOError):
            os.read(self._wake_reader, 1024)
