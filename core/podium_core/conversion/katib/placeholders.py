"""Katib's placeholders `${trialParameters.x}` in the workload of a trial, as Podium's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, Report, shown
from podium_core.schema.template.leftovers import strings

TRIAL = "$(PODIUM_TRIAL)"  # Kubernetes fills it in where a command or an argument names it
TRIAL_FIELD = {"fieldRef": {"fieldPath": "metadata.labels['podium.dev/trial']"}}
LONGEST_METADATA = 256  # characters of a label or annotation that a placeholder stands for
_PLACEHOLDER = re.compile(r"\$\{trialParameters\.([^}]{1,256})\}")
_METADATA = re.compile(r"\$\{trialSpec\.([A-Za-z]{1,64})(?:\[([^\]]{1,256})\])?\}")


_EXPANDED = re.compile(r"\.spec\.(initC|c)ontainers\[\d+]\.(command|args|env)\[.*")


def replacements(
    template: Fields, trial: Mapping[str, Any], namespace: str | None, parameters: Mapping[str, str]
) -> dict[str, str]:
    """Return the text for each of `trialParameters`. `parameters`: text for each parameter of the search."""
    found: dict[str, str] = {}
    for entry in template.objects("trialParameters"):
        name, reference = entry.text("name", required=True), entry.text("reference", required=True)
        entry.ignore("description")
        entry.finish("Katib")
        if name is None or reference is None:
            continue
        match = _METADATA.fullmatch(reference)
        if match is not None:
            text = _metadata(match[1], match[2], trial, namespace)
        else:
            text = parameters.get(reference)
        if text is None:
            known = ", ".join(islice(parameters, 8))
            why = f"{shown(reference)} is not known: name one of the parameters ({known}), or write the value"
            entry.report.refuse(entry.at("reference"), why)
        found[name] = text or ""
    return found


def _metadata(key: str, index: str | None, trial: Mapping[str, Any], namespace: str | None) -> str | None:
    """Return a part of the metadata of the trial's workload; the name is that of Podium's trial."""
    meta = trial.get("metadata")
    if key in ("Labels", "Annotations") and index is not None:
        values = meta.get(key.lower()) if isinstance(meta, Mapping) else None
        value = values.get(index) if isinstance(values, Mapping) else None
        return value if isinstance(value, str) and len(value) <= LONGEST_METADATA else None
    known = {"Name": TRIAL, "Namespace": namespace, "Kind": trial.get("kind"), "APIVersion": trial.get("apiVersion")}
    value = known.get(key)
    return value if isinstance(value, str) else None


def fill(value: Any, path: str, texts: Mapping[str, str], report: Report) -> Any:
    """Return a value with its placeholders replaced; one without a text is refused."""
    if isinstance(value, str):
        for name in _PLACEHOLDER.findall(value):
            if name not in texts:
                known = ", ".join(islice(texts, 8))
                text = f"${{trialParameters.{name}}} is not one of trialParameters: add it ({known})"
                report.refuse(path, text)
        return _PLACEHOLDER.sub(lambda match: texts.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {key: fill(one, f"{path}.{key}", texts, report) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, f"{path}[{number}]", texts, report) for number, one in enumerate(value)]
    return value


def trial_name_in_env(template: Manifest, path: str, report: Report) -> None:
    """Read the trial's name from a label where a variable holds it.

    Podium sets PODIUM_TRIAL after the variables of the template, so Kubernetes would not fill it in there.
    """
    for container in template["spec"]["containers"]:
        env = container.get("env")
        for variable in env if isinstance(env, list) else ():
            value = variable.get("value") if isinstance(variable, dict) else None
            if value == TRIAL:
                del variable["value"]
                variable["valueFrom"] = TRIAL_FIELD
            elif isinstance(value, str) and TRIAL in value:
                text = f"{shown(value)} has the name of the trial within a text: give the name alone to a variable"
                report.refuse(f"{path}.env[{variable.get('name')}]", text)
    for field, text in strings(template, ""):
        if TRIAL in text and _EXPANDED.fullmatch(field) is None:
            report.refuse(
                f"{path}{field}", f"{shown(text)}: the name of the trial is known only to command, args and env"
            )
