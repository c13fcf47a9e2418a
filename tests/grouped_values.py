"""Changes to frozen values whose fields are in groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def change(value: Any, **fields: Any) -> Any:
    """Return a copy with these fields; `group__field` is a field of a group."""
    own: dict[str, Any] = {}
    for path, given in fields.items():
        name, _, inner = path.partition("__")
        own[name] = change(own.get(name, getattr(value, name)), **{inner: given}) if inner else given
    return replace(value, **own)
