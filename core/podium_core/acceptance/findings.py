"""All findings about a job, from its manifest alone. The operator and `podium validate` call `findings`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium_core.acceptance.finding import Finding, error_of, warning
from podium_core.acceptance.template_warnings import template_warnings
from podium_core.acceptance.warnings import job_warnings
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.policies.registry import PolicyError, create
from podium_core.schema.checkpointing import APP_CHECKPOINT, CUDA_CHECKPOINT, can_checkpoint
from podium_core.schema.job import HyperParamJob
from podium_core.schema.search.population_settings import PBT
from podium_core.schema.template.workload import name_of_job, written_path
from podium_core.schema.validation import parse_job, problems

SERVICE_NAME = re.compile(r"[a-z][-a-z0-9]*")  # of the beginning: a number follows
MAX_POD_NAME, MANY_ATTEMPTS = 63, 999  # a pod's host name is a label of DNS
EXTRA, GP_EXTRA = "kube-podium[searchers]", "kube-podium[searchers-gp]"


def findings(
    manifest: Mapping[str, Any], *, reserved_gpus: bool = False, missing_packages: Sequence[str] | None = None
) -> tuple[Finding, ...]:
    """Return everything that is wrong with a job, errors first; with errors, there are no warnings.

    `reserved_gpus`: Podium reserves its GPUs from another device plugin. `missing_packages`: what the operator lacks
    for the search algorithm; None: unknown.
    """
    errors = tuple(map(error_of, problems(manifest)))
    job = parse_job(manifest)
    if not isinstance(job, HyperParamJob):
        return errors
    errors += (
        *_policy(job),
        *_packages(job, missing_packages or ()),
        *_workers(job),
        *(() if errors else _workload(job)),
        *(_memory_not_movable(job) if reserved_gpus else ()),
    )
    optional = _optional(job) if missing_packages is None else ()
    found = errors or (*job_warnings(job.spec), *optional, *template_warnings(job.spec))
    workload = job.spec.workload
    return found if workload is None else tuple(replace(one, field=written_path(workload, one.field)) for one in found)


def errors_of(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(one for one in found if one.severity == "error")


def local_warnings_of(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the warnings that also apply to a search on one machine."""
    return tuple(one for one in found if one.severity == "warning" and not one.cluster_only)


def _policy(job: HyperParamJob) -> Iterator[Finding]:
    try:
        create(job.spec.policy.name, job.spec.policy.settings)
    except PolicyError as error:
        yield Finding(error.code, "error", "spec.policy.settings", str(error))


def _packages(job: HyperParamJob, missing: Sequence[str]) -> Iterator[Finding]:
    if missing:
        message = (
            f"algorithm {job.spec.search.algorithm} needs {', '.join(missing)}, which is not installed: install "
            f"{GP_EXTRA if 'torch' in missing else EXTRA} (on a cluster in the operator's image), or use algorithm tpe"
        )
        yield Finding("SearcherNotInstalled", "error", "spec.search.algorithm", message)


def _workers(job: HyperParamJob) -> Iterator[Finding]:
    """Refuse what trials of several workers cannot do."""
    spec, name = job.spec, job.metadata.name
    if spec.trials.workers == 1:
        return
    if CONTAINER_CHECKPOINT in spec.suspension.methods:
        message = (
            f"{CONTAINER_CHECKPOINT} moves one pod, and a trial of {spec.trials.workers} workers has more: remove it, "
            "or set trials.workers to 1"
        )
        yield Finding("WorkersNotMigratable", "error", "spec.suspension.methods", message)
    if spec.search.algorithm == PBT:
        message = (
            f"{PBT} copies a checkpoint before the one pod of a child starts, which trials of several workers do not "
            "support: use another algorithm, or set trials.workers to 1"
        )
        yield Finding("WorkersInPopulation", "error", "spec.search.algorithm", message)
    if not SERVICE_NAME.fullmatch(name):
        message = (
            f"{name!r} cannot begin the name of a Service, which each trial of several workers has: begin it with a "
            "letter, and use lower-case letters, digits and -"
        )
        yield Finding("WorkersName", "error", "metadata.name", message)


def _workload(job: HyperParamJob) -> Iterator[Finding]:
    """Refuse what trials that are JobSets or TrainJobs cannot do."""
    spec, name = job.spec, job.metadata.name
    if spec.workload is None:
        return
    kind = spec.workload.kind
    if CONTAINER_CHECKPOINT in spec.suspension.methods:
        message = f"{CONTAINER_CHECKPOINT} moves a pod of Podium, and the pods of a {kind} are its own: remove it"
        yield Finding("WorkloadNotMigratable", "error", "spec.suspension.methods", message)
    if spec.search.algorithm == PBT:
        message = f"{PBT} copies checkpoints between pods of Podium, and the pods of a {kind} are its own: use another"
        yield Finding("WorkloadInPopulation", "error", "spec.search.algorithm", message)
    if spec.trials.workers > 1 and spec.checkpoint is not None and spec.checkpoint.volume.claim_name is None:
        message = (
            f"the pods of a {kind} have one pod template, so worker 0 cannot be kept on the node that has its "
            "checkpoint: write the name of a claim that all nodes can mount"
        )
        yield Finding("WorkloadOnNode", "error", "spec.checkpoint.volume.claimName", message)
    if spec.trials.workers == 1 and not SERVICE_NAME.fullmatch(name):
        message = (
            f"{name!r} cannot begin the name of a {kind}: begin it with a letter, and use lower-case letters, digits "
            "and -"
        )
        yield Finding("WorkloadName", "error", "metadata.name", message)
    last = name_of_job(spec.workload)
    longest = f"{name}-{spec.trials.max - 1}-{MANY_ATTEMPTS}-{last}-{spec.trials.workers - 1}-0-{'x' * 5}"
    if len(longest) > MAX_POD_NAME:
        message = (
            f"the pods of the {kind} would have names such as {longest[:120]} ({len(longest)} characters, and "
            f"{MAX_POD_NAME} are allowed): shorten it, or the name of the replicated job"
        )
        yield Finding("WorkloadName", "error", "metadata.name", message)


def _optional(job: HyperParamJob) -> Iterator[Finding]:
    if job.spec.search.algorithm == "gp":
        message = f"gp needs PyTorch, which Podium's image does not have: install {GP_EXTRA} in the operator's image"
        yield warning("SearcherOptional", "spec.search.algorithm", message, cluster_only=True)


def _memory_not_movable(job: HyperParamJob) -> Iterator[Finding]:
    """Refuse methods that leave a trial's memory on the GPU: another pod uses the GPU after a reservation has ended."""
    spec = job.spec
    if spec.gpus.per_trial == 0 or CUDA_CHECKPOINT in spec.suspension.methods or can_checkpoint(spec):
        return
    methods = ", ".join(spec.suspension.methods)
    message = (
        f"{methods}: Podium reserves its GPUs here, and none of these methods frees a trial's GPU memory when a "
        f"reservation ends. Name {CUDA_CHECKPOINT}, or {APP_CHECKPOINT} together with a checkpoint volume that "
        "outlives the pod"
    )
    yield Finding("GPUMemoryNotMovable", "error", "spec.suspension.methods", message)
