"""HyperParamTrial: one point of the search and its progress.

The operator writes the phase, reason, rank and pod. The agent writes the curve, its log cursor, suspensions,
checkpoints and lost work. Both use server-side apply with a field manager of their own, so that neither overwrites the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field

from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Scalar
from podium_core.schema.base import Condition, ObjectMeta, SpecModel, StatusModel
from podium_core.schema.job import MAX_ADDITIONAL_METRICS, MAX_WORKERS

JOB_LABEL = "podium.dev/job"  # on every trial and its pods; selects those of one job on the server
RANK_LABEL = "podium.dev/rank"  # on the pods of a trial that has several workers
WORKERS_LABEL = "podium.dev/workers"  # on these pods: how many workers the trial has
RANK_SOURCE = "podium.dev/rank-label"  # on these pods: the label that has the rank
MAX_CURSOR_FILES = 32
NonFinite = Literal["nan", "inf", "-inf"]


class Parent(SpecModel):
    """The trial from whose checkpoint a child of population-based training continues."""

    name: str = Field(min_length=1, max_length=253, description="Name of the parent.")
    uid: str = Field(min_length=1, max_length=253, description="UID of the parent.")
    generation: int = Field(ge=1, description="Number of ancestors; 1: the parent started from the beginning.")
    step: float = Field(ge=0, description="Step at which the trials were compared.")
    replaces: str = Field(min_length=1, max_length=253, description="Name of the trial that this one replaces.")


class TrialSpec(SpecModel):
    """What to run, and what its owner requests."""

    job: str = Field(min_length=1, max_length=253, description="Name of the HyperParamJob; immutable.")
    number: int = Field(ge=0, description="Number of the trial in its job, counted from 0; immutable.")
    parameters: dict[str, Scalar] = Field(description="Values of the parameters in this trial; immutable.")
    parent: Parent | None = Field(
        None, description="Trial from whose checkpoint this one continues (search.algorithm pbt only); immutable."
    )
    suspend: bool = Field(False, description="If true, the trial gets no GPU until this is false again.")
    pinned: bool = Field(
        False, description="If true, the trial is ranked before all trials of its job that are not pinned."
    )
    stopped: bool = Field(False, description="If true, the trial ends now and keeps its result.")


class CurvePoint(StatusModel):
    """One value that the trial printed."""

    step: float = Field(description="Step of the value, in the unit of metrics.stepKey.")
    value: float = Field(description="Value of the objective. The worst finite number stands for NaN and infinity.")
    time: float = Field(description="Time at which the value was printed, in seconds since the Unix epoch.")


class CurveStatus(StatusModel):
    """The learning curve on a fixed geometric grid of steps, with the first, the last and the best point."""

    points: list[CurvePoint] = Field(
        default_factory=list, max_length=256, description="Points of the curve, ordered by step."
    )


class AdditionalMetric(StatusModel):
    """Values of one of the job's additional metrics."""

    metric: str = Field(description="Name of the metric, as in objective.additionalMetrics.")
    step: float = Field(description="Step of the latest value, in the unit of metrics.stepKey.")
    latest: float | NonFinite = Field(
        description="Latest value. NaN and infinity are the strings nan, inf and -inf, since JSON has no such numbers."
    )
    min: float | None = Field(None, description="Lowest finite value; missing if there is none.")
    min_step: float | None = Field(None, description="Step at which the lowest value was printed first.")
    max: float | None = Field(None, description="Highest finite value; missing if there is none.")
    max_step: float | None = Field(None, description="Step at which the highest value was printed first.")


class FileCursor(StatusModel):
    """How far one of several files has been read."""

    name: str = Field(max_length=256, description="Path of the file in metrics.path.")
    offset: int = Field(ge=0, description="Number of bytes of the file that have been read.")


