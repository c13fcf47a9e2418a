"""What `podium validate --log` prints: the values that a job would read from a log, and why other lines yield none."""

from __future__ import annotations

from collections.abc import Iterator

from podium_core.curves.growing_curve import Curve
from podium_core.logs.explain import LogReport, ReadLine
from podium_core.schema.metrics.config import MetricsConfig
from podium_views import formatting


def lines(report: LogReport, curve: Curve, metrics: MetricsConfig) -> Iterator[str]:
    """Yield the lines about a log: counts first, then examples."""
    yield f"{formatting.count(report.lines, 'line')}, {report.read_count} with {metrics.metric}; {_curve(curve)}"
    for read in report.read:
        yield f"  line {read.number}: {_values(read, metrics)}"
    if report.read_count > len(report.read):
        yield f"  and {report.read_count - len(report.read)} more"
    if curve.repeated:
        repeated = formatting.count(curve.repeated, "value")
        yield (
            f"not kept: {repeated} whose {metrics.step_key} is not above an earlier one; print a step that never "
            "restarts, such as the global step"
        )
    if report.unread_count:
        yield f"not read: {formatting.count(report.unread_count, 'line')} without a value of {metrics.metric}"
    for line in report.unread:
        yield f"  line {line.number}: {line.reason}"
        yield f"    {line.text}"
    for summary in curve.additional_metrics:
        yield f"additional metric {summary.metric}: last {formatting.number(summary.latest)}"
    missing = [name for name in metrics.additional if name not in {one.metric for one in curve.additional_metrics}]
    if missing:
        yield f"additional metrics that no line holds: {', '.join(missing)}"
    if not report.read_count and not report.unread_count:
        yield f"no line names {metrics.metric}; the last lines are:"
        yield from (f"    {line}" for line in report.last)


def _curve(curve: Curve) -> str:
    if not curve.points:
        return "no value was read"
    last = curve.points[-1]
    return (
        f"{formatting.count(curve.accepted, 'value')} kept, steps {curve.points[0].step:g} to {last.step:g}, last "
        f"{formatting.number(curve.last_value)}"
    )


def _values(read: ReadLine, metrics: MetricsConfig) -> str:
    texts = []
    for one in read.parsed:
        if one.value is not None:
            step = "the next step" if one.step is None else f"{metrics.step_key} {one.step:g}"
            texts.append(f"{step}, {metrics.metric} {formatting.number(one.value)}")
    return "; ".join(texts)
