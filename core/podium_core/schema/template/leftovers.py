"""Placeholders of other tools in a job, which nothing replaces: Katib, Argo, Tekton, Helm, W&B and others.

`validation` calls it. A placeholder without another meaning is refused. One that may be a shell variable or the
script's own template is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.space import env_name

MAX_FOUND = 16  # leftovers that are reported
# `$$(x)` is Kubernetes' escape for `$(x)`
_PLACEHOLDER = re.compile(
    r"\$\{\{\s*(?P<actions>[^{}]{1,128}?)\s*\}\}|\{\{-?\s*(?P<braces>[^{}]{1,128}?)\s*-?\}\}"
    r"|(?<!\$)\$\{(?P<dollar>[A-Za-z_][\w.-]{0,127})\}|(?<!\$)\$\((?P<round>[A-Za-z_][\w.-]{0,127})\)"
    r"|(?<![\w<])<(?P<angle>[A-Za-z_][\w.-]{0,63})>(?![\w>])|(?<![\w%])%(?P<percent>[A-Za-z_][\w.-]{0,63})%(?!\w)"
)
_TOOLS = (  # first part of a placeholder that belongs to one tool, and the kinds of brackets that it uses
    (re.compile(r"(trialParameters|trialSpec)\b"), "Katib", ("dollar", "round", "braces")),
    (re.compile(r"(inputs|outputs|workflow|steps|tasks|item|pod)\.|item$"), "Argo Workflows", ("braces",)),
    (re.compile(r"(params|context|workspaces|results)\."), "Tekton", ("round",)),
    (re.compile(r"\$\.(inputs|outputs)\b"), "Kubeflow Pipelines", ("braces",)),
    (re.compile(r"(params|globals|connections)\."), "Polyaxon or Airflow", ("braces",)),
    (re.compile(r"(include|toYaml) |\.?(Values|Release|Chart)\."), "Helm", ("braces",)),
    (re.compile(r"\.[A-Z]|(with|range|index) [.$]"), "a Go template, such as Katib's", ("braces",)),
)
_WANDB = frozenset({"args", "args_no_hyphens", "args_no_boolean_flags", "args_json", "interpreter", "program"})
_SHELLS = re.compile(r"(^|/)(sh|bash|dash|zsh|ash|ksh)$")
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w{0,63})=|\bfor\s+([A-Za-z_]\w{0,63})|\bread\s+([A-Za-z_]\w{0,63})")
MAX_TEXT = 65536  # characters of one text that are searched
CURE = "write $(podium.args) or $(podium.params.NAME)"


class _Text(NamedTuple):
    """A text of the template: whether a shell reads it, and the variables that are set for it."""

    field: str
    text: str
    shell: bool
    variables: frozenset[str]


class Leftover(NamedTuple):
    """A placeholder that nothing replaces: its field, its text, whose it is, and whether that is certain."""

    field: str
    text: str
    tool: str
    certain: bool


def leftovers(spec: JobSpec) -> Iterator[Leftover]:
    """Yield the placeholders of other tools in template, checkpoint and metrics, at most MAX_FOUND."""
    texts = [*_texts(spec.template, "spec.template"), *_further(spec)]
    whole = "\n".join(one.text for one in texts)
    names = {parameter.name: is_referenced(parameter.name, whole) for parameter in spec.parameters}
    found = 0
    for one in texts:
        for match in _PLACEHOLDER.finditer(one.text[:MAX_TEXT]):
            judged = _judge(match, names, one)
            if judged is not None:
                yield Leftover(one.field, match[0], *judged)
                found += 1
            if found == MAX_FOUND:
                return


def leftover_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each placeholder that certainly belongs to another tool."""
    known = ", ".join(parameter.name for parameter in spec.parameters)
    for one in leftovers(spec):
        if one.certain:
            message = f"{one.text} is a placeholder of {one.tool}, which Podium does not replace: {CURE}"
            yield Refusal("ForeignPlaceholder", one.field, f"{message} (parameters: {known})")


def is_referenced(parameter: str, text: str) -> bool:
    """Return whether a template's text uses a parameter, by a placeholder or by an environment variable."""
    used = ("$(podium.args)", f"$(podium.params.{parameter})", "PODIUM_PARAMS", env_name(parameter))
    return any(one in text for one in used)


def _judge(match: re.Match[str], names: Mapping[str, bool], text: _Text) -> tuple[str, bool] | None:
    """Return which tool writes this placeholder and whether that is certain; None for other text.

    `names`: the parameters, and whether the template uses them in Podium's way.
    """
    kind = match.lastgroup or ""
    inner = match[kind]
    if inner in text.variables or inner.startswith("podium."):
        return None  # Kubernetes or a shell replaces it, or Podium does
    last = inner.rpartition(".")[2]
    tool = next((name for pattern, name, kinds in _TOOLS if kind in kinds and pattern.match(inner)), None)
    if tool is not None:
        return tool, not text.shell if inner.startswith(".") else "." in inner or kind == "round"
    if kind == "dollar" and inner in _WANDB and not text.shell:
        return "Weights & Biases", True
    if kind == "dollar":  # a shell variable, or Hydra's interpolation
        return ("another tool", inner in names and not text.shell and not names[inner]) if last in names else None
    if kind in ("angle", "percent"):
        return ("another tool", False) if inner in names else None
    if last in names:
        return "another tool", True
    return ("another tool", False) if kind == "actions" else None


def _texts(template: Mapping[str, Any], where: str) -> Iterator[_Text]:
    """Yield each text of a template."""
    spec = template.get("spec")
    places: list[str] = []
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(_list(spec.get(kind) if isinstance(spec, Mapping) else None)):
            place = f"{where}.spec.{kind}[{number}]"
            places.append(place)
            argv = [str(one) for part in ("command", "args") for one in _list(_get(container, part))]
            shell = any(_SHELLS.search(one) for one in argv[:3])
            names = {str(_get(one, "name")) for one in _list(_get(container, "env"))}
            if shell:
                names |= {name for found in _ASSIGNED.findall("\n".join(argv)[:MAX_TEXT]) for name in found}
            for field, text in strings(container, place):
                yield _Text(field, text, shell and ".env[" not in field, frozenset(names))
    for field, text in strings(template, where):
        if not any(field.startswith(f"{place}.") for place in places):
            yield _Text(field, text, False, frozenset())


def _further(spec: JobSpec) -> Iterator[_Text]:
    """Yield the texts beside the template that name files and arguments."""
    given: dict[str, Any] = {"metrics": {"path": spec.metrics.path}}
    if spec.checkpoint is not None:
        given["checkpoint"] = spec.checkpoint.model_dump(by_alias=True, exclude_none=True)
    for field, text in strings(given, "spec"):
        yield _Text(field, text, False, frozenset())


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def strings(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield each text in a value with its field."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from strings(one, f"{where}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from strings(one, f"{where}[{number}]")
