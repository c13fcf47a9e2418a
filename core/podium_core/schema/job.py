"""HyperParamJob: what a user writes. The CRD is generated from these models; see `schema.generation.crd`.

The models define what each field may hold. The rules about several fields are in `schema.job_rules`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field
from pydantic.config import JsonDict

from podium_core.domain.snapshot import Scalar
from podium_core.schema.base import ObjectMeta, SpecModel, StatusModel
from podium_core.schema.job_status import JobStatus
from podium_core.schema.metrics.spec import MetricsSpec
from podium_core.schema.search.spec import MAX_OBJECTIVES, Parameter, SearchSpec
from podium_core.schema.template.workload import TrialWorkload, pod_template_of

Quantity = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
        json_schema_extra={"x-says": "write a Kubernetes quantity, such as 12Gi"},
    ),
]
MAX_ADDITIONAL_METRICS = 8  # metrics besides the objective
MAX_WORKERS = 16  # pods of one trial
MAX_PRIORITY = 1000  # of a job within its queue, above and below 0
GPU_SECONDS = "podium.dev/gpu-seconds"  # an objective that Podium measures itself: the cost of a trial
MetricName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        pattern=r"^\S+$",
        json_schema_extra={"x-says": "write the metric's name without spaces, such as val_loss"},
    ),
]
Method = Literal["freeze", "cuda-checkpoint", "container-checkpoint", "app-checkpoint"]
# The API server writes defaults into objects, and an operator of an earlier release refuses fields that it lacks.
LATER: JsonDict = {"x-no-default": True}  # of a field that the first release lacks
_PATH_SAYS: JsonDict = {"x-says": "write an absolute path, such as /ckpt"}


class Direction(StrEnum):
    """Direction in which the objective improves."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class Objective(SpecModel):
    """The number that the search optimizes, as the trial prints it."""

    metric: str = Field(min_length=1, max_length=128, description="Name of the metric in the output of the trial.")
    direction: Direction = Field(description="Whether the search maximizes or minimizes the metric.")
    target: float | None = Field(
        None,
        description="Value at which the search ends: the job succeeds as soon as a trial reports a value this good.",
    )
    additional_metrics: list[MetricName] = Field(
        default_factory=list,
        max_length=MAX_ADDITIONAL_METRICS,
        description="Further metrics to read from the same output. They are shown in status.additionalMetrics of "
        "each trial. They do not affect the ranking.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class OneOfObjectives(SpecModel):
    """One of several numbers that the search optimizes together."""

    metric: MetricName = Field(
        description="Name of the metric in the output of the trial, or `podium.dev/gpu-seconds`: the GPU-seconds that "
        "a whole trial takes, which Podium measures.",
    )
    direction: Direction = Field(description="Whether the search maximizes or minimizes the metric.")


class Trials(SpecModel):
    """How many trials there are, how many run at a time, and how long each one trains."""

    max: int = Field(ge=1, le=10_000, description="Number of trials of the whole search.")
    parallel: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = Field(
        "auto",
        description="Number of trials that are started and not finished at a time; it may exceed the number of GPUs. "
        "auto: as many as there are slots. Twice as many if the trials write checkpoints that every node can reach, "
        "because they can then release their slots to each other.",
    )
    max_steps: float | None = Field(
        None,
        gt=0,
        description="Step at which a trial is complete, in the unit of metrics.stepKey. Required unless the policy "
        "is fifo, round_robin or slaq, or the trials use no GPU.",
    )
    max_failed: int = Field(
        3, ge=0, le=10_000, description="Number of failed trials that the job tolerates. With more, the job fails."
    )
    retries: int = Field(2, ge=0, le=20, description="Number of new attempts for a trial whose own process failed.")
    workers: int = Field(
        1,
        ge=1,
        le=MAX_WORKERS,
        description="Number of pods of one trial, each on a node of its own, for distributed training; immutable. "
        "gpus.perTrial counts the GPUs of all of them. All workers of a trial run at the same time, or none. "
        "Default: 1.",
        json_schema_extra=LATER,
    )


class Budget(SpecModel):
    """Limits at which the search stops, even if trials are left."""

    gpu_seconds: float | None = Field(None, gt=0, description="GPU-seconds that all trials may use together.")
    deadline: AwareDatetime | None = Field(None, description="Time after which no trial runs.")


class PolicySpec(SpecModel):
    """How the trials are ranked."""

    name: Literal[
        "asha",
        "best_so_far",
        "envelope",
        "fifo",
        "hermes",
        "hyperband",
        "median_stop",
        "pareto",
        "pop",
        "round_robin",
        "slaq",
    ] = Field("envelope", description="Name of the ranking policy. The best-ranked trials get the GPUs first.")
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="Settings of the policy; see the documentation of the policies. envelope: minShare (default "
        "0.03, at most 0.5) is the largest part of the job's GPU time that goes to the trials that have waited "
        "longest for their next value.",
    )


