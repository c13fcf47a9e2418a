"""Results for programs: one value of plain types, printed as JSON or YAML."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]*")  # text that no version of YAML reads as anything else,
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # except for these


class _Representer(SafeRepresenter):
    """Writes text and numbers so that readers of YAML 1.1 and 1.2 read the same values."""

    def represent_text(self, text: str) -> ScalarNode:
        """Return the text, in quotes unless it is a simple word."""
        simple = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=None if simple else '"')
        return node

    def represent_number(self, number: float) -> ScalarNode:
        """Return the number as JSON spells it, with the decimal point that YAML 1.1 requires: 1.0e-05."""
        digits, e, exponent = repr(number).partition("e")
        text = f"{digits}{'' if '.' in digits or not e else '.0'}{e}{exponent}"
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:float", text)
        return node


_Representer.add_representer(str, _Representer.represent_text)
_Representer.add_representer(float, _Representer.represent_number)


def print_data(value: Mapping[str, Any] | list[Any], output: str) -> None:
    """Print the value as `output` says: json or yaml."""
    print(as_yaml(value) if output == "yaml" else json.dumps(value, indent=2))


def as_yaml(value: Any) -> str:
    """Return the value as one YAML document."""
    plain = json.loads(json.dumps(value))  # tuples become lists, and the same list twice becomes two lists
    writer = YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 4096
    stream = io.StringIO()
    writer.dump(plain, stream)
    return stream.getvalue().removesuffix("\n")


def items(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a list as `kubectl get -o json` has it: an object with `items`."""
    return {"items": list(rows)}


def time(moment: datetime | None) -> str | None:
    """Return a time as the Kubernetes API spells it."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
