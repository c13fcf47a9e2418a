"""Validation of a job before anything starts: the rules of the CRDs again, and those that CEL cannot express.

`parse_job` and `check` are called by the operator, which sets Accepted=False for a refusal. `problems` is called by
`podium validate`, which gives the same answers without a cluster. `notes` are hints about an accepted job. All
functions are pure. The settings of a policy are checked by the policies (`policies.registry.create`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from podium_core.logs.filters import filter_error
from podium_core.schema import error_messages
from podium_core.schema.base import API_VERSION, ObjectMeta
from podium_core.schema.job import HyperParamJob, JobSpec, JobStatus
from podium_core.schema.job_rules import JOB_RULES, PARAMETER_RULES, SPEC_RULES
from podium_core.schema.rules import Refusal, judge
from podium_core.schema.search_settings import setting_refusals
from podium_core.schema.search_space import grid_points, space_refusals
from podium_core.schema.template import PodTemplate
from podium_core.schema.template_checks import placeholder_refusals, template_refusals
from podium_core.schema.template_rules import TEMPLATE_RULES

__all__ = ["Refusal", "check", "notes", "parse_job", "problems"]

AVAILABLE_SOURCES = frozenset({"stdout"})
_KIND = "HyperParamJob"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def parse_job(manifest: Mapping[str, Any]) -> HyperParamJob | Refusal:
    """Return the job, or the first error in its structure (`problems` returns all of them)."""
    parsed = _parse(manifest)
    return parsed if isinstance(parsed, HyperParamJob) else parsed[0]


def problems(manifest: Mapping[str, Any]) -> tuple[Refusal, ...]:
    """Return everything that the API server or the operator would refuse.

    Empty if the job will be accepted.
    """
    parsed = _parse(manifest)
    if not isinstance(parsed, HyperParamJob):
        return parsed
    whole = judge([rule for rule in JOB_RULES if not rule.path], parsed)
    return (*_name(parsed.metadata.name), *whole, *check(parsed.spec))


def check(spec: JobSpec) -> tuple[Refusal, ...]:
    """Return the reasons for which this job cannot run; empty if it can."""
    refusals = [
        *judge([*PARAMETER_RULES, *SPEC_RULES], {"spec": spec}),
        *space_refusals(spec),
        *_metrics(spec),
        *_not_supported(spec),
        *placeholder_refusals(spec),
    ]
    try:
        template = PodTemplate.model_validate(spec.template)
    except ValidationError as error:
        return (*refusals, *error_messages.refusals(error, PodTemplate, "spec.template"))
    refusals += judge(TEMPLATE_RULES, {"spec": {"template": template}})
    refusals += template_refusals(spec, template)
    return tuple(refusals)


def notes(spec: JobSpec) -> tuple[str, ...]:
    """Return hints for the message of Accepted=True: properties of the job that a user might not expect."""
    said: list[str] = []
    if "container-checkpoint" in spec.suspension.methods:
        said.append(
            "suspension.methods: container-checkpoint is experimental; it moves a trial off a draining node if "
            "the GPUNodes of both nodes list it."
        )
    if "cuda-checkpoint" in spec.suspension.methods and "freeze" not in spec.suspension.methods:
        said.append(
            "suspension.methods: a node whose GPUNode does not list cuda-checkpoint cannot suspend trials: add freeze."
        )
    points = grid_points(spec) if spec.search.algorithm == "grid" else None
    if points is not None and points < spec.trials.max:
        said.append(
            f"trials.max is {spec.trials.max}, but the grid has {points} points: {points} trials will be created."
        )
    if points is not None and points > spec.trials.max:
        said.append(
            f"the grid has {points} points, but trials.max is {spec.trials.max}: the other points are not tried."
        )
    if spec.checkpoint is not None and spec.checkpoint.volume.empty_dir is not None:
        said.append(
            "checkpoint.volume is an emptyDir, which is deleted with its pod: a new attempt starts from step 0."
        )
    if spec.gpus.per_trial == 0:
        said.append("gpus.perTrial is 0: trials are not ranked and never suspended.")
    return tuple(said)


def _parse(manifest: Mapping[str, Any]) -> HyperParamJob | tuple[Refusal, ...]:
    """Parse with strict types, as the API server does: the string "3" is not a number."""
    kind, version = manifest.get("kind", _KIND), manifest.get("apiVersion", API_VERSION)
    if kind != _KIND or version != API_VERSION:
        message = f"this is {version} {kind}: write apiVersion: {API_VERSION} and kind: {_KIND}"
        return (Refusal("WrongKind", "kind" if kind != _KIND else "apiVersion", message),)
    refusals: list[Refusal] = []
    spec: JobSpec | None = None
    metadata: ObjectMeta | None = None
    try:
        spec = JobSpec.model_validate_json(json.dumps(manifest.get("spec") or {}, default=str), strict=True)
    except ValidationError as error:
        refusals += error_messages.refusals(error, JobSpec, "spec")
    try:
        metadata = ObjectMeta.model_validate(manifest.get("metadata") or {})
    except ValidationError as error:
        refusals += error_messages.refusals(error, ObjectMeta, "metadata")
    if spec is None or metadata is None:
        return tuple(refusals)
    try:
        status = JobStatus.model_validate(manifest.get("status") or {})
    except ValidationError as error:
        return error_messages.refusals(error, JobStatus, "status")
    return HyperParamJob(metadata=metadata, spec=spec, status=status)


def _name(name: str) -> Iterator[Refusal]:
    """Check the name by the API server's rule, which is not part of a schema."""
    if not _OBJECT_NAME.fullmatch(name):
        shown = json.dumps(name, ensure_ascii=False)
        message = f"{shown} is not a valid name: use lower-case letters, digits, - and ., such as vit-3"
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


def _not_supported(spec: JobSpec) -> Iterator[Refusal]:
    if spec.metrics.source not in AVAILABLE_SOURCES:
        message = f"{spec.metrics.source} is not supported yet: let the trial print its values and write source: stdout"
        yield Refusal("NotYetSupported", "spec.metrics.source", message)
    if spec.queue is not None:
        message = f"queues are not supported yet: remove queue (got {spec.queue!r})"
        yield Refusal("NotYetSupported", "spec.queue", message)
    yield from setting_refusals(spec)
