"""HyperParamJob: what a user types. The CRD is generated from these models; see `schema.crd`.

The models hold what one field may be; what fields may be together is in `schema.job_rules`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field
from pydantic.config import JsonDict

from podium_core.schema.base import Condition, ObjectMeta, SpecModel, StatusModel

Quantity = Annotated[
    str,
    Field(
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
        json_schema_extra={"x-says": "write a Kubernetes quantity, such as 12Gi"},
    ),
]
Scalar = str | bool | int | float
MAX_ADDITIONAL_METRICS = 8  # metrics beside the objective
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
_PATH_SAYS: JsonDict = {"x-says": "write an absolute path, such as /ckpt"}


class Direction(StrEnum):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class ParameterType(StrEnum):
    FLOAT = "float"
    INT = "int"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"


class Objective(SpecModel):
    """The number that the search improves, as the trial prints it."""

    metric: str = Field(min_length=1, max_length=128, description="its name in the trial's output")
    direction: Direction = Field(description="which way is better")
    target: float | None = Field(None, description="the job succeeds as soon as a trial reports a value this good")
    additional_metrics: list[MetricName] = Field(
        default_factory=list,
        max_length=MAX_ADDITIONAL_METRICS,
        description="further metrics to read from the same output; each trial's status.additionalMetrics shows them; "
        "trials are ranked by the objective alone",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class Parameter(SpecModel):
    """One axis of the search space: a range (min, max) or a list of values."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$",
        description="reaches the trial as `--name=...` in `$(podium.args)`, as `$(podium.params.name)`, and as the "
        "variable `PODIUM_PARAM_NAME`",
        json_schema_extra={"x-says": "start with a letter or _, go on with letters, digits, and _ . -, such as lr"},
    )
    type: ParameterType | None = Field(None, description="float unless given; values imply categorical")
    min: float | None = Field(None, description="lower end of the range, included")
    max: float | None = Field(None, description="upper end of the range, included")
    step: float | None = Field(None, gt=0, description="distance of the points in the range (linear scale only)")
    scale: Literal["linear", "log"] = Field("linear", description="log: each power of ten is as likely as the next")
    values: list[Scalar] | None = Field(
        None, min_length=1, max_length=256, description="the choices, instead of a range: texts, numbers, true, false"
    )

    @property
    def kind(self) -> ParameterType:
        """What a searcher has to choose from: values are always a choice, whatever type their text is read as."""
        if self.values is not None:
            return ParameterType.CATEGORICAL
        return self.type if self.type is not None else ParameterType.FLOAT


class Search(SpecModel):
    """Who proposes parameters."""

    algorithm: Literal["random", "grid", "tpe"] = Field(
        "random",
        description="how the next trial's parameters are chosen; tpe goes by what the trials before have shown, and so "
        "makes each as late as it can",
    )
    seed: int = Field(
        0,
        ge=0,
        le=2**32 - 1,
        description="the same seed proposes the same parameters; with tpe, where trials show the same at the same time",
    )
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="of the algorithm. tpe: startupTrials, how many must have shown a value before it chooses by "
        "values, at random until then (default 10); random and grid have none",
    )


class Trials(SpecModel):
    """How many trials, how many at a time, and how long one is."""

    max: int = Field(ge=1, le=10_000, description="number of trials of the whole search")
    parallel: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = Field(
        "auto",
        description="started and unfinished at a time; may exceed the GPUs; auto = as many as there is room for, and "
        "where trials that save for any node give places to each other, as many again as there are places",
    )
    max_steps: float | None = Field(
        None,
        gt=0,
        description="the step at which a trial is complete (stepKey's unit); required unless the policy is fifo, "
        "round_robin or slaq, or the trials take no GPU",
    )
    max_failed: int = Field(3, ge=0, le=10_000, description="the job fails when more trials than this have failed")
    retries: int = Field(2, ge=0, le=20, description="new attempts of a trial whose own process failed")


