"""Says no to a job before anything starts: what CEL cannot say, and once more what it can.

`parse_job` and `check` are called by the operator, which turns refusals into Accepted=False; `problems` by
`podium validate`, which gives the same answers without a cluster. `notes` are things worth knowing about an accepted
job. All pure. Settings of a policy are the policies' own to judge (`policies.registry.create`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from podium_core.schema import error_messages as sentences
from podium_core.schema.base import API_VERSION, ObjectMeta
from podium_core.schema.job import HyperParamJob, JobSpec, JobStatus
from podium_core.schema.job_rules import JOB_RULES, PARAMETER_RULES, SPEC_RULES, TEMPLATE_RULES
from podium_core.schema.rules import Refusal, judge
from podium_core.schema.search_settings import setting_refusals
from podium_core.schema.search_space import grid_points, space_refusals
from podium_core.schema.template import PodTemplate
from podium_core.schema.template_checks import placeholder_refusals, template_refusals

__all__ = ["Refusal", "check", "notes", "parse_job", "problems"]

AVAILABLE_SOURCES = frozenset({"stdout"})
_KIND = "HyperParamJob"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def parse_job(manifest: Mapping[str, Any]) -> HyperParamJob | Refusal:
    """The job, or the first thing that is wrong with its shape (`problems` has them all)."""
    parsed = _parse(manifest)
    return parsed if isinstance(parsed, HyperParamJob) else parsed[0]


def problems(manifest: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Everything that the API server or the operator would refuse; empty means that the job will be accepted."""
    parsed = _parse(manifest)
    if not isinstance(parsed, HyperParamJob):
        return parsed
    whole = judge([rule for rule in JOB_RULES if not rule.path], parsed)
    return (*_name(parsed.metadata.name), *whole, *check(parsed.spec))


def check(spec: JobSpec) -> tuple[Refusal, ...]:
    """Why this job cannot be run; empty means that it can."""
    found = [
        *judge([*PARAMETER_RULES, *SPEC_RULES], {"spec": spec}),
        *space_refusals(spec),
        *_metrics(spec),
        *_not_supported(spec),
        *placeholder_refusals(spec),
    ]
    try:
        template = PodTemplate.model_validate(spec.template)
    except ValidationError as error:
        return (*found, *sentences.refusals(error, PodTemplate, "spec.template"))
    found += judge(TEMPLATE_RULES, {"spec": {"template": template}})
    found += template_refusals(spec, template)
    return tuple(found)


def notes(spec: JobSpec) -> tuple[str, ...]:
    """Sentences for the message of Accepted=True: what a user might not expect of this job."""
    said: list[str] = []
    if "container-checkpoint" in spec.suspension.methods:
        said.append(
            "suspension.methods: container-checkpoint is experimental; by it a trial leaves a node that drains where "
            "both nodes' GPUNodes list it."
        )
    if "cuda-checkpoint" in spec.suspension.methods and "freeze" not in spec.suspension.methods:
        said.append("suspension.methods: a node whose GPUNode lists no cuda-checkpoint suspends no trial: add freeze.")
    points = grid_points(spec) if spec.search.algorithm == "grid" else None
    if points is not None and points < spec.trials.max:
        said.append(f"trials.max is {spec.trials.max}, but the grid has {points} points: {points} trials will be made.")
    if points is not None and points > spec.trials.max:
        said.append(f"the grid has {points} points, but trials.max is {spec.trials.max}: the others are not tried.")
    if spec.checkpoint is not None and spec.checkpoint.volume.empty_dir is not None:
        said.append("checkpoint.volume is an emptyDir: it goes with its pod, so a new attempt begins afresh.")
    if spec.gpus.per_trial == 0:
        said.append("gpus.perTrial is 0: trials are not ranked and never suspended.")
    return tuple(said)


def _parse(manifest: Mapping[str, Any]) -> HyperParamJob | tuple[Refusal, ...]:
    """Types are taken strictly, as the API server takes them: "3" is no number."""
    kind, version = manifest.get("kind", _KIND), manifest.get("apiVersion", API_VERSION)
    if kind != _KIND or version != API_VERSION:
        message = f"this is {version} {kind}: write apiVersion: {API_VERSION} and kind: {_KIND}"
        return (Refusal("WrongKind", "kind" if kind != _KIND else "apiVersion", message),)
    found: list[Refusal] = []
    spec: JobSpec | None = None
    metadata: ObjectMeta | None = None
    try:
        spec = JobSpec.model_validate_json(json.dumps(manifest.get("spec") or {}, default=str), strict=True)
    except ValidationError as error:
        found += sentences.refusals(error, JobSpec, "spec")
    try:
        metadata = ObjectMeta.model_validate(manifest.get("metadata") or {})
    except ValidationError as error:
        found += sentences.refusals(error, ObjectMeta, "metadata")
    if spec is None or metadata is None:
        return tuple(found)
    try:
        status = JobStatus.model_validate(manifest.get("status") or {})
    except ValidationError as error:
        return sentences.refusals(error, JobStatus, "status")
    return HyperParamJob(metadata=metadata, spec=spec, status=status)


def _name(name: str) -> Iterator[Refusal]:
    """The API server's own rule for names, which is in no schema."""
    if not _OBJECT_NAME.fullmatch(name):
        message = (
            f"{json.dumps(name, ensure_ascii=False)} will not do: lower-case letters, digits, - and ., such as vit-3"
        )
        yield Refusal("InvalidValue", "metadata.name", message)


def _metrics(spec: JobSpec) -> Iterator[Refusal]:
    named = spec.objective.additional_metrics
    for number, metric in enumerate(named):
        if metric in named[:number]:
            where = f"spec.objective.additionalMetrics[{number}]"
            yield Refusal("DuplicateMetric", where, f"{metric} is named twice: remove one")
    pattern = spec.metrics.filter
    if pattern is None:
        return
    wrong = filter_error(pattern)
    if wrong:
        yield Refusal("InvalidFilter", "spec.metrics.filter", wrong)


def filter_error(pattern: str) -> str | None:
    """What is wrong with a filter for text logs; None where it will do."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        return f"{pattern!r} is no regular expression: {error}; mend it, or remove filter"
    missing = [name for name in ("name", "value") if name not in groups]
    if missing:
        return f"{pattern!r} has no group {' and '.join(missing)}: write (?P<name>...) and (?P<value>...)"
    return None


def _not_supported(spec: JobSpec) -> Iterator[Refusal]:
    if spec.metrics.source not in AVAILABLE_SOURCES:
        message = f"{spec.metrics.source} cannot be read yet: let the trial print its values and write source: stdout"
        yield Refusal("NotYetSupported", "spec.metrics.source", message)
    if spec.queue is not None:
        message = f"there are no queues yet, so {spec.queue!r} cannot be honoured: remove queue"
        yield Refusal("NotYetSupported", "spec.queue", message)
    yield from setting_refusals(spec)
