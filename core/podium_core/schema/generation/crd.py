"""Generator of the CustomResourceDefinitions and reference pages.

`python -m podium_core.schema.generation.crd --write | --check`.

`--write` updates crds/*.yaml, the chart's copy of them, and docs/reference/*.md. `--check` (and a unit test) fails if
one of these files differs from what the models produce.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML

from podium_core.schema.base import GROUP, VERSION
from podium_core.schema.generation.openapi import PRESERVE, VALIDATIONS, Schema, schema_of
from podium_core.schema.generation.reference import page
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.gpuqueue import QUEUE_RULES, GPUQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_rules import JOB_RULES, NODE_RULES, TRIAL_RULES
from podium_core.schema.rules import Rule
from podium_core.schema.template.pod_template import PodTemplate
from podium_core.schema.trial import HyperParamTrial

CRD_FOLDERS = ("crds", "charts/podium/crds")
REFERENCE_FOLDER = "docs/reference"
# The chart compares it with that of the CRD in the cluster: Helm never changes CRDs (templates/crds.yaml).
SCHEMA_ANNOTATION = "podium.dev/schema"
_HEAD = "# Generated from the models in core/podium_core/schema by `make generate`: do not edit.\n"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; columns with priority 1 appear with -o wide only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """What the CRD of a kind needs besides its model."""

    model: type[BaseModel]
    plural: str
    short: tuple[str, ...]
    namespaced: bool
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """Return the name of the kind."""
        return self.model.__name__


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
KINDS: tuple[Kind, ...] = (
    Kind(
        HyperParamJob,
        "hyperparamjobs",
        ("hpj",),
        True,
        JOB_RULES,
        (
            Column("Phase", ".status.phase"),
            Column("Running", ".status.trials.running", "integer"),
            Column("Suspended", ".status.trials.suspended", "integer"),
            Column("Done/Max", ".status.done"),
            Column("Best", ".status.best.value", "number"),
            Column("GPU-h", ".status.gpuHours", "number"),
            Column("ETA", ".status.eta"),
            _AGE,
            Column("Best trial", ".status.best.trial", priority=1),
            Column("Message", ".status.message", priority=1),
        ),
    ),
    Kind(
        HyperParamTrial,
        "hyperparamtrials",
        ("hpt",),
        True,
        TRIAL_RULES,
        (
            Column("Phase", ".status.phase"),
            Column("Rank", ".status.rank", "integer"),
            Column("Step", ".status.lastStep", "number"),
            Column("Value", ".status.lastValue", "number"),
            Column("Best", ".status.best.value", "number"),
            Column("Predicted", ".status.predicted.value", "number"),
            Column("GPU", ".status.gpus[0]"),
            Column("Why", ".status.reason"),
            _AGE,
            Column("Node", ".status.node", priority=1),
            Column("Suspensions", ".status.suspensions.count", "integer", 1),
            Column("Message", ".status.message", priority=1),
        ),
    ),
    Kind(
        GPUNode,
        "gpunodes",
        ("gpun",),
        False,
        NODE_RULES,
        (
            Column("GPUs", ".status.summary.gpus", "integer"),
            Column("Holder", ".status.summary.holders"),
            Column("Util", ".status.summary.utilization"),
            Column("Memory", ".status.summary.memory"),
            Column("Health", ".status.summary.health"),
            Column("Epoch", ".status.observedEpoch", "integer"),
            _AGE,
            Column("Product", ".status.gpus[0].product", priority=1),
            Column("Driver", ".status.driver", priority=1),
            Column("Methods", ".status.methods[0]", priority=1),
            Column("Released", ".spec.released", "boolean", 1),
            Column("Draining", ".spec.draining", "boolean", 1),
        ),
    ),
    Kind(
        GPUQueue,
        "gpuqueues",
        ("gpuq",),
        False,
        QUEUE_RULES,
        (
            Column("Weight", ".spec.weight", "number"),
            Column("Quota", ".spec.gpus", "integer"),
            Column("Used", ".status.gpus.used", "integer"),
            Column("Borrowed", ".status.gpus.borrowed", "integer"),
            Column("Deserved", ".status.gpus.deserved", "number"),
            Column("Waiting", ".status.waiting", "integer"),
            _AGE,
            Column("Nominal", ".status.gpus.nominal", "number", 1),
            Column("Jobs", ".status.jobs", "integer", 1),
            Column("GPU-h", ".status.gpuHours", "number", 1),
        ),
    ),
)


def crd(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of `kind`, as the API server takes it."""
    spec = {
        "group": GROUP,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "names": {
            "kind": kind.name,
            "listKind": f"{kind.name}List",
            "plural": kind.plural,
            "singular": kind.name.lower(),
            "shortNames": list(kind.short),
            "categories": ["podium"],
        },
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [_column(column) for column in kind.columns],
                "schema": {"openAPIV3Schema": open_api(kind)},
            }
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "podium"},
            "annotations": {SCHEMA_ANNOTATION: _digest(spec)},
        },
        "spec": spec,
    }


