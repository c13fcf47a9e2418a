"""HyperParamTrial: one point of the search and what became of it.

The operator writes phase, reason, rank and the pod; the agent writes the curve, its log cursor, suspensions, saves and
losses.
Each uses server-side apply with its own field manager, so neither can overwrite the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from podium_core.domain.migration import CarryPhase
from podium_core.domain.phase import TrialPhase
from podium_core.schema.base import Condition, ObjectMeta, SpecModel, StatusModel
from podium_core.schema.job import MOST_ADDITIONAL, Scalar

NonFinite = Literal["nan", "inf", "-inf"]


class TrialSpec(SpecModel):
    """Intent only: what to run, and what its owner wants of it."""

    job: str = Field(min_length=1, max_length=253, description="name of its HyperParamJob; cannot change")
    number: int = Field(ge=0, description="of the trial in its job, from 0; cannot change")
    parameters: dict[str, Scalar] = Field(description="what this trial tries; cannot change")
    suspend: bool = Field(False, description="keep this trial off the GPU until unset")
    pinned: bool = Field(False, description="rank this trial before all others of its job")
    stopped: bool = Field(False, description="end this trial now and keep its result")


class CurvePoint(StatusModel):
    """One value that the trial printed."""

    step: float = Field(description="in stepKey's unit")
    value: float = Field(description="of the objective; the worst finite double stands for nan and infinity")
    time: float = Field(description="when it was printed, seconds since the epoch")


class CurveStatus(StatusModel):
    """The learning curve on a fixed geometric grid of steps, with the first, the last and the best point."""

    points: list[CurvePoint] = Field(default_factory=list, max_length=256, description="by step")


class AdditionalMetric(StatusModel):
    """What one of the job's additional metrics came to."""

    metric: str = Field(description="its name, as in objective.additionalMetrics")
    step: float = Field(description="of the latest value, in stepKey's unit")
    latest: float | NonFinite = Field(
        description="the value printed last; nan, inf and -inf as texts: JSON has no such number"
    )
    min: float | None = Field(None, description="the lowest finite value; missing: there was none")
    min_step: float | None = Field(None, description="at which that was printed first")
    max: float | None = Field(None, description="the highest finite value; missing: there was none")
    max_step: float | None = Field(None, description="at which that was printed first")


class LogCursor(StatusModel):
    """How far the log has been read: in the same patch as the curve, so that nothing is lost or counted twice."""

    pod_uid: str = Field("", description="of the pod whose log this is")
    container: str = Field("", description="whose log this is")
    file: str = Field("", description="name of the log file")
    fingerprint: str = Field("", description="hash of the file's first bytes: tells a rotated file from a new one")
    offset: int = Field(0, description="bytes of the file that were read")
    lines: int = Field(0, description="lines that were read, over all files")
    step_pending: bool = Field(False, description="a step was read whose value is still to come, on a later line")
    step: float | None = Field(
        None, description="where this pod is: the step that it printed last, done before or not, or went on from"
    )
    awaiting_first_value: bool = Field(
        False, description="this pod continued from a checkpoint, or started from step 0, and has printed no value yet"
    )


class SuspensionRecord(StatusModel):
    """One suspension."""

    method: str = Field(description="freeze, ...")
    at: datetime = Field(description="when it was ordered")
    suspend_seconds: float = Field(description="what it took to suspend")
    resume_seconds: float | None = Field(None, description="what it took to resume; missing: not resumed yet")
    bytes: int = Field(0, description="state that was moved")


class Suspensions(StatusModel):
    """All suspensions of this trial."""

    count: int = Field(0, description="number of suspensions")
    suspend_seconds: float = Field(0.0, description="what they took in all, to suspend")
    resume_seconds: float = Field(0.0, description="what they took in all, to resume")
    recent: list[SuspensionRecord] = Field(default_factory=list, max_length=32, description="the last ones")


class CheckpointStatus(StatusModel):
    """The newest save whose marker (`podium-checkpoint.json`, written last) was seen."""

    step: float = Field(description="that it holds, in stepKey's unit")
    at: datetime = Field(description="when its marker was seen")
    path: str = Field(".", description="of the save, in the trial's folder on the checkpoint volume")
    node: str = Field("", description="where it was written")
    gpu_seconds: float = Field(0.0, description="of the trial when its marker was seen")
    attempt: int = Field(0, description="that wrote it")


class LostWorkRecord(StatusModel):
    """What one new attempt had to do again."""

    attempt: int = Field(description="that began further back; each is counted once")
    at: datetime = Field(description="when that attempt passed its gate")
    step: float = Field(description="the last that was printed before")
    resumed_from: float = Field(0.0, description="where it went on: the step of its save; 0 without one")
    steps: float = Field(description="to do again: step - resumedFrom")
    gpu_seconds: float = Field(
        0.0, description="spent in vain since that save (pro rata where it went on from an older one than was seen)"
    )


class LostWork(StatusModel):
    """All that was lost because a pod ended before its trial could save."""

    count: int = Field(0, description="number of attempts that lost something")
    steps: float = Field(0.0, description="in all, to do again")
    gpu_seconds: float = Field(0.0, description="in all, spent in vain")
    accounted_gpu_seconds: float = Field(
        0.0, description="gpuSeconds of the trial when work was last lost, so that none is counted twice"
    )
    recent: list[LostWorkRecord] = Field(default_factory=list, max_length=16, description="the last ones")


