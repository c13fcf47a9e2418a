"""Checks of what a job reads, and from where: whether its reader can find the metric at all. `validation` calls it.

The job's own reader is run on lines that print the metric. A filter is also taken apart: the group `name` can never
be a metric that its own expression does not match.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping

from podium_core.logs.filters import compiled, filter_error, parentheses
from podium_core.logs.line_reader import line_reader
from podium_core.logs.selectors import parse_selector
from podium_core.schema.job import GPU_SECONDS, Direction, JobSpec
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.metrics.rules import PATH_SOURCES
from podium_core.schema.rules import Refusal

KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
NUMBERS = ("0.5", "1", "-1.5", "1e-3", "50", "50%", "0,5", "nan")


def metric_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each metric that the job cannot read from any line."""
    listed = _listed(spec)
    for number, (where, metric) in enumerate(listed):
        if metric in [other for _, other in listed[:number]]:
            yield Refusal("DuplicateMetric", where, f"{metric} is named twice: remove one")
    yield from source_refusals(spec)
    pattern = spec.metrics.filter
    if pattern is not None and spec.metrics.format == "text":
        wrong = filter_error(pattern)
        if wrong:
            yield Refusal("InvalidFilter", "spec.metrics.filter", wrong)
            return
        yield from _filter(spec, pattern)
        return
    fields = [(where, metric) for where, metric in listed if metric != GPU_SECONDS]
    if spec.objectives is None:
        fields = [("spec.objective.metric", spec.objective.metric), *fields]
    if spec.metrics.source == "prometheus":
        yield from _selectors([*fields, ("spec.metrics.stepKey", spec.metrics.step_key)])
        return
    for where, metric in fields:
        if spec.metrics.source != "tensorboard" and metric != spec.metrics.step_key and not _readable(spec, metric):
            message = (
                f"{metric!r} cannot be read with format {spec.metrics.format}: print the metric under a name of "
                "letters, digits and _, such as val_acc"
            )
            yield Refusal("MetricNotReadable", where, message)


def _listed(spec: JobSpec) -> list[tuple[str, str]]:
    """Return the metrics of the objectives, or the additional ones of a single objective, each with its field."""
    if spec.objectives is not None:
        return [(f"spec.objectives[{number}].metric", one.metric) for number, one in enumerate(spec.objectives)]
    named = spec.objective.additional_metrics
    return [(f"spec.objective.additionalMetrics[{number}]", one) for number, one in enumerate(named)]


def source_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for a place that no agent reads."""
    metrics, path = spec.metrics, spec.metrics.path or ""
    if metrics.source in PATH_SOURCES:
        folder = next((one for one in KERNEL_FOLDERS if path == one or path.startswith(f"{one}/")), None)
        if folder is not None:
            message = f"{path} is in {folder}, which holds no files of a trial: write metrics to another folder"
            yield Refusal("PathReserved", "spec.metrics.path", message)
        if "\0" in path:
            yield Refusal("InvalidValue", "spec.metrics.path", f"{path!r} contains a NUL: remove it")
    pod = spec.template.get("spec")
    if metrics.source == "prometheus" and isinstance(pod, Mapping) and pod.get("hostNetwork"):
        message = (
            "source prometheus reads only an address of the trial's own, and hostNetwork gives it that of the node: "
            "remove hostNetwork, or write another source"
        )
        yield Refusal("HostNetwork", "spec.metrics.source", message)


def _selectors(fields: list[tuple[str, str]]) -> Iterator[Refusal]:
    for where, metric in fields:
        if parse_selector(metric) is None:
            message = (
                f"{metric!r} is not the name of a Prometheus metric: write a name, and labels where needed, such as "
                'val_acc or accuracy{split="val"}'
            )
            yield Refusal("MetricNotReadable", where, message)


def _filter(spec: JobSpec, pattern: str) -> Iterator[Refusal]:
    name, value = group_of(pattern, "name"), group_of(pattern, "value")
    metric, field = spec.objective.metric, "objective.metric" if spec.objectives is None else "the metric of objectives"
    if name is not None and not _can_match(name, metric):
        message = (
            f"the group name of {pattern!r} does not match {field} {metric!r}, so no line has a value: extend "
            "the group, or name the metric as the filter finds it"
        )
        yield Refusal("FilterWithoutMetric", "spec.metrics.filter", message)
    if value is not None and not any(_can_match(value, number) for number in NUMBERS):
        message = f"the group value of {pattern!r} matches no number such as 0.5, so no line has a value: correct it"
        yield Refusal("FilterWithoutValue", "spec.metrics.filter", message)


def group_of(pattern: str, name: str) -> str | None:
    """Return the expression inside a named group; None where it depends on its place in the filter."""
    starts = [start for start in (pattern.find(f"(?P<{name}>"), pattern.find(f"(?<{name}>")) if start >= 0]
    if not starts:
        return None
    start = pattern.index(">", starts[0]) + 1
    depth, end = 1, len(pattern)
    for at in parentheses(pattern, start):
        depth += 1 if pattern[at] == "(" else -1
        if depth == 0:
            end = at
            break
    inner = pattern[start:end]
    placed = any(mark in inner for mark in ("^", "$", "\\A", "\\z", "\\b", "\\B", "\\Q"))
    return None if placed or depth else f"(?i:{inner})"


def _can_match(inner: str, text: str) -> bool:
    """Return whether the expression matches a text in any case of letters; True if it cannot stand alone."""
    try:
        return compiled(inner).fullmatch(text) is not None
    except ValueError:
        return True


def _readable(spec: JobSpec, metric: str) -> bool:
    """Return whether the job's reader finds the metric in a line that prints it."""
    step = spec.metrics.step_key
    config = MetricsConfig(
        metric=metric,
        direction=Direction.MAXIMIZE,
        step_key=step,
        format=spec.metrics.format,
        container="train",
    )
    read = line_reader(config)
    if spec.metrics.format == "csv":
        file = io.StringIO()
        csv.writer(file).writerows([[step, metric], [1, 0.5]])
        lines = [file.getvalue().replace("\r", "")]
    elif spec.metrics.format == "text":
        lines = [f"{step}=1 {metric}=0.5", f"{step} 1: {metric}: 0.5", f"{metric}=0.5"]
    else:
        record = {step: 1, metric: 0.5}
        lines = [json.dumps(record), json.dumps(record, ensure_ascii=False), repr(record)]
    parts = [part for line in lines for part in line.split("\n")]  # as the agent reads a log
    return any(parsed.value == 0.5 for part in parts for parsed in read(part))
