"""Text of values: numbers, durations, sizes and parameters, for tables, the live view and the report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from podium_core.curves.non_finite import diverged
from podium_core.domain.phrases import count as count
from podium_core.domain.snapshot import Scalar
from podium_simulator.traces.trace import Trace

NOTHING = "–"
READABLE = 1e15  # whole numbers from here on are shown with an exponent


def clean(text: str) -> str:
    """Return the text without control characters, because tenants must not control a reader's terminal."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def cause(code: str, message: str) -> str:
    """Return `code: message` without control characters, or the one that is not empty."""
    return ": ".join(filter(None, (clean(code), clean(message))))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` significant digits, without trailing zeros or a needless exponent."""
    if value is None:
        return NOTHING
    if diverged(value):
        return "diverged"
    plain = f"{value:.0f}" if abs(value) < READABLE else ""
    return plain if len(plain.lstrip("-")) > digits else f"{value:.{digits}g}"


def step(value: float | None) -> str:
    """Return a step: whole if it is, otherwise with two decimals."""
    if value is None:
        return NOTHING
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Return a duration with two units at most: 35 ms, 4.2 s, 42 s, 3 m 05 s, 2 h 07 m."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return "0 s"
    if 0 < seconds < 1:
        return f"{max(round(seconds * 1000), 1)} ms"
    if seconds < 10:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    minutes = whole // 60
    return f"{minutes // 60} h {minutes % 60:02d} m"


def since(start: datetime | None, now: datetime) -> str:
    """Return the duration from `start` to `now`, or a dash."""
    return NOTHING if start is None else duration((now - start).total_seconds())


def age(start: datetime | None, now: datetime) -> str:
    """Return the duration from `start` to `now`, in days from two days on, or a dash."""
    if start is None or (now - start).days < 2:
        return since(start, now)
    passed = now - start
    return f"{passed.days} d {passed.seconds // 3600:02d} h"


def gibibytes(size: int) -> str:
    """Return bytes in GiB with one decimal."""
    return f"{size / 2**30:.1f}"


def memory_in_use(used: int, total: int) -> str:
    """Return the used and the total memory of a GPU in GiB; `unknown` if the driver reports none."""
    return f"{gibibytes(used)}/{gibibytes(total)}" if total > 0 else "unknown"


def scalar(value: Scalar) -> str:
    """Return the value of one parameter as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, float) else clean(str(value))


def parameters(values: Mapping[str, Scalar]) -> str:
    """Return parameters as `name=value` with spaces between."""
    return " ".join(f"{clean(name)}={scalar(value)}" for name, value in values.items())


def better(maximize: bool) -> str:
    """Return which values of the metric are better."""
    return f"{'larger' if maximize else 'smaller'} is better"


def search(trace: Trace) -> str:
    """Return the subject of a table: task, metric and its direction."""
    return f"{clean(trace.task)} ({clean(trace.metric)}, {better(trace.maximize)})"


def left_out(trace: Trace, rest: str) -> str:
    """Return a heading's note on omitted trials, or nothing; `rest` is the use of the other trials."""
    if not trace.left_out:
        return ""
    every = trace.left_out + len(trace.trials)
    verb = "is" if trace.left_out == 1 else "are"
    return f" {trace.left_out} of {every} trials {verb} omitted because of incomplete curves; {rest}."


def compared(trace: Trace) -> str:
    """Return a heading's notes on a comparison of policies: the meaning of TARGET, and omitted trials."""
    target = ""
    if trace.target is not None:
        side = "more" if trace.maximize else "less"
        target = f" TARGET: until {clean(trace.metric)} is {trace.target:.10g} or {side}."
    return target + left_out(trace, "policies are compared on the others")


def percent(part: float, whole: float) -> str:
    """Return a part of a whole in percent, or a dash if there is no whole."""
    return NOTHING if whole <= 0 else f"{100 * part / whole:.0f} %"


def full_name(namespace: str, name: str) -> str:
    """Return namespace/name; only the name without a namespace."""
    return f"{namespace}/{name}" if namespace else name
