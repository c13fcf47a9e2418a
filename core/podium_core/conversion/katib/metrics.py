"""Katib's `objective` and `metricsCollectorSpec`: what the job reads from the output of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podium_core.conversion.fields import Fields, Manifest, shown
from podium_core.conversion.given import Given, metrics_of
from podium_core.logs.filters import parentheses
from podium_core.schema.job import MAX_ADDITIONAL_METRICS

DEFAULT_FILE = "/var/log/katib/metrics.log"
_BEST = {"minimize": "min", "maximize": "max"}


class Collected(NamedTuple):
    """How the values reach Podium. `file`: the file to which the script writes them."""

    metrics: Manifest
    file: str | None = None
    file_path: str = ""


def katib_objective(spec: Fields) -> Manifest:
    """Return the objective of the job."""
    source = spec.fields("objective", required=True)
    direction = source.choice("type", "minimize", "maximize", required=bool(source.path))
    metric = source.text("objectiveMetricName", required=True)
    goal = source.number("goal")
    additional = _additional(source, metric)
    for strategy in source.objects("metricStrategies"):
        name = strategy.text("name", required=True)
        way = strategy.choice("value", "min", "max", "latest", required=True)
        strategy.finish("Katib")
        if name == metric and way is not None and direction is not None and way != _BEST[direction]:
            _strategy(strategy, way, direction)
    source.finish("Katib")
    made = {"metric": metric, "direction": direction, "target": goal, "additionalMetrics": additional}
    return {name: value for name, value in made.items() if value not in (None, [])}


def _strategy(strategy: Fields, way: str, direction: str) -> None:
    where = strategy.at("value")
    if way == "latest":
        text = f"latest: Podium takes the best value of a trial's curve, which is its {_BEST[direction]}"
        strategy.report.note(where, f"{text}; print the metric only at the end if only the latest value counts")
    else:
        text = f"{way} contradicts {direction}: Podium takes the {_BEST[direction]} of a trial's curve"
        strategy.report.refuse(where, f"{text}; write {_BEST[direction]}, or print another metric")


def _additional(source: Fields, metric: str | None) -> list[str]:
    found: list[str] = []
    for path, name in source.texts("additionalMetricNames"):
        if name == metric or name in found:
            continue
        if not name or len(name.split()) != 1 or name.split()[0] != name:
            text = f"{shown(name)} has a space, so Podium cannot read it beside the objective: it is left out"
            source.report.note(path, f"{text}; print it under a name without spaces")
        elif len(found) == MAX_ADDITIONAL_METRICS:
            text = f"{shown(name)} is left out: Podium reads {MAX_ADDITIONAL_METRICS} additional metrics"
            source.report.note(path, text)
        else:
            found.append(name)
    return found


def katib_collector(spec: Fields, metric: str | None, given: Given) -> Collected:
    """Return how Podium reads the values that Katib's collector read."""
    source = spec.fields("metricsCollectorSpec")
    collector, place = source.fields("collector"), source.fields("source")
    kinds = ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push")
    kind = collector.choice("kind", *kinds) or "StdOut"
    collector.ignore("customCollector")
    place.ignore("httpGet")
    file, form, path = _file(place, kind)
    expression = _filter(place, form)
    for fields in (collector, place, source):
        fields.finish("Katib")
    where = collector.at("kind")
    shape = f"{metric or 'metric'}=0.5" if form == "text" else f'{{"{metric or "metric"}": 0.5}}'
    if kind == "Custom":
        text = "the container customCollector is left out, since Podium reads the trial's log itself"
        spec.report.note(where, f"{kind}: {text}; check that a line of the log looks like {shape}")
    elif kind not in ("StdOut", "File"):
        text = "the job reads the trial's output: set another metrics.source, or let the script also print lines like"
        spec.report.note(where, f"{kind}: {text} {shape}")
    if file is not None:
        text = f"{file} becomes a link to the standard output, which Podium reads; needs sh and ln in the image"
        spec.report.note(path, text)
        if form == "json" and given.step_key is None:
            text = "values are counted as steps 1, 2, 3: if each line names its step, give --step-key NAME"
            spec.report.note(path, text)
    return Collected(metrics_of(form, expression, given), file, path)


def _file(place: Fields, kind: str) -> tuple[str | None, str, str]:
    """Return the file of the values, the format of its lines, and where it is written."""
    system = place.fields("fileSystemPath")
    name, what = system.text("path"), system.choice("kind", "File", "Directory")
    form = system.choice("format", "TEXT", "JSON")
    system.finish("Katib")
    path = system.at("path")
    if kind == "File" or (kind == "Custom" and name is not None and what != "Directory"):
        if what == "Directory":
            text = "a folder has no lines: name the file, or let the script print its values and remove the collector"
            system.report.refuse(system.at("kind"), f"Directory with a collector of kind {kind}: {text}")
            return None, "text", path
        return name or DEFAULT_FILE, "json" if form == "JSON" else "text", path
    return None, "text", path


def _filter(place: Fields, form: str) -> str | None:
    source = place.fields("filter")
    patterns = source.texts("metricsFormat")
    source.finish("Katib")
    if not patterns or form == "json":
        return None
    path, pattern = patterns[0]
    if len(patterns) > 1:
        text = f"{len(patterns)} expressions, but Podium has one filter: keep the one that finds the objective"
        source.report.refuse(source.at("metricsFormat"), text)
        return None
    named = named_groups(pattern) if len(pattern) <= 512 else None
    if named is None:
        text = f"{shown(pattern)} needs a group for the name and one for the value, and at most 512 characters"
        source.report.refuse(path, f"{text}: correct it")
    return named


def named_groups(pattern: str) -> str | None:
    """Return the expression with its first two groups named `name` and `value`; None if it has fewer."""
    starts = list(_groups(pattern))
    if len(starts) < 2:
        return None
    made, end = "", 0
    for (start, length), name in zip(starts, ("name", "value"), strict=False):
        made += f"{pattern[end:start]}(?P<{name}>"
        end = start + length
    return made + pattern[end:]


def _groups(pattern: str) -> Iterator[tuple[int, int]]:
    """Yield where each capturing group opens, and the length of its opening: `(`, or `(?P<x>`."""
    for at in parentheses(pattern):
        rest = pattern[at + 1 :]
        if pattern[at] == ")":
            continue
        if not rest.startswith("?"):
            yield at, 1
        elif rest.startswith(("?P<", "?<")) and ">" in rest:
            yield at, rest.index(">") + 2
