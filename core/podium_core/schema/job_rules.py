"""The rules of the three kinds about several fields at once, as tables. See `schema.rules`."""

from __future__ import annotations

from podium_core.schema.job import Gpus, JobSpec
from podium_core.schema.metrics.rules import METRIC_RULES
from podium_core.schema.objective_rules import OBJECTIVE_RULES
from podium_core.schema.rules import Rule
from podium_core.schema.search.parameter_rules import PARAMETER_RULES
from podium_core.schema.search.settings import LEARNING
from podium_core.schema.search.spec import Parameter, ParameterType
from podium_core.schema.template.rules import TEMPLATE_RULES

POLICIES_WITHOUT_MAX_STEPS = ("fifo", "round_robin", "slaq")  # their ranking does not depend on the length of a trial
POLICIES_THAT_STOP = ("asha", "hyperband", "median_stop", "pop")  # they pause or end trials early
NAME_LIMIT = 52  # <job>-<number>-<attempt> must fit into a label of 63 characters
MIN_STEPS = 1e-9  # a policy divides by the length of a trial; the quotient remains finite
_POD = "spec.template.spec"


def _has_points(p: Parameter) -> bool:
    """Return whether a grid search can enumerate the parameter."""
    return p.min is None or p.step is not None or (p.scale == "linear" and p.type is ParameterType.INT)


def _max_steps(spec: JobSpec) -> bool:
    return (
        spec.trials.max_steps is not None or spec.policy.name in POLICIES_WITHOUT_MAX_STEPS or spec.gpus.per_trial == 0
    )


def _no_gpu_requirements(gpus: Gpus) -> bool:
    return gpus.per_trial > 0 or (gpus.memory is None and not gpus.products)


def _gpus_for_workers(spec: JobSpec) -> bool:
    workers, gpus = spec.trials.workers, spec.gpus.per_trial
    return workers == 1 or (gpus > 0 and gpus % workers == 0)


# checked before all others: they read `JobSpec.template`
TEMPLATE_GIVEN = Rule(
    "TemplateOrWorkload",
    "spec",
    "has(self.template) != has(self.workload)",
    "give exactly one of template, the pod template of the trials, and workload, a JobSet or a TrainJob",
    lambda spec: (spec.given_template is None) != (spec.workload is None),
    at="template",
)
SPEC_RULES: tuple[Rule, ...] = (
    Rule(
        "MaxStepsMissing",
        "spec",
        f"has(self.trials.maxSteps) || self.policy.name in {list(POLICIES_WITHOUT_MAX_STEPS)} || self.gpus.perTrial "
        f"== 0",
        "policy {policy.name} must know when a trial is complete: give trials.maxSteps, "
        "or choose policy fifo, round_robin or slaq",
        _max_steps,
        at="trials.maxSteps",
    ),
    Rule(
        "MaxStepsTooSmall",
        "spec.trials",
        f"!has(self.maxSteps) || self.maxSteps >= {MIN_STEPS:.9f}",
        f"maxSteps must be at least {MIN_STEPS:.9f}; set it to the step at which a trial is complete",
        lambda trials: trials.max_steps is None or trials.max_steps >= MIN_STEPS,
        at="maxSteps",
        shows=("maxSteps",),
    ),
    *OBJECTIVE_RULES,
    *METRIC_RULES,
    TEMPLATE_GIVEN,
    Rule(
        "SuspensionWithoutGPUs",
        "spec",
        "self.gpus.perTrial > 0 || !has(self.suspension)",
        "trials without GPUs are never suspended: remove suspension, or set gpus.perTrial",
        lambda spec: spec.gpus.per_trial > 0 or "suspension" not in spec.model_fields_set,
        at="suspension",
    ),
    Rule(
        "GPURequirementsWithoutGPUs",
        "spec.gpus",
        "self.perTrial > 0 || !(has(self.memory) || size(self.products) > 0)",
        "memory and products are requirements for GPUs, but perTrial is 0: remove them, or set perTrial",
        _no_gpu_requirements,
        at="perTrial",
    ),
    Rule(
        "GPUsPerWorker",
        "spec",
        "!has(self.trials.workers) || self.trials.workers == 1 || "
        "(self.gpus.perTrial > 0 && self.gpus.perTrial % self.trials.workers == 0)",
        "gpus.perTrial counts the GPUs of all workers of a trial, and each worker gets the same number: set it to a "
        "multiple of trials.workers",
        _gpus_for_workers,
        at="gpus.perTrial",
        shows=("gpus.perTrial", "trials.workers"),
    ),
    Rule(
        "CUDACheckpointWithoutMemory",
        "spec",
        "!has(self.suspension) || !('cuda-checkpoint' in self.suspension.methods) || has(self.gpus.memory)",
        "cuda-checkpoint moves a trial's GPU memory into the memory of its pod, so its size must be known: "
        "give gpus.memory, or remove cuda-checkpoint",
        lambda spec: "cuda-checkpoint" not in spec.suspension.methods or spec.gpus.memory is not None,
        at="gpus.memory",
    ),
    Rule(
        "ContainerCheckpointAlone",
        "spec",
        "!has(self.suspension) || !('container-checkpoint' in self.suspension.methods) || "
        "'cuda-checkpoint' in self.suspension.methods",
        "container-checkpoint requires cuda-checkpoint, which moves the trial off its GPU: add cuda-checkpoint, "
        "or remove container-checkpoint",
        lambda spec: (
            {"container-checkpoint", "cuda-checkpoint"} & {*spec.suspension.methods} != {"container-checkpoint"}
        ),
        at="suspension.methods",
    ),
    Rule(
        "AppCheckpointWithoutPath",
        "spec",
        "!has(self.suspension) || !('app-checkpoint' in self.suspension.methods) || has(self.checkpoint)",
        "app-checkpoint lets the trial write checkpoints: give checkpoint.path and checkpoint.volume, "
        "or remove app-checkpoint",
        lambda spec: "app-checkpoint" not in spec.suspension.methods or spec.checkpoint is not None,
        at="suspension.methods",
    ),
    Rule(
        "CheckpointNotPersistent",
        "spec",
        "!has(self.suspension) || !('app-checkpoint' in self.suspension.methods) || !has(self.checkpoint) || "
        "!has(self.checkpoint.volume.emptyDir)",
        "app-checkpoint continues a trial in another pod, but an emptyDir is deleted with its pod: use claimName or "
        "hostPath, or remove app-checkpoint",
        lambda spec: (
            "app-checkpoint" not in spec.suspension.methods
            or spec.checkpoint is None
            or spec.checkpoint.volume.empty_dir is None
        ),
        at="checkpoint.volume.emptyDir",
    ),
    Rule(
        "VolumeSourceNotUnique",
        "spec.checkpoint.volume",
        "[has(self.claimName), has(self.hostPath), has(self.emptyDir)].filter(given, given).size() == 1",
        "give exactly one of claimName, hostPath and emptyDir",
        lambda volume: [volume.claim_name, volume.host_path, volume.empty_dir].count(None) == 2,
    ),
    Rule(
        "GridWithoutPoints",
        "spec",
        "self.search.algorithm != 'grid' || self.parameters.all(p, !has(p.min) || "
        "has(p.step) || (p.scale == 'linear' && has(p.type) && p.type == 'int'))",
        "grid search tries every point, so each range needs a step, or a linear scale and type int: add step, "
        "list values, or use algorithm random",
        lambda spec: spec.search.algorithm != "grid" or all(map(_has_points, spec.parameters)),
        at="search.algorithm",
    ),
    Rule(
        "WarmStartWithoutLearning",
        "spec.search",
        f"!has(self.warmStart) || self.algorithm in {list(LEARNING)}",
        "algorithm {algorithm} does not learn from results, so warmStart has no effect: "
        f"use {', '.join(LEARNING[:-1])} or {LEARNING[-1]}, or remove warmStart",
        lambda search: search.warm_start is None or search.algorithm in LEARNING,
        at="warmStart",
    ),
    Rule(
        "PolicyStopsPopulation",
        "spec",
        f"self.search.algorithm != 'pbt' || !(self.policy.name in {list(POLICIES_THAT_STOP)})",
        "algorithm pbt ends bad trials itself, and policy {policy.name} would judge children by curves that begin in "
        "the middle: write policy.name: round_robin, which keeps a population at the same step, or remove policy",
        lambda spec: spec.search.algorithm != "pbt" or spec.policy.name not in POLICIES_THAT_STOP,
        at="policy.name",
    ),
    Rule(
        "WarmStartEmpty",
        "spec.search.warmStart",
        "(has(self.jobs) && size(self.jobs) > 0) || (has(self.results) && size(self.results) > 0)",
        "give jobs or results to start from, or remove warmStart",
        lambda warm_start: bool(warm_start.jobs or warm_start.results),
    ),
)


