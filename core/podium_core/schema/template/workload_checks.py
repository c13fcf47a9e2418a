"""Checks of a JobSet or a TrainJob that is a trial: what the operator has to change in it must be there. Pure.

`validation` calls it. Everything else is checked by the object's own controller when the operator creates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.template.checks import reserved_keys
from podium_core.schema.template.leftovers import MAX_FOUND, strings
from podium_core.schema.template.pod_template import NAME_PATTERN
from podium_core.schema.template.workload import (
    RUNTIMES,
    TRAIN_JOB,
    VERSIONS,
    TrialWorkload,
    marked,
    number_of_job,
    part,
    training_template,
    written_path,
)

_SPEC = "spec.workload.spec"
_PLACEHOLDER = "$(podium."
_FILLED = ("command", "args", "env")  # of a trainer
MAX_NAME = 63
_REFUSED: Mapping[str, str] = {
    "suspend": "HyperParamJob.spec.suspend suspends trials",
    "activeDeadlineSeconds": "it would also count while a trial is suspended; trials.maxSteps, budget.gpuSeconds and "
    "budget.deadline end trials",
    **dict.fromkeys(
        ("runtimePatches", "podTemplateOverrides", "podSpecOverrides"),
        "it would change the pods of a trial after Podium has made them; write its fields into the runtime",
    ),
}


def workload_refusals(spec: JobSpec) -> tuple[Refusal, ...]:
    """Return what is wrong with the workload of a job; empty if it has none."""
    workload = spec.workload
    if workload is None:
        return ()
    version = VERSIONS[workload.kind]
    if workload.api_version != version:
        message = f"{workload.api_version} has no kind {workload.kind}: write apiVersion: {version}"
        return (Refusal("WrongKind", "spec.workload.apiVersion", message),)
    pods = _train_job(workload) if workload.kind == TRAIN_JOB else _jobset(workload)
    refusals = [*_metadata(workload), *_refused(workload.fields, _SPEC)]
    for where in marked(workload.fields, _SPEC)[:MAX_FOUND]:
        message = "is set by Podium: remove it, or use another prefix"
        refusals.append(Refusal("Reserved", where, message))
    if not isinstance(pods, int):
        return (*refusals, *pods)
    if pods != spec.trials.workers:
        message = (
            f"the {workload.kind} has {pods} pods that train, but trials.workers is {spec.trials.workers}: set "
            f"trials.workers to {pods}"
        )
        refusals.append(Refusal("WorkersOfWorkload", "spec.trials.workers", message))
    return (*refusals, *_placeholders(workload))


def _metadata(workload: TrialWorkload) -> Iterator[Refusal]:
    for field in workload.metadata.model_extra or {} if workload.metadata is not None else ():
        message = f"remove {field}: Podium sets name, namespace and owner, and takes labels and annotations"
        yield Refusal("FieldNotAllowed", f"spec.workload.metadata.{field}", message)
    yield from reserved_keys(workload.metadata, "spec.workload.metadata")


def _refused(spec: Mapping[str, Any], where: str) -> Iterator[Refusal]:
    for field, why in _REFUSED.items():
        if spec.get(field):
            yield Refusal("FieldNotAllowed", f"{where}.{field}", f"remove {field}: {why}")


def _jobset(workload: TrialWorkload) -> int | tuple[Refusal, ...]:
    """Return the number of pods that train, or what is wrong."""
    jobs = workload.fields.get("replicatedJobs")
    if not isinstance(jobs, list) or not jobs:
        message = "must be a list with a replicated job whose pods train"
        return (Refusal("InvalidValue", f"{_SPEC}.replicatedJobs", message),)
    number = number_of_job(workload.fields, workload.replicated_job)
    if number is None:
        named = [one.get("name") for one in jobs[:8] if isinstance(one, Mapping)]
        names = ", ".join(name[:MAX_NAME] for name in named if isinstance(name, str)) or "none with a name"
        given = "is missing" if workload.replicated_job is None else f"{workload.replicated_job} is not there"
        message = f"{given}: write the name of the replicated job whose pods train (there are: {names})"
        return (Refusal("ReplicatedJobUnknown", "spec.workload.replicatedJob", message),)
    where = f"{_SPEC}.replicatedJobs[{number}]"
    job, inner = jobs[number], part(part(jobs[number], "template"), "spec")
    name = job.get("name") if isinstance(job, Mapping) else None
    if not isinstance(name, str) or len(name) > MAX_NAME or not re.fullmatch(NAME_PATTERN, name):
        message = f"must have a name of at most {MAX_NAME} lower-case letters, digits and -, as in JobSet's API"
        return (Refusal("InvalidValue", f"{where}.name", message),)
    if sum(isinstance(one, Mapping) and one.get("name") == name for one in jobs) > 1:
        return (Refusal("InvalidValue", f"{where}.name", f"there are two replicated jobs {name}: rename one"),)
    if not isinstance(training_template(job).get("spec"), Mapping):
        message = "must be the pod template of the pods that train, with their containers"
        return (Refusal("Required", f"{where}.template.spec.template.spec", message),)
    if refused := tuple(_refused(inner, f"{where}.template.spec")):
        return refused
    counts = {}
    for owner, field, place in ((job, "replicas", where), (inner, "parallelism", f"{where}.template.spec")):
        given = owner.get(field, 1)
        if not _is_count(given):
            return (Refusal("InvalidValue", f"{place}.{field}", f"must be a number of pods, not {str(given)[:60]!r}"),)
        counts[field] = given
    if inner.get("completions", counts["parallelism"]) != counts["parallelism"]:
        message = f"must be equal to parallelism ({counts['parallelism']}): all workers of a trial run at the same time"
        return (Refusal("InvalidValue", f"{where}.template.spec.completions", message),)
    if min(counts.values()) > 1:
        message = (
            f"replicas is {counts['replicas']} and parallelism {counts['parallelism']}, but only one of them may be "
            "above 1: the rank of a worker is its number in one of them"
        )
        return (Refusal("RankNotCertain", f"{where}.replicas", message),)
    return int(max(counts.values()))


def _train_job(workload: TrialWorkload) -> int | tuple[Refusal, ...]:
    """Return the number of pods that train, or what is wrong."""
    spec, where = workload.fields, f"{_SPEC}.trainer"
    trainer, nodes = part(spec, "trainer"), part(spec, "trainer").get("numNodes", 1)
    if workload.replicated_job is not None:
        message = "remove replicatedJob: the runtime of a TrainJob says which of its jobs trains"
        return (Refusal("FieldNotAllowed", "spec.workload.replicatedJob", message),)
    runtime = part(spec, "runtimeRef")
    if not isinstance(runtime.get("name"), str) or not runtime["name"]:
        return (Refusal("Required", f"{_SPEC}.runtimeRef.name", "must be the name of a runtime"),)
    if runtime.get("kind") not in (None, *RUNTIMES):
        message = f"must be {' or '.join(RUNTIMES)}, not {str(runtime['kind'])[:60]!r}"
        return (Refusal("InvalidValue", f"{_SPEC}.runtimeRef.kind", message),)
    if not isinstance(trainer.get("image"), str) or not trainer.get("image"):
        message = "is required, though the runtime has an image, too: the gate of a trial uses it"
        return (Refusal("Required", f"{where}.image", message),)
    if not _is_count(nodes):
        return (Refusal("InvalidValue", f"{where}.numNodes", f"must be a number of pods, not {str(nodes)[:60]!r}"),)
    return int(nodes)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _placeholders(workload: TrialWorkload) -> Iterator[Refusal]:
    """Yield a refusal for each placeholder outside the pods that train, where nothing fills it in."""
    trains = written_path(workload, "spec.template")
    filled = tuple(f"{trains}.{field}" for field in _FILLED) if workload.kind == TRAIN_JOB else (f"{trains}.",)
    for where, text in strings(workload.fields, _SPEC):
        if _PLACEHOLDER in text and not where.startswith(filled):
            message = f"{text[:60]} is not filled in here, but only in the containers that train ({trains})"
            yield Refusal("PlaceholderNotFilled", where, message)