class LogCursor(StatusModel):
    """How far the log, or another source of the metrics, has been read.

    The agent writes it in the same patch as the curve, so that no value is lost or counted twice.
    """

    pod_uid: str = Field("", description="UID of the pod that wrote the log.")
    container: str = Field("", description="Name of the container that wrote the log.")
    file: str = Field("", description="Name of the log file.")
    fingerprint: str = Field(
        "",
        description="Hash of the first bytes of the file, and for a file of the trial also of the last ones that were "
        "read. It distinguishes a rotated file from a new one.",
    )
    offset: int = Field(0, description="Number of bytes of the file that have been read.")
    files: list[FileCursor] | None = Field(
        None, max_length=MAX_CURSOR_FILES, description="How far each event file has been read (tensorboard only)."
    )
    lines: int = Field(0, description="Number of lines that have been read, over all files.")
    step_pending: bool = Field(False, description="Whether a step was read whose value follows on a later line.")
    step: float | None = Field(
        None, description="Current step of this pod: the last step that it printed, or the step that it continued from."
    )
    awaiting_first_value: bool = Field(
        False,
        description="Whether this pod continued from a checkpoint or started from step 0, and has not printed a "
        "value yet.",
    )
    complete: bool = Field(False, description="Whether the pod has ended and its log was read to the end.")


class SuspensionRecord(StatusModel):
    """One suspension."""

    method: str = Field(description="Suspension method, such as freeze.")
    at: datetime = Field(description="Time at which the agent started the suspension.")
    suspend_seconds: float = Field(description="Seconds that the suspension took.")
    resume_seconds: float | None = Field(
        None, description="Seconds that the resumption took; missing until the trial is resumed."
    )
    bytes: int = Field(0, description="Bytes of state that were moved.")


class Suspensions(StatusModel):
    """All suspensions of this trial."""

    count: int = Field(0, description="Number of suspensions.")
    suspend_seconds: float = Field(0.0, description="Seconds that all suspensions took.")
    resume_seconds: float = Field(0.0, description="Seconds that all resumptions took.")
    recent: list[SuspensionRecord] = Field(default_factory=list, max_length=32, description="Most recent suspensions.")


class CheckpointStatus(StatusModel):
    """The newest complete checkpoint.

    Its completion marker (`podium-checkpoint.json`, written last) was observed.
    """

    step: float = Field(description="Step of the checkpoint, in the unit of metrics.stepKey.")
    at: datetime = Field(description="Time at which the completion marker was observed.")
    path: str = Field(".", description="Path of the checkpoint in the trial's folder on the checkpoint volume.")
    node: str = Field("", description="Node on which the checkpoint was written.")
    gpu_seconds: float = Field(0.0, description="GPU-seconds of the trial when the completion marker was observed.")
    attempt: int = Field(0, description="Attempt that wrote the checkpoint.")


class LostWorkRecord(StatusModel):
    """Work that one new attempt had to repeat."""

    attempt: int = Field(description="Attempt that had to repeat the work. Each attempt is counted once.")
    at: datetime = Field(description="Time at which that attempt passed its gate.")
    step: float = Field(description="Last step that was printed before that attempt.")
    resumed_from: float = Field(0.0, description="Step from which the attempt continued; 0 if there was no checkpoint.")
    steps: float = Field(description="Steps that had to be repeated: step - resumedFrom.")
    gpu_seconds: float = Field(
        0.0,
        description="GPU-seconds that had to be repeated. They are estimated in proportion if the attempt continued "
        "from a "
        "checkpoint older than the newest observed one.",
    )


class LostWork(StatusModel):
    """All work that was lost because a pod ended before its trial could checkpoint."""

    count: int = Field(0, description="Number of attempts that lost work.")
    steps: float = Field(0.0, description="Total number of steps that had to be repeated.")
    gpu_seconds: float = Field(0.0, description="Total number of GPU-seconds that had to be repeated.")
    accounted_gpu_seconds: float = Field(
        0.0, description="GPU-seconds of the trial when work was last lost, so that no second is counted twice."
    )
    recent: list[LostWorkRecord] = Field(default_factory=list, max_length=16, description="Most recent losses.")


class Allocation(StatusModel):
    """Interval during which the trial held its GPUs; `end` is missing while it lasts."""

    gpus: list[str] = Field(description="UUIDs of the GPUs.")
    node: str = Field(description="Name of the node.")
    start: datetime = Field(description="Time at which the trial got the GPUs.")
    end: datetime | None = Field(None, description="Time at which the trial gave up the GPUs.")


