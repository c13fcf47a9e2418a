"""Warnings about a job's objective, search space, suspension and checkpoints. Pure; `findings` calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podium_core.acceptance.finding import Finding, warning
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.job import Direction, JobSpec, Objective
from podium_core.schema.search.population_settings import PBT, population_settings
from podium_core.schema.search.space import grid_points
from podium_core.schema.search.spec import Parameter

# Words of a metric's name by which its range and its better direction are known.
_SHARES = re.compile(r"(acc|accuracy|auc|auroc|f1|precision|recall|iou|miou|dice|map|ap|top1|top5|bleu|r2|ndcg|mrr)")
_LOSSES = re.compile(r"(loss|mse|rmse|mae|mape|nll|perplexity|ppl|error|err|wer|cer|fid|bpb|bpc)")
_NEGATED = re.compile(r"(neg|negative|minus|inverse|1m)")
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])")
POLICIES_OF_POPULATIONS = ("round_robin", "envelope")  # they know the interval of a population
MIN_RELATIVE_RANGE = 1e-9  # of a range's numbers: below it, few floats are in the range


def job_warnings(spec: JobSpec) -> Iterator[Finding]:
    """Yield the warnings about everything but the template."""
    yield from _objectives(spec)
    for number, parameter in enumerate(spec.parameters):
        yield from _parameter(parameter, f"spec.parameters[{number}]")
    yield from _points(spec)
    yield from _suspension(spec)
    yield from _population(spec)
    yield from _workers(spec)


def _objectives(spec: JobSpec) -> Iterator[Finding]:
    if spec.objectives is None:
        yield from _objective(spec.objective, "spec.objective")
        return
    for number, one in enumerate(spec.objectives):
        alone = Objective(metric=one.metric, direction=one.direction, target=None)
        yield from _objective(alone, f"spec.objectives[{number}]")


def _objective(objective: Objective, where: str) -> Iterator[Finding]:
    maximize, target = objective.direction is Direction.MAXIMIZE, objective.target
    words = [word.lower() for word in _SPLIT.split(objective.metric) if word]
    if any(_NEGATED.fullmatch(word) for word in words) or objective.metric.startswith("-"):
        return
    share = any(_SHARES.fullmatch(word) for word in words)
    loss = any(_LOSSES.fullmatch(word) for word in words)
    if share != loss and maximize == loss:
        other = "minimize" if loss else "maximize"
        message = f"{objective.direction} {objective.metric} looks reversed: use {other} if less is {_better(loss)}"
        yield warning("DirectionUnusual", f"{where}.direction", message)
        return
    if target is None:
        return
    where = f"{where}.target"
    if share and not loss and target > 100.0:
        message = f"{target:g} is more than 100 %, which {objective.metric} cannot reach: reduce target, or remove it"
        yield warning("TargetUnreachable", where, message)
    elif share and not loss and target > 1.0:
        message = (
            f"{target:g} is never reached if the trial prints {objective.metric} as a share from 0 to 1: "
            "write a share, or keep it if the trial prints percent"
        )
        yield warning("TargetUnreachable", where, message)
    elif share and not loss and target <= 0.0:
        message = f"the first value of {objective.metric} reaches {target:g}, which ends the search: raise target"
        yield warning("TargetTrivial", where, message)
    elif loss and not share and target < 0.0:
        message = f"{objective.metric} is usually not below 0, so {target:g} is never reached: raise or remove target"
        yield warning("TargetUnreachable", where, message)


def _better(loss: bool) -> str:
    return "better" if loss else "worse"


def _parameter(parameter: Parameter, where: str) -> Iterator[Finding]:
    if parameter.values is not None and len(parameter.values) == 1:
        message = f"parameter {parameter.name} has one value, so no trial differs by it: list more, or remove it"
        yield warning("SingleValue", f"{where}.values", message)
    low, high, step = parameter.min, parameter.max, parameter.step
    if low is None or high is None:
        return
    if high - low < MIN_RELATIVE_RANGE * max(abs(low), abs(high)):
        message = f"parameter {parameter.name}: from {low!r} to {high!r} the values hardly differ: widen the range"
        yield warning("RangeNarrow", where, message)
    if step is not None:
        steps = (high - low) / step
        if abs(steps - round(steps)) > 1e-6 * max(1.0, steps * 1e-6):
            last = low + int(steps) * step
            message = (
                f"parameter {parameter.name}: max {high:g} is not a whole number of steps above min, so the largest "
                f"value is {last:g}: change step or max"
            )
            yield warning("StepMissesMax", f"{where}.step", message)


def _points(spec: JobSpec) -> Iterator[Finding]:
    points, wanted, grid = grid_points(spec), spec.trials.max, spec.search.algorithm == "grid"
    if points is None:
        return
    if grid and points < wanted:
        message = f"trials.max is {wanted}, but the grid has {points} points: {points} trials will be created."
        yield warning("FewerPoints", "spec.trials.max", message)
    elif points < wanted:
        message = (
            f"trials.max is {wanted}, but the parameters have {points} combinations, so trials repeat one another: "
            "reduce trials.max, or use algorithm grid"
        )
        yield warning("FewerPoints", "spec.trials.max", message)
    elif grid and points > wanted:
        message = f"the grid has {points} points, but trials.max is {wanted}: the other points are not tried."
        yield warning("MorePoints", "spec.trials.max", message)


def _suspension(spec: JobSpec) -> Iterator[Finding]:
    methods, where = spec.suspension.methods, "spec.suspension.methods"
    if "container-checkpoint" in methods:
        message = (
            "container-checkpoint is experimental; it moves a trial off a draining node if "
            "the GPUNodes of both nodes list it."
        )
        yield warning("Experimental", where, message, cluster_only=True)
    if "cuda-checkpoint" in methods and not {"freeze", APP_CHECKPOINT} & set(methods):
        message = "a node whose GPUNode does not list cuda-checkpoint cannot suspend trials: add freeze."
        yield warning("NodesWithoutMethod", where, message, cluster_only=True)
    if spec.checkpoint is not None and spec.checkpoint.volume.empty_dir is not None:
        message = "an emptyDir is deleted with its pod: a new attempt starts from step 0."
        yield warning("CheckpointNotPersistent", "spec.checkpoint.volume", message, cluster_only=True)
    elif spec.checkpoint is not None and spec.gpus.per_trial > 0 and "suspension" not in spec.model_fields_set:
        message = (
            "checkpoints are used only when a pod ends: with the default suspension.methods, [freeze], Podium requeues "
            "no trial to free its slot; add app-checkpoint if the script checkpoints on SIGTERM, or write [freeze]"
        )
        yield warning("CheckpointWithoutMethod", "spec.checkpoint", message)
    if spec.gpus.per_trial == 0:
        message = (
            "trials without GPUs are not ranked and never suspended: set perTrial to 1 or more (`podium run` on a "
            "machine without GPUs counts CPU cores instead), or keep 0 if that is meant"
        )
        yield warning("TrialsWithoutGPUs", "spec.gpus.perTrial", message)


def _population(spec: JobSpec) -> Iterator[Finding]:
    """Warn of what keeps population-based training from replacing trials."""
    if spec.search.algorithm != PBT:
        return
    parallel, size = spec.trials.parallel, population_settings(spec).population
    if isinstance(parallel, int) and parallel < size:
        message = (
            f"parallel is {parallel}, so the {size} trials of the population do not train side by side, and good ones "
            f"may be complete before bad ones start: set parallel to {size} or more"
        )
        yield warning("PopulationNotParallel", "spec.trials.parallel", message)
    if spec.gpus.per_trial == 0:
        message = (
            "the agent reads the values and checkpoints of a running trial, so no trial is replaced on a node without "
            "one: let template.spec.nodeSelector choose nodes that have a GPUNode, or set gpus.perTrial"
        )
        yield warning("PopulationWithoutAgent", "spec.gpus.perTrial", message, cluster_only=True)
    elif spec.policy.name not in POLICIES_OF_POPULATIONS:
        message = (
            f"policy {spec.policy.name} does not keep a population at the same step: with fewer GPUs than trials, good "
            f"ones may be complete before bad ones are compared with them; use {' or '.join(POLICIES_OF_POPULATIONS)}"
        )
        yield warning("PopulationApart", "spec.policy.name", message)


def _workers(spec: JobSpec) -> Iterator[Finding]:
    """Warn of checkpoints that only the node of worker 0 has."""
    if spec.trials.workers > 1 and spec.checkpoint is not None and spec.checkpoint.volume.claim_name is None:
        message = (
            "only worker 0 can read its checkpoint on another node than the others: use a claim with ReadWriteMany, or "
            "let worker 0 send the state to the other workers"
        )
        yield warning("CheckpointOfOneWorker", "spec.checkpoint.volume", message, cluster_only=True)
