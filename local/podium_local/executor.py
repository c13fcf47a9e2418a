"""Carry out decisions on processes of this machine, and observe what became of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import podium
import podium.trial
from podium.inherit import InheritError, inherit
from podium_core.attempts.inheritance import inherited_path, metrics_in_checkpoint
from podium_core.attempts.local_scheduler import Action as Step
from podium_core.attempts.local_scheduler import Admit, QueueEntry, Resume, RunQueues, Suspend, Wait, decide
from podium_core.attempts.usage_ledger import SuspensionCost
from podium_core.domain.actions import (
    Action,
    CreatePod,
    CreateTrial,
    DeletePod,
    EndTrial,
    Requeue,
    TrialRank,
    WriteRunQueues,
)
from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import classify_missing_pod, derive_phase, next_phase, retry_delay
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.schema.gpunode import SlotState
from podium_core.schema.metrics.config import MetricsConfig
from podium_local.attempt import Attempt, checkpoint_in
from podium_local.errors import Kind, LocalError
from podium_local.metrics.source import open_source, skip_present
from podium_local.processes.launch import Place, grace_seconds, launch
from podium_local.processes.listening import free_port
from podium_local.processes.process import Guardian
from podium_local.run_state import RunState
from podium_local.snapshot import choose_devices
from podium_local.suspension import Suspender
from podium_local.trial import Trial, new_trial
from podium_searchers.base import TrialResult
from podium_searchers.pbt import propose_child
from podium_searchers.search import propose, warm_start_results

MAX_STEPS = 256  # of the local scheduler in a row; each changes the state of a trial
INTERRUPTED = "RunInterrupted"


class Executor:
    """Create, start, suspend and end the trials of a run as the planner and the local scheduler decide."""

    def __init__(self, state: RunState, guardian: Guardian) -> None:
        self._state = state
        self._guardian = guardian
        self._grace = float(grace_seconds(state.job))
        self._helper = _helper_folder(state.folder.path)
        self._devices = {device.uuid: device for device in state.machine.devices}
        self._suspender = Suspender(state.job.spec, state.machine.cuda, state.folder.gpu_state)
        view = state.view()
        self._suspendable, self._memory = view.abilities.suspendable, view.gpus.memory or 0
        self.ranks: dict[str, TrialRank] = {}  # of the run queues, by uid

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the suspension methods that this machine has."""
        return self._suspender.names

    def live(self) -> list[Trial]:
        """Return the trials with an attempt that is not over."""
        return [trial for trial in self._state.ordered if trial.attempt is not None]

    def observe(self, now: float) -> bool:
        """Read logs and checkpoints, and return whether anything changed that a plan depends on."""
        changed = False
        for trial in self.live():
            changed |= self._observe(trial, now)
        return changed

    def act(self, actions: Iterable[Action], now: float) -> bool:
        """Carry out the actions of a plan, and return whether the next plan may differ."""
        changed = False
        for action in actions:
            changed |= self._act(action, now)
        return changed

    def schedule(self, now: float) -> None:
        """Start, suspend and resume attempts as the run queues say."""
        machine = self._state.machine
        suspender = self._suspender if self._suspendable else None
        queues = RunQueues(
            machine.epoch,
            {uuid: tuple(self._entry(key) for key in queue) for uuid, queue in machine.run_queues.items()},
        )
        for trial in self.live():
            if trial.attempt is not None and not trial.attempt.devices and trial.attempt.state is SlotState.GATED:
                self._start(trial, now)
        for _ in range(MAX_STEPS):
            local_trials = [
                trial.attempt.local_trial(suspender, memory=self._memory, grace=self._grace, now=now)
                for trial in self.live()
                if trial.attempt is not None and trial.attempt.devices and trial.attempt.exit_code is None
            ]
            steps = [step for step in decide(queues, local_trials, now) if not isinstance(step, Wait)]
            if not steps:
                break
            for step in steps:
                self._take(step, now)
        machine.unsettled = frozenset(
            uuid
            for trial in self.live()
            if trial.attempt is not None and trial.attempt.retry_at > now
            for uuid in trial.attempt.devices
        )

    def interrupt(self, now: float) -> None:
        """Order every attempt to end so that its trial continues later, at once and all together."""
        for trial in self.live():
            attempt = trial.attempt
            assert attempt is not None
            attempt.end(INTERRUPTED, self._grace)
            if attempt.state is SlotState.SUSPENDED and attempt.runs and now >= attempt.retry_at:
                self._resume(trial, attempt, now)

    def close(self) -> None:
        """Kill every process, and release what suspensions need."""
        self.kill()
        self._suspender.close()

    def kill(self) -> None:
        """Kill every process."""
        for trial in self.live():
            if trial.attempt is not None and trial.attempt.process is not None:
                trial.attempt.process.kill()

    def _observe(self, trial: Trial, now: float) -> bool:
        attempt = trial.attempt
        assert attempt is not None
        before = (trial.phase, trial.curve.accepted, trial.ledger.checkpoint, attempt.exit_code)
        folder = self._state.checkpoints_of(trial)
        attempt.observe_exit(now)
        if attempt.process is not None:
            marker = checkpoint_in(folder)
            if marker is not None:
                trial.note_marker(marker, now)
            at_end = trial.read_metrics(now, complete=attempt.exit_code is not None)
            attempt.read_to_end = at_end and attempt.exit_code is not None
        trial.follow(now)
        attempt.follow_end(folder)
        self._settle(trial, attempt, now)
        return before != (trial.phase, trial.curve.accepted, trial.ledger.checkpoint, attempt.exit_code)

    def _settle(self, trial: Trial, attempt: Attempt, now: float) -> None:
        """Derive the phase of a trial, and drop its attempt once that is over and its log was read."""
        if attempt.exit_code is not None and attempt.process is not None and not attempt.read_to_end:
            return
        spec = self._state.job.spec
        if attempt.is_over:
            self._suspender.forget(attempt.uid)
        if attempt.is_over and attempt.exit_code is None:  # it ended before it was started
            reason = attempt.ending.reason if attempt.ending is not None else ""
            trial.drop_attempt()
            if trial.phase not in FINAL:
                end = classify_missing_pod(reason, "")
                trial.requeue(end.reason, end.message, now)
            return
        if trial.phase not in FINAL:
            derived = derive_phase(trial.facts(spec.trials.retries, spec.trials.max_steps))
            phase = next_phase(trial.phase, derived)
            message = derived.message
            if derived.own_failure:
                trial.failures += 1
                trial.retry_at = now + retry_delay(trial.failures)
                message = f"{message}\n{attempt.last_output()}".rstrip()
            if phase is TrialPhase.REQUEUED:
                trial.requeue(derived.reason, message, now)
            elif phase is not trial.phase or phase in FINAL:
                trial.set_phase(phase, derived.reason, message, now)
        if attempt.is_over:
            trial.drop_attempt()

    def _act(self, action: Action, now: float) -> bool:
        match action:
            case CreateTrial():
                return self._create_trial(action, now)
            case CreatePod():
                return self._create_attempt(self._state.trials[action.trial], action.attempt, now)
            case DeletePod() | Requeue():
                trial = self._state.trials[action.trial]
                if trial.attempt is None or trial.attempt.ending is not None:
                    return False
                trial.attempt.end(action.reason, self._grace)
                self._settle(trial, trial.attempt, now)
                return True
            case EndTrial():
                trial = self._state.trials[action.trial]
                trial.set_phase(action.phase, action.reason, action.message, now)
                return True
            case WriteRunQueues():
                machine = self._state.machine
                machine.epoch = action.epoch
                machine.run_queues = {uuid: tuple(rank.trial for rank in ranks) for uuid, ranks in action.gpus}
                self.ranks = {rank.trial.uid: rank for _, ranks in action.gpus for rank in ranks}
        return False

    def _create_trial(self, action: CreateTrial, now: float) -> bool:
        """Create a trial with the searcher's parameters, and return whether there are any left to try."""
        job, lineage = self._state.job, action.lineage
        if lineage is None:
            parameters = propose(job.spec, action.number, self._results(now))
        else:
            parent = next(one for one in self._state.ordered if one.key.name == lineage.parent)
            parameters = propose_child(job.spec, action.number, parent.spec.parameters)
        if parameters is None:
            return False
        stored = new_trial(job, action.number, dict(parameters), now, lineage)
        trial = self._state.add(stored)
        trial.touch(urgent=True)
        if lineage is not None:  # at once, before the parent trains further; its start tries again if that fails
            self._inherit(trial)
        return True

    def _results(self, now: float) -> list[TrialResult]:
        """Return what a searcher learns from."""
        own = [
            TrialResult.at(
                one.phase,
                one.number,
                one.spec.parameters,
                one.curve.last_step,
                one.best,
                one.objective_values(now),
            )
            for one in self._state.ordered
        ]
        return [*warm_start_results(self._state.job), *own]

    def _create_attempt(self, trial: Trial, number: int, now: float) -> bool:
        devices = choose_devices(self._state.view(), self._state.trials.values(), self._state.machine)
        if devices is None or trial.attempt is not None:
            return False
        log = self._state.folder.logs / f"{trial.key.name}-{number}.log"
        trial.attempt = Attempt(trial.key, number, devices, now, log)
        trial.number_of_attempt, trial.had_attempt, trial.gpus = number, True, devices
        trial.set_phase(TrialPhase.GATED, "WaitingForTimeSlice", "The trial waits for its first time slice.", now)
        trial.touch()
        return True

    def _entry(self, key: TrialKey) -> QueueEntry:
        rank = self.ranks.get(key.uid)
        return QueueEntry(key) if rank is None else QueueEntry(key, rank.reason, rank.message)

    def _take(self, step: Step, now: float) -> None:
        trial = self._state.trials[step.trial.key]
        attempt = trial.attempt
        assert attempt is not None
        match step:
            case Admit():
                self._start(trial, now)
            case Suspend():
                method = step.trial.suspension.method
                outcome = attempt.suspend(self._suspender, method, now)
                if outcome.ok:
                    trial.note_suspension(SuspensionCost(method, now, outcome.seconds, freed=outcome.freed))
            case Resume():
                self._resume(trial, attempt, now)
        trial.follow(now)
        self._settle(trial, attempt, now)

    def _resume(self, trial: Trial, attempt: Attempt, now: float) -> None:
        outcome = attempt.resume(self._suspender, now)
        if outcome.ok:
            trial.note_resumption(outcome.seconds)

    def _start(self, trial: Trial, now: float) -> None:
        attempt = trial.attempt
        assert attempt is not None
        folder = self._state.checkpoints_of(trial)
        if folder is not None:
            problem = _made(folder) or self._inherit(trial)
            if problem:
                attempt.refuse(problem, now)
                self._settle(trial, attempt, now)
                return
        attempt.port = self._port() if self._state.reading.place.own_port else None
        metrics = self._state.metrics_of(trial, attempt.port)
        problem = _made_for(metrics)
        if problem:
            attempt.refuse(problem, now)
            self._settle(trial, attempt, now)
            return
        trial.start_attempt(checkpoint_in(folder), now)
        checkpoint = trial.ledger.checkpoint
        continues = attempt.number > 0 or trial.spec.parent is not None
        place = Place(
            [self._devices[uuid] for uuid in attempt.devices],
            folder,
            self._helper,
            self._state.environ,
            resume=checkpoint.path if checkpoint is not None and continues else None,
            hides_gpus=not any(device.is_gpu for device in self._state.machine.devices),
            paths=self._state.reading.place.paths(self._state.files_of(trial)),
            port=attempt.port,
        )
        source = open_source(metrics, attempt.log, trial.position, self._state.clock, attempt.answering)
        if trial.spec.parent is not None and trial.cursor is None:
            skip_present(source, now)
        trial.open_source(source)
        attempt.start(launch(self._state.job, trial.manifest(now), attempt.number, place), self._guardian, now)
        trial.follow(now)
        self._settle(trial, attempt, now)

    def _port(self) -> int:
        """Return a port for the page of metrics of one more attempt."""
        taken = {trial.attempt.port for trial in self.live() if trial.attempt is not None}
        return free_port({port for port in taken if port is not None})

    def _inherit(self, trial: Trial) -> str:
        """Copy the parent's checkpoint of a child that has none yet, and return why that failed; empty: it did not."""
        parent, folder = trial.spec.parent, self._state.checkpoints_of(trial)
        if parent is None or folder is None:
            return ""
        theirs = self._state.folder.checkpoints / parent.name
        found = checkpoint_in(theirs)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            name = inherited_path("." if found is None else found.path)
            inherit(theirs, folder, name, metrics_in_checkpoint(self._state.job))
        except (InheritError, OSError) as error:
            return f"The checkpoint of {parent.name} could not be copied: {error}"
        return ""


def _made_for(metrics: MetricsConfig) -> str:
    """Create the folder in which a trial writes its metrics, and return why that failed; empty: it did not."""
    if metrics.source == "file":
        return _made(Path(metrics.path).parent)
    return _made(Path(metrics.path)) if metrics.source == "tensorboard" else ""


def _made(folder: Path) -> str:
    """Create a folder of a trial, and return why that failed; empty: it did not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"The folder {folder} could not be created: {error.strerror}"
    return ""


def _helper_folder(folder: Path) -> Path:
    """Return a folder with `podium.trial` alone, for scripts whose Python lacks Podium."""
    package = folder / "python" / "podium"
    try:
        package.mkdir(parents=True, exist_ok=True)
        for module in (podium, podium.trial):
            if module.__file__ is not None:
                with suppress(shutil.SameFileError):
                    shutil.copy(module.__file__, package)
    except OSError as error:
        text = f"{package}: {error.strerror}; free space there, then run the same command again"
        raise LocalError(Kind.FAILED, "FolderUnusable", text) from error
    return package.parent
