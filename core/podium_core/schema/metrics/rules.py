"""The rules about where and how a job's metrics are read, as a table. See `schema.rules`."""

from __future__ import annotations

import re

from podium_core.schema.job import JobSpec
from podium_core.schema.metrics.spec import MetricsSpec
from podium_core.schema.rules import Rule

LINE_SOURCES = ("stdout", "file")  # read line by line, in a format
PATH_SOURCES = ("file", "tensorboard")  # read from the container's file system
_UPWARD = re.compile(r"(^|/)\.\.(/|$)")


def _relative(metrics: MetricsSpec) -> bool:
    return metrics.path is not None and not metrics.path.startswith("/") and metrics.source in PATH_SOURCES


def _anchored(spec: JobSpec) -> bool:
    return not _relative(spec.metrics) or spec.checkpoint is not None


METRIC_RULES: tuple[Rule, ...] = (
    Rule(
        "StepKeyIsMetric",
        "spec",
        "!has(self.objective) || self.objective.metric != self.metrics.stepKey",
        "metrics.stepKey and objective.metric are both {metrics.stepKey}: name the value that counts the steps, "
        "such as epoch",
        lambda spec: spec.single_objective is None or spec.objective.metric != spec.metrics.step_key,
        at="metrics.stepKey",
    ),
    Rule(
        "FilterRequiresText",
        "spec.metrics",
        f"!has(self.filter) || self.format == 'text' || !(self.source in {list(LINE_SOURCES)})",
        "filter is read with format text only, not with {format}: write format: text, or remove filter",
        lambda metrics: metrics.filter is None or metrics.format == "text" or metrics.source not in LINE_SOURCES,
        at="filter",
    ),
    Rule(
        "FilterNotRead",
        "spec.metrics",
        f"!has(self.filter) || self.source in {list(LINE_SOURCES)}",
        "filter finds values in lines, and source {source} has none: remove filter, or write source: stdout",
        lambda metrics: metrics.filter is None or metrics.source in LINE_SOURCES,
        at="filter",
    ),
    Rule(
        "FormatNotRead",
        "spec.metrics",
        f"self.format == 'json' || self.source in {list(LINE_SOURCES)}",
        "format {format} is a format of lines, and source {source} has none: remove format, or write source: stdout",
        lambda metrics: metrics.format == "json" or metrics.source in LINE_SOURCES,
        at="format",
    ),
    Rule(
        "FormatRequiresFile",
        "spec.metrics",
        "self.format != 'csv' || self.source != 'stdout'",
        "format csv needs a file whose first line holds the names: write source: file and its path, or format: text",
        lambda metrics: metrics.format != "csv" or metrics.source != "stdout",
        at="format",
    ),
    Rule(
        "PathMissing",
        "spec.metrics",
        f"!(self.source in {list(PATH_SOURCES)}) || has(self.path)",
        "source {source} needs the path in the container: give the file (source file), or the folder of the event "
        "files (source tensorboard)",
        lambda metrics: metrics.source not in PATH_SOURCES or metrics.path is not None,
        at="path",
    ),
    Rule(
        "PathNotRead",
        "spec.metrics",
        "!has(self.path) || !(self.source in ['stdout', 'push'])",
        "path is not read with source {source}: remove path, or write source: file",
        lambda metrics: metrics.path is None or metrics.source not in ("stdout", "push"),
        at="path",
    ),
    Rule(
        "PathUpward",
        "spec.metrics",
        r"!has(self.path) || !self.path.matches('(^|/)[.][.](/|$)')",
        "path {path} contains .., which may lead outside of the trial's folder: write the path that it leads to",
        lambda metrics: metrics.path is None or _UPWARD.search(metrics.path) is None,
        at="path",
    ),
    Rule(
        "RelativePath",
        "spec",
        f"!has(self.metrics.path) || self.metrics.path.startsWith('/') || has(self.checkpoint) || "
        f"!(self.metrics.source in {list(PATH_SOURCES)})",
        "path {metrics.path} is relative to checkpoint.path, which is missing: write an absolute path, or give "
        "checkpoint",
        _anchored,
        at="metrics.path",
    ),
    Rule(
        "PagePath",
        "spec.metrics",
        "self.source != 'prometheus' || !has(self.path) || self.path.startsWith('/')",
        "path {path} of the page must start with /: write /{path}",
        lambda metrics: metrics.source != "prometheus" or metrics.path is None or metrics.path.startswith("/"),
        at="path",
    ),
    Rule(
        "PortMissing",
        "spec.metrics",
        "self.source != 'prometheus' || has(self.port)",
        "source prometheus needs the port at which the pod serves its values: give port, such as 8000",
        lambda metrics: metrics.source != "prometheus" or metrics.port is not None,
        at="port",
    ),
    Rule(
        "PortNotRead",
        "spec.metrics",
        "!has(self.port) || self.source == 'prometheus'",
        "port is read with source prometheus only, not with {source}: remove port, or write source: prometheus",
        lambda metrics: metrics.port is None or metrics.source == "prometheus",
        at="port",
    ),
    Rule(
        "PeriodNotRead",
        "spec.metrics",
        "!has(self.periodSeconds) || self.source == 'prometheus'",
        "periodSeconds is read with source prometheus only, not with {source}: remove periodSeconds",
        lambda metrics: metrics.period_seconds is None or metrics.source == "prometheus",
        at="periodSeconds",
    ),
    Rule(
        "SourceWithoutGPUs",
        "spec",
        "self.metrics.source == 'stdout' || self.gpus.perTrial > 0",
        "source {metrics.source} is read by the agent of a GPU node, and trials without GPUs may run elsewhere: "
        "write source: stdout, or set gpus.perTrial",
        lambda spec: spec.metrics.source == "stdout" or spec.gpus.per_trial > 0,
        at="metrics.source",
    ),
    Rule(
        "MetricIsObjective",
        "spec.objective",
        "!(self.metric in self.additionalMetrics)",
        "{metric} is the metric of the objective, which is always read: remove it from additionalMetrics",
        lambda objective: objective.metric not in objective.additional_metrics,
        at="additionalMetrics",
    ),
    Rule(
        "MetricIsStepKey",
        "spec",
        "!has(self.objective) || !(self.metrics.stepKey in self.objective.additionalMetrics)",
        "{metrics.stepKey} counts the steps (metrics.stepKey): remove it from additionalMetrics",
        lambda spec: spec.single_objective is None or spec.metrics.step_key not in spec.objective.additional_metrics,
        at="objective.additionalMetrics",
    ),
)
