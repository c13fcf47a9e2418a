"""How values read to a person: numbers, durations, sizes, parameters. Pure; used by tables, live view and report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from podium_core.curves.non_finite import diverged
from podium_core.domain.phrases import count as count
from podium_core.schema.job import Scalar
from podium_simulator.traces.trace import Trace

NOTHING = "–"
READABLE = 1e15  # whole numbers from here on are shown with an exponent


def clean(text: str) -> str:
    """Without control characters: what a trial or a tenant wrote must not drive the reader's terminal."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits, no trailing zeros, no exponent where a plain number can be read."""
    if value is None:
        return NOTHING
    if diverged(value):
        return "diverged"
    plain = f"{value:.0f}" if abs(value) < READABLE else ""
    return plain if len(plain.lstrip("-")) > digits else f"{value:.{digits}g}"


def step(value: float | None) -> str:
    if value is None:
        return NOTHING
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """35 ms, 4.2 s, 42 s, 3 m 05 s, 2 h 07 m: two units at most."""
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
    return NOTHING if start is None else duration((now - start).total_seconds())


def gibibytes(count: int) -> str:
    return f"{count / 2**30:.1f}"


def scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, float) else clean(str(value))


def parameters(values: Mapping[str, Scalar]) -> str:
    return " ".join(f"{clean(name)}={scalar(value)}" for name, value in values.items())


def better(maximize: bool) -> str:
    return f"{'larger' if maximize else 'smaller'} is better"


def search(recording: Trace) -> str:
    """What a table is of: the task, and which way its metric is better."""
    return f"{clean(recording.task)} ({clean(recording.metric)}, {better(recording.maximize)})"


def left_out(recording: Trace, rest: str) -> str:
    """What a heading adds where the curves are not those of all trials of a search; `rest`: what the others are for."""
    if not recording.left_out:
        return ""
    every = recording.left_out + len(recording.trials)
    why = "are not in these curves: they were not trained to their end"
    if recording.left_out == 1:
        why = "is not in these curves: it was not trained to its end"
    return f" {recording.left_out} of {every} trials {why}; {rest}."


def compared(recording: Trace) -> str:
    """The same where policies are compared, and what their column TARGET means, which is there where there is one."""
    told = ""
    if recording.target is not None:
        way = "more" if recording.maximize else "less"
        told = f" TARGET: until {clean(recording.metric)} is {recording.target:.10g} or {way}."
    return told + left_out(recording, "policies are compared on the others")


def percent(part: float, whole: float) -> str:
    return NOTHING if whole <= 0 else f"{100 * part / whole:.0f} %"
