"""What the caller adds to a search that its tool does not describe, and the parts of a job that all sources share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, Report, shown
from podium_core.schema.base import API_VERSION
from podium_core.schema.job_rules import NAME_LIMIT

# written by an API server into an object that was saved from a cluster
SERVER_FIELDS = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers"),
    *("ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"),
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Given:
    """Options of the conversion; None is not given.

    `step_key` is the name under which the script prints its step.
    """

    name: str | None = None
    image: str | None = None
    gpus: int | None = None
    max_trials: int | None = None
    max_steps: float | None = None
    step_key: str | None = None


def job_of(metadata: Manifest, spec: Manifest) -> Manifest:
    """Return a HyperParamJob without its empty fields."""
    filled = {name: value for name, value in spec.items() if value not in (None, {}, [])}
    return {"apiVersion": API_VERSION, "kind": "HyperParamJob", "metadata": metadata, "spec": filled}


def metadata_of(source: Fields, given: Given) -> Manifest:
    """Return the metadata of the job: name, namespace, labels and annotations of the source."""
    source.ignore(*SERVER_FIELDS)
    generated = source.text("generateName")
    name = given.name or source.text("name")
    if name is None:
        why = f"generateName {shown(generated)} is not a name" if generated else "is required"
        source.report.refuse(source.at("name"), f"{why}: give --name", "Required")
    found: Manifest = {"name": name, "namespace": source.text("namespace")}
    for kind in ("labels", "annotations"):
        value = source.raw(kind)
        if isinstance(value, dict):
            found[kind] = {key: one for key, one in value.items() if key != _LAST_APPLIED}
        elif value is not None:
            source.report.refuse(source.at(kind), f"must be a map of fields, not {shown(value)}", "InvalidValue")
    return {key: value for key, value in found.items() if value}


def slug(text: str) -> str:
    """Return a text as a name of Kubernetes; empty if it has no letter and no digit."""
    return re.sub(r"[^a-z0-9]+", "-", text[:1024].lower()).strip("-")[:NAME_LIMIT].strip("-")


def seed_of(value: int | None, where: str, report: Report) -> int | None:
    """Return a seed in Podium's range."""
    if value is None or value <= MAX_SEED:
        return value
    report.note(where, f"the seed {value} is larger than {MAX_SEED}: Podium takes it modulo 2^32")
    return value % (MAX_SEED + 1)


def metrics_of(form: str, expression: str | None, given: Given) -> Manifest:
    """Return `metrics` of the job; the default format is left out."""
    found: Manifest = {} if form == "json" else {"format": form}
    if expression is not None:
        found["filter"] = expression
    if given.step_key is not None:
        found["stepKey"] = given.step_key
    return found


def policy_of(policy: Manifest | None, gpus: int, where: str, given: Given, report: Report) -> Manifest | None:
    """Return the policy of the job; without maxSteps, the one that lets each trial run to its end."""
    if gpus == 0:
        if policy is not None:
            report.note(where, "trials without GPUs are not ranked in Podium: each one runs to its end")
        return policy
    if given.max_steps is not None:
        return policy
    if policy is None:
        text = "each trial runs to its end, in order (policy fifo); with --max-steps N, Podium ranks the trials"
        report.note("", f"{text}, and the best ones get the GPUs first")
        return {"name": "fifo"}
    text = f"policy {policy['name']} must know when a trial is complete: give --max-steps N"
    report.refuse(where, text, "MaxStepsMissing")
    return policy


def scalar(value: Any) -> bool:
    """Return whether a value can be a value of a parameter."""
    return isinstance(value, (str, bool, int, float))