class Gpus(SpecModel):
    """GPUs that one trial needs."""

    per_trial: int = Field(
        1,
        ge=0,
        le=64,
        description="Number of GPUs of one trial, over all of its workers; 0: the trial uses only CPUs.",
    )
    memory: Quantity | None = Field(None, description="GPU memory that one trial uses on each of its GPUs.")
    products: list[Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        default_factory=list, max_length=32, description="Names of acceptable GPU products; empty: any."
    )


class Suspension(SpecModel):
    """How a trial gives up its GPU for another one without losing a step."""

    methods: list[Method] = Field(
        default_factory=lambda: list[Method](["freeze"]),
        min_length=1,
        max_length=4,
        description="Suspension methods, tried in this order. container-checkpoint (experimental) moves running "
        "trials off draining nodes and requires cuda-checkpoint.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    grace_period_seconds: int = Field(30, ge=1, le=3600, description="Seconds that a trial may take to checkpoint.")
    downsize_cpu: bool = Field(
        False,
        description="If true, a trial requests its CPUs only while it runs. More trials then fit on a node than its "
        "CPUs would allow.",
    )


class HostPath(SpecModel):
    """A folder of the node."""

    path: str = Field(
        max_length=1024,
        pattern="^/.+",
        description="Absolute path of the folder on the node.",
        json_schema_extra=_PATH_SAYS,
    )


class CheckpointVolume(SpecModel):
    """Volume of the checkpoints.

    Exactly one of an existing claim, a folder of the node and a temporary folder.
    """

    claim_name: str | None = Field(None, min_length=1, max_length=253, description="Name of a PersistentVolumeClaim.")
    host_path: HostPath | None = Field(None, description="Folder of the node. The trial cannot change to another node.")
    empty_dir: dict[str, str] | None = Field(
        None, description="Temporary folder that is deleted together with the pod; write {}."
    )


class CheckpointSpec(SpecModel):
    """Where the trials write their checkpoints.

    Each trial has a folder of its own (subPath). The folders are removed together with the job unless `retain` is set.
    """

    path: str = Field(
        max_length=1024,
        pattern="^/.+",
        description="Path at which the volume is mounted in the trial.",
        json_schema_extra=_PATH_SAYS,
    )
    volume: CheckpointVolume = Field(description="Volume that holds the checkpoints: exactly one kind.")
    keep: int = Field(
        1,
        ge=1,
        le=100,
        description="Number of checkpoints that a trial keeps. The trial gets it in `PODIUM_CHECKPOINT_KEEP`.",
    )
    retain: bool = Field(False, description="If true, the folders remain when the job is deleted.")
    resume_args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=32,
        description="Arguments added to the command when a trial continues from a checkpoint. `$(podium.checkpoint)` "
        "stands for the path of the checkpoint.",
    )