class BestPoint(StatusModel):
    """The best value so far."""

    step: float = Field(description="Step of the best value.")
    value: float = Field(description="Best value of the objective.")


class Prediction(StatusModel):
    """The expected best value at the end, with an interval that contains it with a probability of 80 %."""

    value: float = Field(description="Median of the prediction.")
    low: float = Field(description="Lower end of the interval.")
    high: float = Field(description="Upper end of the interval.")


class Disruptions(StatusModel):
    """Consecutive pods that the cluster ended or rejected while the trial made no step."""

    consecutive: int = Field(0, description="Number of consecutive disruptions.")
    step: float | None = Field(None, description="Last step of the trial at the newest disruption.")
    retry_at: datetime | None = Field(
        None,
        description="Time before which no new pod is created. The delay grows with the number of consecutive "
        "disruptions.",
    )


class Migration(StatusModel):
    """Live migration of the trial to another node (container-checkpoint, experimental)."""

    phase: MigrationPhase = Field(
        description="Phase of the migration. If it is Failed, code and message give the reason."
    )
    since: datetime = Field(description="Time at which the phase or the code was set.")
    pod_uid: str = Field(description="UID of the pod on the source node.")
    attempt: int = Field(description="Attempt that continues the trial on the target node.")
    source_node: str = Field(description="Node from which the trial moves.")
    target_node: str = Field(description="Node to which the trial moves.")
    reason: str = Field(
        "NodeDraining",
        description="Reason of the migration, in CamelCase: NodeDraining, or Rebalancing if the target has fewer "
        "trials on its "
        "GPUs.",
    )
    image: str = Field("", description="Digest of the checkpoint image; empty until the image is pushed.")
    gpu_state: str = Field(
        "", description="GPU state of the trial, as in the annotation podium.dev/gpu-state of the new pod."
    )
    code: str = Field(
        "", description="Reason of the failure, in CamelCase; TargetDraining while the image waits for a drained node."
    )
    message: str = Field("", description="Reason of the failure or of the wait, as a sentence.")


class Rebalanced(StatusModel):
    """The last move of the trial, by a requeue, to GPUs with fewer trials."""

    at: datetime = Field(description="Time of the decision.")
    source_node: str = Field(description="Node that the trial left.")
    target_node: str = Field(
        description="Node that the new pod prefers; the same node if the trial moves to another GPU of it."
    )
    attempt: int = Field(description="Attempt of the new pod.")
    count: int = Field(description="Number of moves so far. After each move the trial keeps its slot twice as long.")


class ContainerCheckpoint(StatusModel):
    """Answer of the agent to the request for a checkpoint image of a running trial."""

    pod_uid: str = Field(description="UID of the pod of which an image was requested.")
    image: str = Field("", description="Digest of the image in the registry; empty if the request was refused.")
    gpu_state: str = Field("", description="GPU state of the trial as JSON; empty if there is none.")
    code: str = Field("", description="Reason of the refusal, in CamelCase.")
    message: str = Field("", description="Reason of the refusal, as a sentence.")


class UnreadLog(StatusModel):
    """Source of a running trial's metrics that yields no value of the objective, or none any more."""

    lines: int = Field(description="Number of lines or records that were read.")
    reason: str = Field(
        max_length=512, description="Why the newest line that names the metric yields no value, or what was looked at."
    )
    last: list[str] = Field(default_factory=list, max_length=8, description="Last lines that were read.")


class WorkerStatus(StatusModel):
    """Pod of one of several workers of a trial."""

    rank: int = Field(description="Rank of the worker; 0: the worker whose log and checkpoints count.")
    pod: str = Field(description="Name of the worker's pod.")
    node: str = Field("", description="Node of the worker's pod; empty while it has none.")
    gpus: list[str] = Field(
        default_factory=list, max_length=64, description="UUIDs of the GPUs on which the worker has a slot."
    )