class Allocation(StatusModel):
    """One turn on the GPUs, for the Gantt chart; `end` is missing while it lasts."""

    gpus: list[str] = Field(description="uuids")
    node: str = Field(description="name of the node")
    start: datetime = Field(description="when the turn began")
    end: datetime | None = Field(None, description="when it ended")


class BestPoint(StatusModel):
    """The best value so far."""

    step: float = Field(description="at which it was reached")
    value: float = Field(description="of the objective")


class Prediction(StatusModel):
    """The final best value to expect, with the interval that holds it with a probability of 80 %."""

    value: float = Field(description="the median")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")


class Disruptions(StatusModel):
    """Pods that the cluster took away or refused, one after another, without a further step of the trial."""

    consecutive: int = Field(0, description="number of them")
    step: float | None = Field(None, description="the trial's last step at the newest of them")
    retry_at: datetime | None = Field(None, description="no new pod before: ever later, the more there are in a row")


class Migration(StatusModel):
    """The way of a live trial to another node (container-checkpoint, experimental)."""

    phase: CarryPhase = Field(description="how far it is; Failed: it is not migrated, code and message say why")
    since: datetime = Field(description="when that phase began, or that code was set")
    pod_uid: str = Field(description="uid of the pod that it leaves")
    attempt: int = Field(description="number of the pod that it goes on in")
    source_node: str = Field(description="node that it leaves")
    target_node: str = Field(description="node that it goes to")
    reason: str = Field(
        "NodeDraining", description="CamelCase word: why it goes; Rebalancing: fewer trials a GPU there"
    )
    image: str = Field("", description="of its memory, by digest; empty: not made yet")
    gpu_state: str = Field("", description="what it held on GPUs, as its new pod's annotation podium.dev/gpu-state")
    code: str = Field("", description="CamelCase word: why it failed; TargetDraining: what its image waits for")
    message: str = Field("", description="the same as a sentence")


class Rebalanced(StatusModel):
    """A move of the trial to GPUs with fewer trials, by a requeue."""

    at: datetime = Field(description="when it was decided")
    source_node: str = Field(description="node that it left")
    target_node: str = Field(description="node that its new pod prefers; the same one: for another GPU of it")
    attempt: int = Field(description="number of that pod")
    count: int = Field(description="moves so far: the trial stays twice as long after each")


class ContainerCheckpoint(StatusModel):
    """What the agent answers when it was asked to make a live trial an image."""

    pod_uid: str = Field(description="uid of the pod that was to leave")
    image: str = Field("", description="in the registry, by digest; empty: it was refused")
    gpu_state: str = Field("", description="what it held on GPUs, as JSON; empty: nothing")
    code: str = Field("", description="CamelCase word: why not")
    message: str = Field("", description="the same as a sentence")


class TrialStatus(StatusModel):
    """What became of it: the first part is written by the operator, the second by the agent of its node."""

    # by the operator
    phase: TrialPhase = Field(TrialPhase.PENDING, description="where it stands")
    reason: str = Field("", description="CamelCase word: why")
    message: str = Field("", description="the same as a sentence")
    rank: int | None = Field(None, description="among the trials of its job; 1 = first")
    attempt: int = Field(0, description="number of its pod, from 0")
    failures: int = Field(0, description="how often its own process failed")
    disruptions: Disruptions | None = Field(None, description="of late, by the cluster; missing: none")
    pod: str | None = Field(None, description="name of its pod")
    node: str | None = Field(None, description="where the pod is")
    gpus: list[str] = Field(default_factory=list, max_length=64, description="uuids of the GPUs that it has a share of")
    best: BestPoint | None = Field(None, description="the best value so far")
    predicted: Prediction | None = Field(None, description="the final value to expect; only where maxSteps is known")
    started_at: datetime | None = Field(None, description="when its first pod started")
    finished_at: datetime | None = Field(None, description="when it ended")
    migration: Migration | None = Field(None, description="its last way to another node, alive; missing: none")
    rebalanced: Rebalanced | None = Field(None, description="its last move to a GPU with fewer trials; missing: none")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="MetricsUnavailable and others, as in Kubernetes",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    # by the agent
    curve: CurveStatus = Field(default_factory=CurveStatus, description="(agent) the learning curve")
    last_step: float | None = Field(None, description="(agent) the last step that it printed")
    last_value: float | None = Field(None, description="(agent) the value at that step")
    additional_metrics: list[AdditionalMetric] = Field(
        default_factory=list,
        max_length=MOST_ADDITIONAL,
        description="(agent) the job's additional metrics, as far as they were printed",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["metric"]},
    )
    log_cursor: LogCursor | None = Field(None, description="(agent) how far its log has been read")
    suspensions: Suspensions = Field(default_factory=Suspensions, description="(agent) number and cost of suspensions")
    checkpoint: CheckpointStatus | None = Field(None, description="(agent) the newest save; missing: none was seen")
    lost_work: LostWork = Field(default_factory=LostWork, description="(agent) what new attempts had to do again")
    gpu_seconds: float = Field(0.0, description="(agent) seconds that it held GPUs, times their number")
    allocations: list[Allocation] = Field(default_factory=list, max_length=512, description="(agent) its turns on GPUs")
    container_checkpoint: ContainerCheckpoint | None = Field(
        None, description="(agent) its pod was asked to leave alive: what came of it"
    )


class HyperParamTrial(StatusModel):
    """One trial of a HyperParamJob: a point of the search space and its learning curve."""

    metadata: ObjectMeta
    spec: TrialSpec = Field(description="what to run")
    status: TrialStatus = Field(default_factory=TrialStatus, description="what became of it")
