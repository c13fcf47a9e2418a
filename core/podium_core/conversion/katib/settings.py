"""Settings of Katib's algorithms, which are texts."""

from __future__ import annotations

from typing import NamedTuple

from podium_core.conversion.fields import Fields, shown


class Setting(NamedTuple):
    """A setting as Katib holds it: its path and its text."""

    path: str
    value: str


def settings_of(source: Fields) -> dict[str, Setting]:
    """Return `algorithmSettings` by name; what is not a text is refused."""
    found: dict[str, Setting] = {}
    for entry in source.objects("algorithmSettings"):
        name, value = entry.text("name", required=True), entry.raw("value")
        entry.finish("Katib")
        if isinstance(value, (dict, list)) or value is None:
            entry.report.refuse(entry.at("value"), f"must be a string, not {shown(value)}", "InvalidValue")
        elif name is not None:
            found[name] = Setting(entry.at("value"), str(value))
    return found
