"""State of a run: the job, its trials and the machine; created in a new folder, or continued from an old one."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import classify_missing_pod
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import JobView
from podium_core.schema.job import HyperParamJob
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.trial import HyperParamTrial
from podium_local.attempt import checkpoint_in
from podium_local.clock import SteadyClock, moment
from podium_local.cuda_support import NO_CUDA, CudaSupport
from podium_local.devices import Device
from podium_local.errors import Kind, LocalError
from podium_local.metrics.place import metrics_place
from podium_local.metrics.source import open_source
from podium_local.processes import process_tree
from podium_local.snapshot import Machine, local_job_view
from podium_local.store import RunFolder
from podium_local.stored_search import IMMUTABLE
from podium_local.trial import MetricsReading, Trial

RUNNER_ENDED = "The runner ended; the trial continues from its last checkpoint."


@dataclass(slots=True)
class RunState:
    """State of a run."""

    job: HyperParamJob
    folder: RunFolder
    machine: Machine
    reading: MetricsReading
    clock: SteadyClock
    environ: Mapping[str, str]
    trials: dict[TrialKey, Trial] = field(default_factory=dict)

    @property
    def ordered(self) -> list[Trial]:
        """Return the trials by number."""
        return sorted(self.trials.values(), key=lambda trial: trial.number)

    def view(self) -> JobView:
        """Return the planner's view of the job."""
        cpus, moves = sum(device.cpus for device in self.machine.devices), self.machine.cuda.moves_memory
        return local_job_view(self.job, cpus, moves_memory=moves)

    def checkpoints_of(self, trial: Trial) -> Path | None:
        """Return the checkpoint folder of a trial; None if the job has no checkpoints."""
        return None if self.job.spec.checkpoint is None else self.folder.checkpoints / trial.key.name

    def files_of(self, trial: Trial) -> Path:
        """Return the folder of a trial for files other than checkpoints."""
        return self.folder.files / trial.key.name

    def metrics_of(self, trial: Trial, port: int | None = None) -> MetricsConfig:
        """Return how to read a trial's metrics, with its path and port on this machine."""
        return self.reading.place.of_trial(self.checkpoints_of(trial), self.files_of(trial), port)

    def add(self, stored: HyperParamTrial) -> Trial:
        """Add a trial."""
        trial = Trial(stored, self.reading, self.machine.name)
        self.trials[trial.key] = trial
        return trial


def open_run(
    job: HyperParamJob,
    path: Path,
    devices: tuple[Device, ...],
    environ: Mapping[str, str],
    cuda: CudaSupport = NO_CUDA,
) -> RunState:
    """Return the state of a run in this folder. Raises LocalError if the folder belongs to another job."""
    folder = RunFolder(path)
    try:
        # an earlier runner and its guardian may both have been killed; nothing else runs in a folder that is locked
        process_tree.kill_with_variable(process_tree.RUN_VARIABLE, str(folder.path))
        stored = folder.job()
        clock = SteadyClock(0.0 if stored is None else _latest(stored))
        present = _new_job(job, clock.now()) if stored is None else stored
        machine = Machine(socket.gethostname() or "localhost", devices, cuda)
        state = RunState(present, folder, machine, MetricsReading(present), clock, environ)
        if stored is not None:
            ended_at = min(clock.now(), max(folder.written_at(), _latest(stored)))
            for one in folder.trials():
                _take_up(state, state.add(one), ended_at)
            state.job = _continued(job, state, path)
            state.reading.place = metrics_place(state.job)
        folder.write_job(state.job, durable=True)
        return state
    except BaseException:
        folder.close()
        raise


def _new_job(job: HyperParamJob, now: float) -> HyperParamJob:
    meta = job.metadata
    changes = {
        "namespace": meta.namespace or "default",
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creation_timestamp": moment(now),
    }
    return job.model_copy(update={"metadata": meta.model_copy(update=changes)})


def _continued(job: HyperParamJob, state: RunState, path: Path) -> HyperParamJob:
    """Return the stored job with the changes that a running search allows."""
    stored = state.job
    if job.metadata.name != stored.metadata.name:
        text = f"{path} holds the search {stored.metadata.name}, not {job.metadata.name}; name another folder with "
        raise LocalError(Kind.FAILED, "FolderOfOtherJob", f"{text}--folder")
    begun = any(trial.curve.points for trial in state.trials.values())
    for name in (*IMMUTABLE, *(("template",) if begun else ())):
        if getattr(job.spec, name) != getattr(stored.spec, name):
            text = f"spec.{name} differs from that of the search in {path}, whose trials would not be comparable; "
            raise LocalError(Kind.FAILED, "JobChanged", f"{text}undo the change, or name another folder with --folder")
    status = stored.status
    if job.spec.trials.max > stored.spec.trials.max and status.phase == "Succeeded":
        status = status.model_copy(update={"phase": "Running", "finished_at": None})
    return stored.model_copy(update={"spec": job.spec, "status": status})


def _take_up(state: RunState, trial: Trial, ended_at: float) -> None:
    """Continue a stored trial: its last attempt ended with the runner, and its source is read to the end first."""
    trial.end_with_runner(ended_at)
    cursor = trial.cursor
    if trial.phase in FINAL or not trial.had_attempt:
        return
    if cursor is not None and not cursor.complete and (cursor.file or state.reading.metrics.source != "stdout"):
        log = state.folder.logs / Path(cursor.file).name
        source = open_source(state.metrics_of(trial), log, trial.position, state.clock, lambda: None)
        trial.finish_reading(source, ended_at)
    marker = checkpoint_in(state.checkpoints_of(trial))
    if marker is not None:
        trial.note_marker(marker, state.clock.now())
    if trial.phase is not TrialPhase.REQUEUED:
        end = classify_missing_pod("", "RunnerEnded")
        trial.set_phase(TrialPhase.REQUEUED, end.reason, RUNNER_ENDED, state.clock.now())
    trial.touch(urgent=True)


def _latest(job: HyperParamJob) -> float:
    """Return the latest time that the stored job names."""
    moments = (job.metadata.creation_timestamp, job.status.started_at, job.status.finished_at)
    return max((one.timestamp() for one in moments if one is not None), default=0.0)