class JobSpec(SpecModel):
    """A search: what to optimize, over which parameters, and what each trial runs."""

    single_objective: Objective | None = Field(
        None,
        alias="objective",
        description="Number that the search optimizes; immutable. Give either this or objectives.",
    )
    objectives: list[OneOfObjectives] | None = Field(
        None,
        min_length=2,
        max_length=MAX_OBJECTIVES,
        description="Numbers that the search optimizes together, instead of objective; immutable. The result is the "
        "Pareto front. Requires policy pareto, round_robin or fifo.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["metric"]},
    )
    parameters: list[Parameter] = Field(
        min_length=1,
        max_length=64,
        description="Dimensions of the search space; immutable.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    trials: Trials = Field(
        description="How many trials there are, how many run at a time, and how long each one trains."
    )
    given_template: dict[str, Any] | None = Field(
        None,
        alias="template",
        description="Pod template of the trials: {metadata?, spec}; immutable. Give either this or workload.",
    )
    workload: TrialWorkload | None = Field(
        None,
        description="JobSet or Kubeflow TrainJob that each trial runs, instead of template; immutable. Its controller "
        "must be installed.",
    )
    search: SearchSpec = Field(
        default_factory=SearchSpec, description="How the parameters of the trials are proposed; immutable."
    )
    budget: Budget | None = Field(None, description="Limits at which the search stops, even if trials are left.")
    policy: PolicySpec = Field(default_factory=PolicySpec, description="How the trials are ranked.")
    queue: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Queue of the job: the GPUQueue of this name, which shares the GPUs with other queues. With "
        "gpus.mode reservations also the LocalQueue of Kueue of this name, in the namespace of the job, that admits "
        "the GPU reservations. Default: the GPUQueue default, and gpus.reservations.queue of the Helm chart.",
        json_schema_extra={"x-says": "write the name of a queue, such as research"},
    )
    priority: int = Field(
        0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Priority of the job within its queue. While a job of a higher priority can use a GPU of the "
        "queue, a job of a lower one does not get it. Without GPUQueues, all jobs are in one queue. Default: 0.",
        json_schema_extra=LATER,
    )
    gpus: Gpus = Field(default_factory=Gpus, description="GPUs that one trial needs; immutable.")
    metrics: MetricsSpec = Field(
        default_factory=MetricsSpec, description="Where the learning curve comes from; immutable."
    )
    suspension: Suspension = Field(
        default_factory=Suspension,
        description="How a trial gives up its GPU for another one. Default: `methods: [freeze]`.",
        # CEL must distinguish a user's value from the default, since trials without GPUs are never suspended.
        json_schema_extra={"x-no-default": True},
    )
    checkpoint: CheckpointSpec | None = Field(None, description="Where the trials write their checkpoints; immutable.")
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=10 * 365 * 86400,
        description="Seconds after which the finished job is deleted, with its trials, pods and checkpoint folders. "
        "Default: it is kept.",
    )
    suspend: bool = Field(
        False, description="If true, all trials of the job give up their GPUs until this is false again."
    )

    @property
    def template(self) -> dict[str, Any]:
        """Return the pod template of the trials, or of the pods of a workload that train."""
        if self.given_template is not None:
            return self.given_template
        return {} if self.workload is None else pod_template_of(self.workload)

    def with_template(self, template: dict[str, Any]) -> JobSpec:
        """Return a copy with another pod template."""
        return self.model_copy(update={"given_template": template})

    @property
    def gpus_per_worker(self) -> int:
        """Return the number of GPUs that each pod of a trial requests."""
        return self.gpus.per_trial // self.trials.workers

    @property
    def objective(self) -> Objective:
        """Return the objective whose learning curve is kept.

        Of several it is the first that the trials print; the others are its additional metrics.
        """
        if self.single_objective is not None:
            return self.single_objective
        first, *others = [one for one in self.objectives or () if one.metric != GPU_SECONDS]
        return Objective(
            metric=first.metric,
            direction=first.direction,
            target=None,
            additional_metrics=[one.metric for one in others],
        )


class HyperParamJob(StatusModel):
    """A hyper-parameter search whose trials share the GPUs of the cluster."""

    metadata: ObjectMeta
    spec: JobSpec = Field(description="The search.")
    status: JobStatus = Field(default_factory=JobStatus, description="Progress of the search.")
