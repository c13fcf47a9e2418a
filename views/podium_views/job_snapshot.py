"""Snapshot of a job: the job, its trials, the GPUs and the time. Every view is a function of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from podium_core.domain.phase import is_final
from podium_core.schema.gpunode import GPUNode, GpuStatus, RunQueueEntry
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.job_status import ENDED, FrontTrial
from podium_core.schema.trial import HyperParamTrial


def present_rank(trial: HyperParamTrial) -> int | None:
    """Return the rank of a trial that has not ended; the status of an ended one keeps its last rank."""
    return None if is_final(trial.status.phase) else trial.status.rank


@dataclass(frozen=True)  # no slots: cached_property keeps its result in the instance
class JobSnapshot:
    """State of a job, its trials and all GPUs at one moment."""

    job: HyperParamJob
    trials: tuple[HyperParamTrial, ...]
    nodes: tuple[GPUNode, ...]
    now: datetime

    @property
    def maximize(self) -> bool:
        """Return whether a larger value of the objective is better."""
        return self.job.spec.objective.direction is Direction.MAXIMIZE

    @property
    def total(self) -> int:
        """Return how many trials the job has in the end.

        That is trials.max, or the number of trials that exist if it was lowered since.
        """
        return max(self.job.spec.trials.max, len(self.trials))

    @property
    def ended(self) -> bool:
        """Return whether the job has reached a final phase."""
        return self.job.status.phase in ENDED

    @cached_property
    def best(self) -> HyperParamTrial | None:
        """Return the trial that the job's status names, or the trial with the best value; ties break by name.

        None with several objectives, where no single trial is the best: see `front`.
        """
        if self.job.spec.objectives is not None:
            return None
        named = self.job.status.best
        for trial in self.trials:
            if named is not None and trial.metadata.name == named.trial:
                return trial
        measured = [trial for trial in self.trials if trial.status.best is not None]
        return min(measured, key=lambda trial: self._goodness(trial), default=None)

    @cached_property
    def front(self) -> tuple[FrontTrial, ...]:
        """Return the Pareto front of several objectives, as the job's status holds it."""
        return tuple(self.job.status.pareto_front)

    @cached_property
    def by_rank(self) -> tuple[HyperParamTrial, ...]:
        """Return the ranked trials, then the others by their best value, then those without a value."""

        def key(trial: HyperParamTrial) -> tuple[int, float, float, int]:
            status, rank = trial.status, present_rank(trial)
            if rank is not None:
                return (0, rank, self._goodness(trial)[0], trial.spec.number)
            if status.best is not None:
                return (1, self._goodness(trial)[0], 0, trial.spec.number)
            return (2, 0, 0, trial.spec.number)

        return tuple(sorted(self.trials, key=key))

    @cached_property
    def by_value(self) -> tuple[HyperParamTrial, ...]:
        """Return the trials, the best value first and trials without a value last."""
        return tuple(sorted(self.trials, key=self._goodness))

    @cached_property
    def gpus(self) -> tuple[tuple[GPUNode, GpuStatus], ...]:
        """Return every GPU with its node, by node name and index."""
        pairs = [(node, gpu) for node in self.nodes for gpu in node.status.gpus]
        return tuple(sorted(pairs, key=lambda pair: (pair[0].metadata.name, pair[1].index, pair[1].uuid)))

    @cached_property
    def gpu_names(self) -> dict[str, str]:
        """Return the name `node/index` of each GPU by UUID."""
        return {gpu.uuid: f"{node.metadata.name}/{gpu.index}" for node, gpu in self.gpus}

    def gpu_name(self, uuid: str) -> str:
        """Return `node/index` of a GPU, or the start of its UUID if its node is not known."""
        return self.gpu_names.get(uuid) or uuid[:12]

    @property
    def done(self) -> int:
        """Return the number of trials that have ended."""
        return sum(1 for trial in self.trials if is_final(trial.status.phase))

    def _goodness(self, trial: HyperParamTrial) -> tuple[float, str]:
        """Return a sort key; smaller is better for both directions of the objective."""
        best = trial.status.best
        if best is None:
            return (float("inf"), trial.metadata.name)
        return (-best.value if self.maximize else best.value, trial.metadata.name)


def run_queue_of(node: GPUNode, uuid: str) -> list[RunQueueEntry]:
    """Return the run queue of one GPU of the node; empty if the operator has written none."""
    return next((gpu.run_queue for gpu in node.spec.gpus if gpu.uuid == uuid), [])


def of_job(job: HyperParamJob, trials: Iterable[HyperParamTrial]) -> tuple[HyperParamTrial, ...]:
    """Return the trials of one job. Their spec decides, because any object can carry the label."""
    home, name = job.metadata.namespace, job.metadata.name
    mine = [trial for trial in trials if trial.metadata.namespace == home and trial.spec.job == name]
    return tuple(sorted(mine, key=lambda trial: trial.spec.number))
