"""The rules about one or several objectives, as a table. See `schema.rules`."""

from __future__ import annotations

from podium_core.schema.job import GPU_SECONDS, Direction, JobSpec, Objective
from podium_core.schema.rules import Rule

POLICIES_OF_SEVERAL = ("fifo", "pareto", "round_robin")  # their ranking does not depend on one objective
ALGORITHMS_OF_ONE = ("cmaes", "gp", "pbt")
_MEASURED = f"self.objectives.exists(o, o.metric == '{GPU_SECONDS}')"


def _metrics(spec: JobSpec) -> list[str]:
    return [one.metric for one in spec.objectives or ()]


def _printed(objective: Objective) -> bool:
    return GPU_SECONDS not in (objective.metric, *objective.additional_metrics)


def _values_fit(spec: JobSpec) -> bool:
    given = () if spec.search.warm_start is None else spec.search.warm_start.results
    return all(len(one.values) == len(spec.objectives or ()) for one in given)


# checked before all others: `JobSpec.objective` needs it
OBJECTIVE_GIVEN = Rule(
    "ObjectiveNotUnique",
    "spec",
    "has(self.objective) != has(self.objectives)",
    "give exactly one of objective, for one number to optimize, and objectives, for two to four",
    lambda spec: (spec.single_objective is None) != (spec.objectives is None),
    at="objective",
)
OBJECTIVE_RULES: tuple[Rule, ...] = (
    OBJECTIVE_GIVEN,
    Rule(
        "PolicyForOneObjective",
        "spec",
        f"!has(self.objectives) || self.policy.name in {list(POLICIES_OF_SEVERAL)}",
        "policy {policy.name} ranks trials by one objective, and objectives lists several: write policy.name: pareto, "
        "or round_robin or fifo, or give one objective",
        lambda spec: spec.objectives is None or spec.policy.name in POLICIES_OF_SEVERAL,
        at="policy.name",
    ),
    Rule(
        "PolicyForSeveralObjectives",
        "spec",
        "self.policy.name != 'pareto' || has(self.objectives)",
        "policy pareto ranks trials by several objectives: list them in objectives, or choose another policy, such as "
        "envelope",
        lambda spec: spec.policy.name != "pareto" or spec.objectives is not None,
        at="policy.name",
    ),
    Rule(
        "AlgorithmForOneObjective",
        "spec",
        f"!has(self.objectives) || !(self.search.algorithm in {list(ALGORITHMS_OF_ONE)})",
        "algorithm {search.algorithm} optimizes one objective, and objectives lists several: use auto, tpe, qmc, "
        "random or grid",
        lambda spec: spec.objectives is None or spec.search.algorithm not in ALGORITHMS_OF_ONE,
        at="search.algorithm",
    ),
    Rule(
        "ObjectiveIsStepKey",
        "spec",
        "!has(self.objectives) || !self.objectives.exists(o, o.metric == self.metrics.stepKey)",
        "{metrics.stepKey} counts the steps (metrics.stepKey): remove it from objectives",
        lambda spec: spec.metrics.step_key not in _metrics(spec),
        at="objectives",
    ),
    Rule(
        "GPUSecondsWithoutGPUs",
        "spec",
        f"!has(self.objectives) || self.gpus.perTrial > 0 || !{_MEASURED}",
        f"trials without GPUs use no GPU-seconds: remove {GPU_SECONDS} from objectives, or set gpus.perTrial",
        lambda spec: spec.gpus.per_trial > 0 or GPU_SECONDS not in _metrics(spec),
        at="objectives",
    ),
    Rule(
        "GPUSecondsMaximized",
        "spec.objectives[]",
        f"self.metric != '{GPU_SECONDS}' || self.direction == 'minimize'",
        "{metric} is the cost of a trial: write direction: minimize",
        lambda one: one.metric != GPU_SECONDS or one.direction is Direction.MINIMIZE,
        at="direction",
    ),
    Rule(
        "GPUSecondsAlone",
        "spec.objective",
        f"self.metric != '{GPU_SECONDS}' && !('{GPU_SECONDS}' in self.additionalMetrics)",
        f"Podium measures {GPU_SECONDS}, and the trial does not print it: list it in objectives, beside a metric that "
        "the trial prints",
        _printed,
        at="metric",
    ),
    Rule(
        "WarmStartValuesDiffer",
        "spec",
        "!has(self.search.warmStart) || !has(self.search.warmStart.results) || self.search.warmStart.results.all(r, "
        "(has(r.values) ? size(r.values) : 0) == (has(self.objectives) ? size(self.objectives) : 0))",
        "each result needs one value for each of the objectives, in their order; with one objective give value alone",
        _values_fit,
        at="search.warmStart.results",
    ),
)
