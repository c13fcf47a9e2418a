"""Parameters of a job from the ranges of other tools: equal ends, steps on a log scale, and distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podium_core.conversion.fields import Manifest, Report, shown
from podium_core.conversion.given import scalar

MAX_VALUES = 256


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a source. `path`: where it is in the source."""

    name: str
    path: str
    low: int | float
    high: int | float
    whole: bool = False
    step: int | float | None = None
    log: bool = False


def parameter_of(given: Range, report: Report) -> Manifest | None:
    """Return the parameter for a range; None if it was refused."""
    if given.low > given.high:
        report.refuse(given.path, f"min {given.low:g} is greater than max {given.high:g}: exchange them", "EmptyRange")
        return None
    if given.low == given.high:
        return {"name": given.name, "values": [given.low]}
    made: Manifest = {
        "name": given.name,
        "type": "int" if given.whole else "float",
        "min": given.low,
        "max": given.high,
    }
    log = given.log and given.low > 0
    if given.log and not log:
        report.note(given.path, f"a log scale needs min greater than 0 (got {given.low:g}): the scale is linear")
    step = None if given.whole and given.step == 1 else given.step
    if log and step is not None and given.whole:
        report.note(given.path, f"Podium has no step on a log scale: the step {step:g} is kept, the scale is linear")
        log = False
    elif log and step is not None:
        report.note(
            given.path, f"Podium has no step on a log scale: values between the steps of {step:g} are drawn too"
        )
        step = None
    if step is not None:
        made["step"] = step
    if log:
        made["scale"] = "log"
    return made


def choices_of(name: str, path: str, values: list[Any], report: Report) -> Manifest | None:
    """Return the parameter for a list of values; None if it was refused."""
    wrong = next((one for one in values if not scalar(one)), None)
    if wrong is not None or None in values:
        text = f"{shown(wrong)} is not a string, a number or a boolean: give each choice a name"
        report.refuse(path, f"{text}, which the script translates", "InvalidValue")
        return None
    if not 1 <= len(values) <= MAX_VALUES:
        report.refuse(path, f"must have 1 to {MAX_VALUES} values, not {len(values)}: use a range", "InvalidValue")
        return None
    return {"name": name, "values": list(values)}
