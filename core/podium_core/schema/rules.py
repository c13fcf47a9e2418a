"""Rules about several fields of an object, each written twice: in CEL for the API server and in Python.

`crd` writes the CEL into the CRDs, so that `kubectl apply` refuses the object. `validation` evaluates the Python. So
`podium validate` gives the same answer without a cluster, and the operator refuses objects that an API server with an
older CRD accepted. A test checks every wrong job against both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FIELD = re.compile(r"\{([a-zA-Z.]+)\}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused field.

    It has a CamelCase code for programs, the field as the user wrote it, and a sentence with the cure.
    """

    code: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about an object and the field that it blames.

    `path` names the objects that the rule is about ("spec.parameters[]": each of them), `at` the field to blame.
    `message` may contain {field}: the text of that field. It must be present whenever the rule fails, and limited in
    length, since CEL has a cost budget. CEL cannot format numbers, so only Python shows the fields in `shows`. `holds`
    is None for rules about a change (CEL's oldSelf), which only the API server can evaluate.
    """

    code: str
    path: str
    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    at: str = ""
    shows: tuple[str, ...] = ()

    def validation(self) -> dict[str, str]:
        """Return the entry of the rule in x-kubernetes-validations."""
        entry = {"rule": self.cel, "message": self.message}  # used only if the expression fails
        if _FIELD.search(self.message):
            entry["messageExpression"] = _expression(self.message)
        if self.at:
            entry["fieldPath"] = f".{self.at}"
        return entry

    def refusal(self, thing: Any, where: str) -> Refusal:
        """Return the refusal of `thing`, which is at `where` in the manifest."""
        message = _FIELD.sub(lambda match: str(pick(thing, match.group(1))), self.message)
        given = [(field, pick(thing, field)) for field in self.shows]
        shown = ", ".join(f"{field} = {number:g}" for field, number in given if number is not None)
        message = f"{message} ({shown})" if shown else message
        return Refusal(self.code, ".".join(part for part in (where, self.at) if part), message)


def judge(rules: Iterable[Rule], manifest: Any) -> Iterator[Refusal]:
    """Yield a refusal for every rule that does not hold, in the order of the table."""
    for rule in rules:
        if rule.holds is None:
            continue
        for where, thing in find(manifest, rule.path):
            if not rule.holds(thing):
                yield rule.refusal(thing, where)


def find(thing: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all objects at `path`, each with its position ("spec.parameters[2]")."""
    matches: list[tuple[str, Any]] = [("", thing)]
    for part in path.split(".") if path else []:
        name, each = part.removesuffix("[]"), part.endswith("[]")
        matches = [(f"{where}.{name}".lstrip("."), pick(one, name)) for where, one in matches]
        matches = [(where, one) for where, one in matches if one is not None]
        if each:
            matches = [(f"{where}[{number}]", one) for where, many in matches for number, one in enumerate(many)]
    yield from matches


def pick(thing: Any, name: str) -> Any:
    """Return the field with the name that it has in YAML; None if it is missing."""
    for part in name.split("."):
        if isinstance(thing, Mapping):
            thing = thing.get(part)
        elif thing is not None:
            fields = type(thing).model_fields
            thing = next((getattr(thing, own) for own, field in fields.items() if field.alias == part), None)
    return thing


def _expression(message: str) -> str:
    """Return a message as a CEL expression.

    `parameter {name} is` becomes `'parameter ' + self.name + ' is'`.
    """
    parts = _FIELD.split(message)
    terms = [repr(text) if number % 2 == 0 else f"self.{text}" for number, text in enumerate(parts) if text]
    return " + ".join(terms)