def _digest(spec: Mapping[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def open_api(kind: Kind) -> Schema:
    """Return the structural schema of a whole object, rules included."""
    schema = schema_of(kind.model, defaults=True)
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string"}}}
    # No defaults in a status: a default phase would look like a reported one.
    properties["status"] = {**schema_of(kind.model, defaults=False)["properties"]["status"]}
    if kind.model is HyperParamJob:
        description = properties["spec"]["properties"]["template"]["description"]
        properties["spec"]["properties"]["template"] = {**_template(), "description": description}
        del properties["spec"]["properties"]["workload"]["properties"]["metadata"][PRESERVE]
    schema["required"] = [name for name in schema.get("required", []) if name != "metadata"]
    for rule in kind.rules:
        _at(schema, rule.path).setdefault(VALIDATIONS, []).append(rule.validation())
    if not schema["required"]:
        del schema["required"]
    return schema


def _template() -> Schema:
    schema = schema_of(PodTemplate, defaults=True)
    del schema[PRESERVE]
    del schema["properties"]["metadata"][PRESERVE]  # the user sets only labels and annotations of a pod
    return schema


def _at(schema: Schema, path: str) -> Schema:
    for part in path.split(".") if path else []:
        schema = schema["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            schema = schema["items"]
    return schema


def _column(column: Column) -> dict[str, Any]:
    entry = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**entry, "priority": column.priority} if column.priority else entry


def files() -> Mapping[Path, str]:
    """Return every generated file, relative to the project's root, with its content."""
    generated: dict[Path, str] = {}
    for kind in KINDS:
        definition = crd(kind)
        text = _HEAD + _yaml(definition)
        generated.update({Path(folder, f"{kind.plural}.yaml"): text for folder in CRD_FOLDERS})
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        generated[Path(REFERENCE_FOLDER, f"{kind.name.lower()}.md")] = page(
            kind.name, schema, shorts=kind.short, namespaced=kind.namespaced
        )
    return generated


def _yaml(thing: Mapping[str, Any]) -> str:
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.width = 1_000  # keep each rule on one line, so that grep finds it
    writer.representer.sort_base_mapping_type_on_output = False
    out = io.StringIO()
    writer.dump(thing, out)
    return out.getvalue()


def differences(root: Path) -> Iterator[Path]:
    """Yield the generated files that differ from what the models produce."""
    for path, text in files().items():
        file = root / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the generated files; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m podium_core.schema.generation.crd", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the generated files")
    what.add_argument("--check", action="store_true", help="exit 1 if a generated file is not up to date")
    parser.add_argument("--root", type=Path, default=Path(), help="the project's root (default: here)")
    given = parser.parse_args(arguments)
    if not (given.root / "pyproject.toml").is_file():
        parser.error(f"--root {given.root}: pyproject.toml is missing; give the project's root")
    stale = list(differences(given.root))
    if given.write:
        for path in stale:
            (given.root / path).parent.mkdir(parents=True, exist_ok=True)
            (given.root / path).write_text(files()[path], encoding="utf-8")
    for path in stale:
        print(f"{'written' if given.write else 'not up to date; run `make generate`'}: {path}")
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