class TrialStatus(StatusModel):
    """Progress of the trial. The operator writes the first part, the agent of its node the second."""

    # Written by the operator.
    phase: TrialPhase = Field(TrialPhase.PENDING, description="Phase of the trial.")
    reason: str = Field("", description="Reason of the phase, in CamelCase.")
    message: str = Field("", description="Reason of the phase, as a sentence.")
    rank: int | None = Field(None, description="Rank among the trials of the job; 1 is the best.")
    attempt: int = Field(
        0, description="Number of the current attempt, counted from 0. Each attempt has a pod of its own."
    )
    failures: int = Field(0, description="Number of failures of the trial's own process.")
    disruptions: Disruptions | None = Field(
        None, description="Consecutive disruptions by the cluster; missing if there are none."
    )
    pod: str | None = Field(None, description="Name of the trial's pod.")
    node: str | None = Field(None, description="Node of the trial's pod.")
    nodes: list[str] = Field(
        default_factory=list,
        max_length=4,
        description="Nodes whose agents may write to this status: that of the present pod, then those of earlier pods.",
    )
    gpus: list[str] = Field(
        default_factory=list, max_length=64, description="UUIDs of the GPUs on which the trial has a slot."
    )
    workers: list[WorkerStatus] = Field(
        default_factory=list,
        max_length=MAX_WORKERS,
        description="Pods of the trial's workers, by rank; empty if the trial has one pod.",
    )
    best: BestPoint | None = Field(None, description="Best value so far.")
    predicted: Prediction | None = Field(None, description="Predicted final value; only if trials.maxSteps is set.")
    started_at: datetime | None = Field(None, description="Time at which the first pod of the trial started.")
    finished_at: datetime | None = Field(None, description="Time at which the trial ended.")
    migration: Migration | None = Field(
        None, description="Last live migration of the trial; missing if there was none."
    )
    rebalanced: Rebalanced | None = Field(
        None, description="Last move of the trial to a GPU with fewer trials; missing if there was none."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Conditions of the trial, such as MetricsUnavailable.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    # Written by the agent.
    curve: CurveStatus = Field(default_factory=CurveStatus, description="Learning curve (written by the agent).")
    last_step: float | None = Field(None, description="Last step that the trial printed (written by the agent).")
    last_value: float | None = Field(
        None, description="Value of the objective at the last step (written by the agent)."
    )
    additional_metrics: list[AdditionalMetric] = Field(
        default_factory=list,
        max_length=MAX_ADDITIONAL_METRICS,
        description="Additional metrics of the job that the trial has printed (written by the agent).",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["metric"]},
    )
    log_cursor: LogCursor | None = Field(
        None, description="How far the trial's log has been read (written by the agent)."
    )
    unread_log: UnreadLog | None = Field(
        None,
        description="Set while the source of the metrics yields no value of the objective, after half a minute, or "
        "cannot be read (written by the agent).",
    )
    suspensions: Suspensions = Field(
        default_factory=Suspensions, description="Number and cost of the suspensions (written by the agent)."
    )
    checkpoint: CheckpointStatus | None = Field(
        None, description="Newest checkpoint; missing if none was observed (written by the agent)."
    )
    lost_work: LostWork = Field(
        default_factory=LostWork, description="Work that new attempts had to repeat (written by the agent)."
    )
    gpu_seconds: float = Field(
        0.0, description="Seconds for which the trial held GPUs, times the number of GPUs (written by the agent)."
    )
    allocations: list[Allocation] = Field(
        default_factory=list,
        max_length=512,
        description="Intervals during which the trial held its GPUs (written by the agent).",
    )
    container_checkpoint: ContainerCheckpoint | None = Field(
        None,
        description="Result of the last request for a checkpoint image of the running trial (written by the agent).",
    )


class HyperParamTrial(StatusModel):
    """One trial of a HyperParamJob: a point of the search space and its learning curve."""

    metadata: ObjectMeta
    spec: TrialSpec = Field(description="What to run.")
    status: TrialStatus = Field(default_factory=TrialStatus, description="Progress of the trial.")


def rank_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    """Return the rank of a worker from its pod's labels; 0 for the pod of a trial that has one."""
    text = labels.get(annotations.get(RANK_SOURCE, RANK_LABEL), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def pod_name(trial: str, attempt: int, rank: int = 0) -> str:
    """Return the name of an attempt's pod; `rank`: of its worker."""
    return f"{trial}-{attempt}" if rank == 0 else f"{trial}-{attempt}-w{rank}"
