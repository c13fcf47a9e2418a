"""Status of a HyperParamJob, which the operator writes; `schema.job` holds its spec."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field

from podium_core.domain.phase import ON_GPU, WAITING, TrialPhase
from podium_core.domain.snapshot import Scalar
from podium_core.schema.base import Condition, StatusModel
from podium_core.schema.search.spec import MAX_OBJECTIVES, MAX_RESULTS

MAX_WARM_START_TRIALS = MAX_RESULTS
MAX_FRONT = 50  # trials of the Pareto front that a status holds
FINISHED = frozenset({"Succeeded", "Failed"})  # phases after which no trial runs
ENDED = FINISHED | {"Refused"}


class BestTrial(StatusModel):
    """The trial with the best value so far."""

    trial: str = Field(description="Name of the trial.")
    value: float = Field(description="Best value of the objective.")
    step: float = Field(description="Step of the best value.")
    parameters: dict[str, Scalar] = Field(default_factory=dict, description="Parameters of the trial.")


class FrontTrial(StatusModel):
    """A trial of the Pareto front: no other trial is at least as good in all objectives and better in one."""

    trial: str = Field(description="Name of the trial.")
    step: float = Field(description="Last step of the trial.")
    values: list[float] = Field(
        max_length=MAX_OBJECTIVES,
        description="Value of each objective at that step, in the order of spec.objectives. For podium.dev/gpu-seconds "
        "it is the cost of a whole trial: measured, or as the trial's pace so far suggests.",
    )


class TrialCounts(StatusModel):
    """Number of trials by state."""

    created: int = Field(0, description="Number of trials that exist.")
    pending: int = Field(0, description="Number of trials that wait for a pod, a node or a GPU.")
    running: int = Field(0, description="Number of trials that run.")
    suspended: int = Field(0, description="Number of suspended trials.")
    succeeded: int = Field(0, description="Number of completed trials.")
    failed: int = Field(0, description="Number of trials that failed after all retries.")

    @classmethod
    def of(cls, phases: Mapping[TrialPhase, int]) -> TrialCounts:
        """Return the counts, given the number of trials in each phase."""
        return cls(
            created=sum(phases.values()),
            pending=sum(phases.get(phase, 0) for phase in WAITING),
            running=sum(phases.get(phase, 0) for phase in ON_GPU),
            suspended=phases.get(TrialPhase.SUSPENDED, 0),
            succeeded=phases.get(TrialPhase.SUCCEEDED, 0),
            failed=phases.get(TrialPhase.FAILED, 0),
        )

    def total(self, most: int) -> int:
        """Return how many trials the job has in the end.

        That is `most`, which is trials.max, or the number of trials that exist if it was lowered since.
        """
        return max(most, self.created)


class GpuUse(StatusModel):
    """GPU-seconds of all trials of the job by use."""

    training: float = Field(0.0, description="GPU-seconds for which trials held GPUs.")
    switching: float = Field(0.0, description="GPU-seconds that suspensions and resumptions took.")


class JobLostWork(StatusModel):
    """Work of all trials of the job that had to be repeated because pods ended before a checkpoint."""

    steps: float = Field(0.0, description="Number of steps that had to be repeated, in the unit of metrics.stepKey.")
    gpu_seconds: float = Field(0.0, description="Number of GPU-seconds that had to be repeated.")


class WarmStartTrial(StatusModel):
    """A trial of an earlier search, as the algorithm uses it."""

    trial: str = Field(description="Name of the trial; given-3 is the fourth of search.warmStart.results.")
    parameters: dict[str, Scalar] = Field(default_factory=dict, description="Parameters of the trial.")
    value: float = Field(description="Best value of the objective; of several, of the first that the trial prints.")
    values: list[float] = Field(
        default_factory=list,
        max_length=MAX_OBJECTIVES,
        description="Value of each of several objectives; empty if there is one.",
    )
    step: float = Field(0.0, description="Step of the trial's last value.")
    completed: bool = Field(False, description="Whether the trial was trained to its end.")


class WarmStartStatus(StatusModel):
    """What was taken from earlier searches when the job was accepted; it outlives them."""

    used: int = Field(0, description="Number of trials that the algorithm uses.")
    ended: int = Field(0, description="Number of trials of the earlier searches that have ended with a value.")
    message: str = Field("", description="Which trials are used, and why the others are not, as a sentence.")
    trials: list[WarmStartTrial] = Field(
        default_factory=list,
        max_length=MAX_WARM_START_TRIALS,
        description="The trials that the algorithm uses: the best ones and the latest ones.",
    )


class JobStatus(StatusModel):
    """Progress of the job; written by the operator."""

    phase: Literal["Pending", "Running", "Suspended", "Succeeded", "Failed", "Refused"] = Field(
        "Pending", description="Phase of the job. Refused: see the condition Accepted."
    )
    reason: str = Field("", description="Reason of the phase, in CamelCase.")
    message: str = Field("", description="Reason of the phase, as a sentence.")
    observed_generation: int = Field(0, description="Generation of the spec to which this status refers.")
    trials: TrialCounts = Field(default_factory=TrialCounts, description="Number of trials by state.")
    done: str = Field("", description="Finished trials and trials.max, for `kubectl get`.")
    best: BestTrial | None = Field(
        None, description="Trial with the best value so far; missing if there are several objectives."
    )
    pareto_front: list[FrontTrial] = Field(
        default_factory=list,
        max_length=MAX_FRONT,
        description="Trials that no other trial dominates, with several objectives: at most 50, the most spread. The "
        "best in the first objective comes first.",
    )
    gpu_seconds: GpuUse = Field(default_factory=GpuUse, description="GPU-seconds by use.")
    gpu_hours: float = Field(0.0, description="Sum of all GPU-seconds, in hours.")
    suspensions: int = Field(0, description="Number of suspensions of all trials.")
    lost_work: JobLostWork = Field(
        default_factory=JobLostWork, description="Work that had to be repeated because pods ended before a checkpoint."
    )
    warm_start: WarmStartStatus | None = Field(
        None, description="What the search took from search.warmStart when it was accepted."
    )
    eta: datetime | None = Field(None, description="Estimated time at which the search ends.")
    started_at: datetime | None = Field(None, description="Time at which the job was accepted.")
    finished_at: datetime | None = Field(None, description="Time at which the last trial ended.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Conditions of the job, such as Accepted.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