class Budget(SpecModel):
    """When to stop, whatever is left to try."""

    gpu_seconds: float | None = Field(None, gt=0, description="GPU-seconds of all trials together")
    deadline: AwareDatetime | None = Field(None, description="no trial runs after this moment")


class Policy(SpecModel):
    """How trials are ranked."""

    name: Literal[
        "asha",
        "best_so_far",
        "envelope",
        "fifo",
        "hermes",
        "hyperband",
        "median_stop",
        "pop",
        "round_robin",
        "slaq",
    ] = Field("envelope", description="who gets the GPUs first")
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="of the policy; docs/reference/policies.md lists them. envelope: minShare (default 0.03, at most "
        "0.5) is the largest share of the job's GPU time for the trials that have waited longest for their next value; "
        "docs/explanation/envelope.md has the bound on their wait",
    )


class Gpus(SpecModel):
    """What one trial needs of GPUs."""

    per_trial: int = Field(1, ge=0, le=64, description="GPUs of one trial; 0 = it runs on the CPU only")
    memory: Quantity | None = Field(None, description="GPU memory that one trial uses on each of its GPUs")
    products: list[Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        default_factory=list, max_length=32, description="products that will do; empty = any"
    )


class Metrics(SpecModel):
    """Where the curve comes from."""

    source: Literal["stdout", "file", "tensorboard", "prometheus", "push"] = Field(
        "stdout", description="where the values are read; this version reads stdout"
    )
    format: Literal["json", "text", "huggingface"] = Field(
        "json", description="json: one object a line; text: name=value; huggingface: the dict that Trainer prints"
    )
    filter: str | None = Field(
        None, min_length=1, max_length=512, description="regular expression with groups name and value (text)"
    )
    step_key: str = Field("step", min_length=1, max_length=128, description="the step's name in the trial's output")


class Suspension(SpecModel):
    """How a trial makes room for another without losing a step."""

    methods: list[Method] = Field(
        default_factory=lambda: list[Method](["freeze"]),
        min_length=1,
        max_length=4,
        description="tried in this order; container-checkpoint, experimental: off draining nodes, with cuda-checkpoint",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    grace_period_seconds: int = Field(30, ge=1, le=3600, description="how long a trial may take to save its state")
    downsize_cpu: bool = Field(
        False,
        description="request a trial's CPUs only while it is at work: more trials fit on a node than its CPUs hold",
    )


class HostPath(SpecModel):
    """A folder of the node."""

    path: str = Field(max_length=1024, pattern="^/.+", description="of the folder", json_schema_extra=_PATH_SAYS)


class CheckpointVolume(SpecModel):
    """Exactly one of: an existing claim, a folder of the node (the trial must stay on it), a scratch folder."""

    claim_name: str | None = Field(None, min_length=1, max_length=253, description="name of a PersistentVolumeClaim")
    host_path: HostPath | None = Field(None, description="a folder of the node: the trial has to stay on it")
    empty_dir: dict[str, str] | None = Field(None, description="a scratch folder that goes with the pod; {} will do")


class Checkpoint(SpecModel):
    """Where the trial itself saves; mounted with a subPath of its own. Removed with the job unless `retain`."""

    path: str = Field(
        max_length=1024,
        pattern="^/.+",
        description="where the volume appears in the trial",
        json_schema_extra=_PATH_SAYS,
    )
    volume: CheckpointVolume = Field(description="where the state is kept: exactly one kind")
    keep: int = Field(
        1,
        ge=1,
        le=100,
        description="how many saves of a trial are kept, by whoever saves; reaches it as `PODIUM_CHECKPOINT_KEEP`",
    )
    retain: bool = Field(False, description="keep the folders when the job is deleted")
    resume_args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=32,
        description="added to the command when a trial goes on from a save, whose path is `$(podium.checkpoint)` here",
    )