def _fixed(field: str) -> Rule:
    message = f"{field} is immutable: create a new job"
    return Rule("Immutable", f"spec.{field}", "self == oldSelf", message)


def _fixed_optional(owner: str, field: str, kind: str = "job") -> Rule:
    cel = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return Rule("Immutable", owner, cel, f"{field} is immutable: create a new {kind}", at=field)


JOB_RULES: tuple[Rule, ...] = (
    Rule(
        "NameTooLong",
        "",
        f"size(self.metadata.name) <= {NAME_LIMIT}",
        f"the name must have at most {NAME_LIMIT} characters, since trials and pods add numbers to it",
        lambda job: len(job.metadata.name) <= NAME_LIMIT,
        at="metadata.name",
    ),
    Rule(
        "Parallel",
        "spec.trials.parallel",
        "type(self) == string ? self == 'auto' : (self >= 1 && self <= 10000)",
        "parallel must be an integer from 1 to 10000, or auto",
    ),
    *PARAMETER_RULES,
    *SPEC_RULES,
    *TEMPLATE_RULES,
    *map(_fixed, ("parameters", "search", "gpus", "metrics")),
    _fixed_optional("spec", "template"),
    _fixed_optional("spec", "workload"),
    _fixed_optional("spec", "objective"),
    _fixed_optional("spec", "objectives"),
    _fixed_optional("spec", "checkpoint"),
    _fixed_optional("spec.trials", "maxSteps"),
    _fixed_optional("spec.trials", "workers"),
)
TRIAL_RULES: tuple[Rule, ...] = (
    Rule(
        "Immutable",
        "spec",
        "dyn(self).parameters == dyn(oldSelf).parameters",
        "parameters is immutable: create a new trial for other parameters",
    ),
    _fixed_optional("spec", "parent", "trial"),
    Rule("Immutable", "spec.job", "self == oldSelf", "job is immutable: a trial belongs to one job"),
    Rule("Immutable", "spec.number", "self == oldSelf", "number is immutable: it identifies the trial in its job"),
)
NODE_RULES: tuple[Rule, ...] = (
    Rule(
        "EpochDecreased",
        "spec.epoch",
        "self >= oldSelf",
        "epoch must not decrease: read the object again and increase its epoch",
    ),
)
