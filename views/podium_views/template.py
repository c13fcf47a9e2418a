"""Templates of the HTML pages. All values but drawings are escaped, so text of tenants never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from podium_core.domain.snapshot import Scalar
from podium_views import formatting

SHARED = "podium_views"  # package of the templates that others extend
_QUOTED = re.compile("`([^`\n]{1,200})`")


def render(package: str, template: str, **values: object) -> str:
    """Return the page that a template of a package makes of the values."""
    return environment(package).get_template(template).render(values)


def printable(value: Any) -> Any:
    """Return text without control characters, some of which are invalid in HTML.

    Any other value is returned unchanged.
    """
    if not isinstance(value, str) or value.isprintable():
        return value
    return type(value)("".join(char for char in value if char.isprintable() or char == "\n"))


@cache
def environment(package: str) -> Environment:
    """Return the templates of a package, which may extend those of this one."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(SHARED)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "number": formatting.number,
        "step": formatting.step,
        "duration": formatting.duration,
        "scalar": formatting.scalar,
        "parameters": _parameters,
        "steps": _steps,
        "counted": formatting.count,
        "moment": _moment,
        "code": code,
    }
    return made


def code(text: str) -> Markup:
    """Return a message with its commands and names between backticks as code; all else is escaped."""
    return Markup(_QUOTED.sub(r"<code>\1</code>", str(escape(text))))


def _parameters(pairs: Sequence[tuple[str, Scalar]]) -> str:
    return formatting.parameters(dict(pairs))


def _steps(count: float) -> str:
    return formatting.count(round(count), "step") if count else formatting.NOTHING


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"
