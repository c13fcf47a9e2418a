"""The rules of a HyperParamJob about what is read from a trial's output, as a table. Part of `job_rules.SPEC_RULES`."""

from __future__ import annotations

from podium_core.schema.rules import Rule

METRIC_RULES: tuple[Rule, ...] = (
    Rule(
        "StepKeyIsMetric",
        "spec",
        "self.objective.metric != self.metrics.stepKey",
        "metrics.stepKey and objective.metric are both {metrics.stepKey}: name the value that counts the steps, "
        "such as epoch",
        lambda spec: spec.objective.metric != spec.metrics.step_key,
        at="metrics.stepKey",
    ),
    Rule(
        "FilterRequiresText",
        "spec.metrics",
        "!has(self.filter) || self.format == 'text'",
        "filter is read with format text only, not with {format}: write format: text, or remove filter",
        lambda metrics: metrics.filter is None or metrics.format == "text",
        at="filter",
    ),
    Rule(
        "MetricIsObjective",
        "spec.objective",
        "!(self.metric in self.additionalMetrics)",
        "{metric} is the objective's own metric, which is read anyway: remove it from additionalMetrics",
        lambda objective: objective.metric not in objective.additional_metrics,
        at="additionalMetrics",
    ),
    Rule(
        "MetricIsStepKey",
        "spec",
        "!(self.metrics.stepKey in self.objective.additionalMetrics)",
        "{metrics.stepKey} counts the steps (metrics.stepKey): remove it from additionalMetrics",
        lambda spec: spec.metrics.step_key not in spec.objective.additional_metrics,
        at="objective.additionalMetrics",
    ),
)