class JobSpec(SpecModel):
    """A search: what to improve, over which parameters, by running what."""

    objective: Objective = Field(description="the number that the search improves; cannot change")
    parameters: list[Parameter] = Field(
        min_length=1,
        max_length=64,
        description="the axes of the search space; cannot change",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    trials: Trials = Field(description="how many trials, how many at a time, and how long one is")
    template: dict[str, Any] = Field(description="a pod template: {metadata?, spec}; cannot change")
    search: Search = Field(default_factory=Search, description="who proposes parameters; cannot change")
    budget: Budget | None = Field(None, description="when to stop, whatever is left to try")
    policy: Policy = Field(default_factory=Policy, description="how trials are ranked")
    queue: str | None = Field(None, min_length=1, max_length=63, description="not available in this version")
    gpus: Gpus = Field(default_factory=Gpus, description="what one trial needs of GPUs; cannot change")
    metrics: Metrics = Field(default_factory=Metrics, description="where the curve comes from; cannot change")
    suspension: Suspension = Field(
        default_factory=Suspension,
        description="how a trial makes room for another; `methods: [freeze]` unless given",
        # so that CEL can tell a user's wish from the default: trials without GPUs are never suspended
        json_schema_extra={"x-no-default": True},
    )
    checkpoint: Checkpoint | None = Field(None, description="where the trial itself saves; cannot change")
    suspend: bool = Field(False, description="true: all trials of this job give their GPUs back until it is false")


class BestTrial(StatusModel):
    """The best value so far."""

    trial: str = Field(description="name of the trial")
    value: float = Field(description="of the objective")
    step: float = Field(description="at which it was reached")
    parameters: dict[str, Scalar] = Field(default_factory=dict, description="of the trial")


class TrialCounts(StatusModel):
    """How many trials are where."""

    created: int = Field(0, description="trials that exist")
    pending: int = Field(0, description="waiting for a pod, a node or a GPU")
    running: int = Field(0, description="at work")
    suspended: int = Field(0, description="frozen, to go on later")
    succeeded: int = Field(0, description="complete")
    failed: int = Field(0, description="failed after all retries")


class GpuUse(StatusModel):
    """GPU-seconds by use, over all trials of the job."""

    training: float = Field(0.0, description="seconds that trials held a GPU")
    switching: float = Field(0.0, description="seconds that suspensions and resumptions took")


class JobLostWork(StatusModel):
    """What ended pods lost, over all trials of the job."""

    steps: float = Field(0.0, description="that trials had to do again, in stepKey's unit")
    gpu_seconds: float = Field(0.0, description="spent in vain")


class JobStatus(StatusModel):
    """What became of it; written by the operator."""

    phase: Literal["Pending", "Running", "Suspended", "Succeeded", "Failed", "Refused"] = Field(
        "Pending", description="Refused: see the condition Accepted"
    )
    reason: str = Field("", description="CamelCase word: why it is in this phase")
    message: str = Field("", description="the same as a sentence")
    observed_generation: int = Field(0, description="the generation of the spec that this speaks of")
    trials: TrialCounts = Field(default_factory=TrialCounts, description="how many trials are where")
    done: str = Field("", description="finished/max, for kubectl get")
    best: BestTrial | None = Field(None, description="the best trial so far")
    gpu_seconds: GpuUse = Field(default_factory=GpuUse, description="GPU-seconds by use")
    gpu_hours: float = Field(0.0, description="all GPU-seconds, in hours")
    suspensions: int = Field(0, description="of all trials together")
    lost_work: JobLostWork = Field(
        default_factory=JobLostWork, description="steps and GPU-seconds that ended pods lost"
    )
    eta: datetime | None = Field(None, description="when the search will be over, if all goes on as now")
    started_at: datetime | None = Field(None, description="when the job was accepted")
    finished_at: datetime | None = Field(None, description="when the last trial ended")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Accepted and others, as in Kubernetes",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class HyperParamJob(StatusModel):
    """A hyper-parameter search whose trials share the cluster's GPUs."""

    metadata: ObjectMeta
    spec: JobSpec = Field(description="what to search")
    status: JobStatus = Field(default_factory=JobStatus, description="what became of it")
