"""Prepare a job file for this machine: accept it as a cluster would, adapt its template, find devices, open the folder.

`podium run` and other front ends call `prepare`; the result is what `Runner` runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podium_core.acceptance.finding import Finding
from podium_core.acceptance.findings import errors_of, findings, local_warnings_of
from podium_core.acceptance.warm_start import choose, given_results
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.job_status import WarmStartStatus
from podium_core.schema.metrics.rules import PATH_SOURCES
from podium_core.schema.validation import parse_job
from podium_local.cuda_support import NO_CUDA, CudaSupport, find_cuda
from podium_local.devices import Device, DeviceRequest, find_devices
from podium_local.errors import Kind, LocalError
from podium_local.metrics.place import check_own, metrics_place
from podium_local.run_state import RunState, open_run
from podium_local.store import FILES
from podium_local.template import Site, adapt, mapped, with_command
from podium_searchers.registry import missing_packages

MAX_SHOWN = 8  # errors of one message


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    `folder`: where it is stored. `beside`: folder of the job file, `here`: the current folder. `command`: replaces the
    container's. `paths`: path in the image to path on this machine. `devices`: which GPUs or cores to use.
    """

    folder: Path
    beside: Path
    here: Path
    command: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    devices: DeviceRequest = field(default_factory=DeviceRequest)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can start.

    `notes`: what differs from a cluster, as sentences. `warnings`: what in the job may not work as intended.
    """

    state: RunState
    notes: tuple[str, ...]
    warnings: tuple[Finding, ...]


def prepare(manifest: Mapping[str, Any], options: RunOptions, environ: Mapping[str, str]) -> Prepared:
    """Return a run of this job. Raises LocalError with the cure."""
    changed = with_command(manifest, options.command)
    parsed = parse_job(changed)
    missing = missing_packages(parsed.spec.search.algorithm) if isinstance(parsed, HyperParamJob) else ()
    found = findings(changed, missing_packages=missing)
    if wrong := errors_of(found):
        lines = [f"{one.code}: {one}" for one in wrong[:MAX_SHOWN]]
        raise LocalError(Kind.FAILED, "InvalidJob", "\n  ".join(["the job is refused, as on a cluster:", *lines]))
    job = HyperParamJob.model_validate({**changed, "status": {}})
    _refuse_unavailable(job.spec)
    warm_start = _warm_start(job.spec)
    if warm_start is not None:
        job = job.model_copy(update={"status": job.status.model_copy(update={"warm_start": warm_start})})
    job = _with_paths(job, options.paths)
    checkpoint, own = job.spec.checkpoint, metrics_place(job).own
    site = Site(
        options.beside.absolute(),
        options.here.absolute(),
        options.command,
        options.paths,
        tuple(path for path in (own, "" if checkpoint is None else checkpoint.path) if path),
        environ,
    )
    adapted = adapt(job.spec.template, site)
    notes = [*adapted.notes, *(() if warm_start is None else (warm_start.message,))]
    changes: dict[str, Any] = {}
    if job.spec.metrics.source == "push":
        notes.append("metrics.source push: podium.trial.report prints its lines here, and they are read")
        changes["metrics"] = job.spec.metrics.model_copy(update={"source": "stdout"})
    job = job.model_copy(update={"spec": job.spec.with_template(adapted.template).model_copy(update=changes)})
    cuda = NO_CUDA if options.devices.gpus == "none" else find_cuda(job.spec)
    devices = find_devices(job.spec, options.devices, environ, moves_memory=cuda.moves_memory)
    if not devices[0].is_gpu:
        cuda = NO_CUDA
    check_own(job, devices)
    if own:
        notes.append(f"metrics.path: {own} of each trial is in {options.folder / FILES}")
    state = open_run(job, options.folder, devices, environ, cuda)
    return Prepared(state, (*notes, *_about(job, devices, cuda), *_lowered(state)), local_warnings_of(found))


def _with_paths(job: HyperParamJob, paths: Mapping[str, str]) -> HyperParamJob:
    """Return the job with the paths of this machine where its metrics are."""
    metrics, template = job.spec.metrics, copy.deepcopy(job.spec.template)
    if metrics.source not in PATH_SOURCES or metrics.path is None:
        return job
    main = template["spec"]["containers"][0]
    for key in ("command", "args"):
        main[key] = [mapped(word, paths) for word in main.get(key) or []]
    changes = {"metrics": metrics.model_copy(update={"path": mapped(metrics.path, paths)})}
    return job.model_copy(update={"spec": job.spec.with_template(template).model_copy(update=changes)})


def _refuse_unavailable(spec: JobSpec) -> None:
    """Refuse what only a cluster has. Raises LocalError with the cure."""
    if spec.search.warm_start is not None and spec.search.warm_start.jobs:
        text = "spec.search.warmStart.jobs names jobs of a cluster, which this machine does not have; remove it, and "
        raise LocalError(Kind.FAILED, "WarmStartUnavailable", f"{text}give files of their results: --warm-start FILE")

    if spec.workload is not None:
        text = f"spec.workload is a {spec.workload.kind}, whose controller is in a cluster; "
        raise LocalError(
            Kind.FAILED, "WorkloadUnavailable", f"{text}give spec.template, or run the search on a cluster"
        )

    if spec.trials.workers > 1:
        text = f"trials.workers is {spec.trials.workers}, and each worker needs a node of its own; "
        raise LocalError(Kind.FAILED, "WorkersUnavailable", f"{text}set it to 1, or run the search on a cluster")


def _warm_start(spec: JobSpec) -> WarmStartStatus | None:
    given = given_results(spec)
    return choose(spec, given, "results that the job lists") if given else None


def _lowered(state: RunState) -> Iterator[str]:
    """Yield a note on a folder with more trials than the job asks for."""
    most, there = state.job.spec.trials.max, len(state.trials)
    if there > most:
        yield (
            f"spec.trials.max is {most}, and the search in {state.folder.path} has {there} trials already: they "
            "remain, and no other one starts; raise it to continue, or name another folder with --folder"
        )


def _about(job: HyperParamJob, devices: tuple[Device, ...], cuda: CudaSupport) -> tuple[str, ...]:
    """Return notes about how the trials share the devices."""
    notes = []
    if cuda.reason:
        notes.append(f"cuda-checkpoint is off, so suspended trials keep their GPU memory: {cuda.reason}")
    first = devices[0]
    if first.is_gpu and first.slots == 1 and job.spec.gpus.memory is None:
        notes.append(
            "spec.gpus.memory is not set, so one trial at a time has a slot on a GPU: set it, or give --slots, if "
            "suspended trials may keep their memory beside the one that runs"
        )
    return tuple(notes)
