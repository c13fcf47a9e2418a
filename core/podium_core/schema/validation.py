"""Validation of a job before anything starts: the rules of the CRDs again, and those that CEL cannot express.

`acceptance.findings` calls it for the operator, which sets Accepted=False for a refusal, and for `podium validate`,
which gives the same answers without a cluster. All functions are pure. The settings of a policy are checked by the
policies (`policies.registry.create`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from podium_core.schema import error_messages
from podium_core.schema.base import API_VERSION, ObjectMeta
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.job_rules import JOB_RULES, SPEC_RULES, TEMPLATE_GIVEN
from podium_core.schema.job_status import JobStatus
from podium_core.schema.manifest_parts import parse_part, parse_spec
from podium_core.schema.metrics.checks import metric_refusals
from podium_core.schema.objective_rules import OBJECTIVE_GIVEN
from podium_core.schema.rules import Refusal, judge
from podium_core.schema.search.conditions import condition_refusals
from podium_core.schema.search.parameter_rules import PARAMETER_RULES
from podium_core.schema.search.settings import setting_refusals
from podium_core.schema.search.space import grid_refusals, initial_refusals, space_refusals
from podium_core.schema.storable import MAX_FOUND, integer_refusals, text_refusals
from podium_core.schema.template.checks import placeholder_refusals, template_refusals
from podium_core.schema.template.leftovers import leftover_refusals
from podium_core.schema.template.pod_template import PodTemplate
from podium_core.schema.template.rules import TEMPLATE_RULES
from podium_core.schema.template.workload import written_path
from podium_core.schema.template.workload_checks import workload_refusals

__all__ = ["Refusal", "check", "parse_job", "problems", "template_problems"]

_KIND = "HyperParamJob"
_WRITTEN = ("apiVersion", "kind", "metadata", "spec")  # by users; Podium writes the status
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
    workload = spec.workload
    if workload is None:
        return _check(spec)
    # without its pod template, the other checks would blame what is not written
    found = workload_refusals(spec) or _check(spec)
    place = "spec.template.spec.containers"
    return tuple(
        replace(
            one,
            field=written_path(workload, one.field),
            message=one.message.replace(place, written_path(workload, f"{place}[0]").removesuffix("[0]")),
        )
        for one in found
    )


def _check(spec: JobSpec) -> tuple[Refusal, ...]:
    refusals = [*judge([*PARAMETER_RULES, *SPEC_RULES], {"spec": spec})]
    refusals += space_refusals(spec)
    if not refusals:  # conditions and points are compared with ranges that have bounds
        refusals += condition_refusals(spec)
    if not refusals:
        refusals += [*grid_refusals(spec), *initial_refusals(spec)]
    refusals += [
        *metric_refusals(spec),
        *setting_refusals(spec),
        *placeholder_refusals(spec),
        *leftover_refusals(spec),
    ]
    return (*refusals, *template_problems(spec))


def template_problems(spec: JobSpec) -> tuple[Refusal, ...]:
    """Return the reasons for which the pod template cannot be that of a trial."""
    try:
        template = PodTemplate.model_validate(spec.template)
    except ValidationError as error:
        return error_messages.refusals(error, PodTemplate, "spec.template")
    return (*judge(TEMPLATE_RULES, {"spec": {"template": template}}), *template_refusals(spec, template))


def _parse(manifest: Mapping[str, Any]) -> HyperParamJob | tuple[Refusal, ...]:
    """Parse with strict types, as the API server does: the string "3" is not a number."""
    texts = (one for part in _WRITTEN for one in text_refusals(manifest.get(part), part))
    refusals = [*islice(texts, MAX_FOUND)]
    if refusals:
        return tuple(refusals)
    kind, version = manifest.get("kind", _KIND), manifest.get("apiVersion", API_VERSION)
    if kind != _KIND or version != API_VERSION:
        message = f"this is {version} {kind}: write apiVersion: {API_VERSION} and kind: {_KIND}"
        return (Refusal("WrongKind", "kind" if kind != _KIND else "apiVersion", message),)
    spec = parse_spec(JobSpec, manifest, refusals)
    metadata = parse_part(ObjectMeta, manifest, "metadata", refusals)
    if spec is not None:
        refusals += judge([OBJECTIVE_GIVEN, TEMPLATE_GIVEN], {"spec": spec})
        refusals += islice(integer_refusals(spec.model_dump(by_alias=True), "spec"), MAX_FOUND)
    if spec is None or metadata is None or refusals:
        return tuple(refusals)
    status = parse_part(JobStatus, manifest, "status", refusals)
    if status is None:
        return tuple(refusals)
    return HyperParamJob(metadata=metadata, spec=spec, status=status)


def _name(name: str) -> Iterator[Refusal]:
    """Check the name by the API server's rule, which is not part of a schema."""
    if not _OBJECT_NAME.fullmatch(name):
        shown = json.dumps(name, ensure_ascii=False)
        message = f"{shown} is not a valid name: use lower-case letters, digits, - and ., such as vit-3"
        yield Refusal("InvalidValue", "metadata.name", message)
