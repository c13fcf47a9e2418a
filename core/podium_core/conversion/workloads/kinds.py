"""The workload of one Katib trial as one pod: a Job, a job of Kubeflow's training operator, or a TrainJob.

A trial of Podium has one pod. Of a job with several pods, the one that writes the metrics remains. It gets the
variables of a group of one process, so that the script does not wait for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, Report, number_of, shown
from podium_core.conversion.workloads.pod_template import Workload, add_env, gpus_asked, trial_template
from podium_core.conversion.workloads.train_job import train_job
from podium_core.schema.job import Trials

MAX_RETRIES = next(one.le for one in Trials.model_fields["retries"].metadata if hasattr(one, "le"))
_JOB_IGNORED = (
    *("parallelism", "completionMode", "manualSelector", "selector", "ttlSecondsAfterFinished", "suspend"),
    *("podReplacementPolicy", "managedBy", "backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"),
)


@dataclass(frozen=True, slots=True)
class Replicated:
    """A kind of the training operator.

    `replicas`: its field with the groups of pods. `first`: the groups whose pod trains, by preference. `env`: variables
    of a group of one process. `ignored`: further fields without a meaning for one pod.
    """

    replicas: str
    first: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def _alone(port: int) -> Mapping[str, str]:
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "1", "RANK": "0"}


REPLICATED: Mapping[str, Replicated] = {
    "PyTorchJob": Replicated(
        "pytorchReplicaSpecs", ("Master", "Worker"), _alone(23456), ("elasticPolicy", "nprocPerNode")
    ),
    "TFJob": Replicated("tfReplicaSpecs", ("Chief", "Master", "Worker"), {}, ("successPolicy", "enableDynamicWorker")),
    "XGBoostJob": Replicated("xgbReplicaSpecs", ("Master", "Worker"), _alone(9991)),
    "PaddleJob": Replicated("paddleReplicaSpecs", ("Master", "Worker"), {}, ("elasticPolicy",)),
    "JAXJob": Replicated("jaxReplicaSpecs", ("Worker",), {}),
    "MPIJob": Replicated(
        "mpiReplicaSpecs",
        ("Launcher",),
        {},
        (
            "slotsPerWorker",
            "cleanPodPolicy",
            "sshAuthMountPath",
            "mpiImplementation",
            "mainContainer",
            "launcherCreationPolicy",
        ),
    ),
}
# pods whose loss changes nothing: they train as the first one does
_WORKERS = frozenset({"Master", "Chief", "Worker", "Launcher"})
_STEPS = ("Workflow", "PipelineRun", "TaskRun")


def workload_of(
    trial: Mapping[str, Any], path: str, container: str | None, others: Sequence[Manifest], report: Report
) -> Workload | None:
    """Return the pod of a trial; None if it was refused. `others`: objects that the trial may refer to."""
    whole = Fields(trial, path, report)
    whole.ignore("apiVersion", "metadata", "status")
    kind = whole.text("kind", required=True)
    spec = whole.fields("spec", required=True)
    whole.finish(f"a trial of kind {kind}")
    if kind is None:
        return None
    if kind == "Job":
        return _job(spec, container)
    if kind == "TrainJob":
        return train_job(spec, container, others)
    if kind in REPLICATED:
        return _replicated(kind, spec, container)
    known = ", ".join(("Job", "TrainJob", *REPLICATED))
    why = "has several steps, but a trial has one pod: put the steps into init containers of a Job"
    text = f"{kind} {why if kind in _STEPS else 'is not a kind that can be converted: write the pod as a Job'}"
    report.refuse(f"{path}.kind", f"{text} (known: {known})")
    return None


def _job(spec: Fields, container: str | None) -> Workload | None:
    spec.ignore(*_JOB_IGNORED)
    if (spec.whole("completions", 0) or 1) > 1:
        spec.report.refuse(spec.at("completions"), "a trial has one pod: write completions: 1")
    limit = spec.whole("backoffLimit", 0)
    for name in ("activeDeadlineSeconds", "podFailurePolicy"):
        if spec.raw(name) is not None:
            text = f"{shown(spec.raw(name))} is left out: trials.retries and the budget of the job limit a trial"
            spec.report.note(spec.at(name), text)
    made = trial_template(spec.raw("template"), spec.at("template"), container, spec.report)
    spec.finish("a Job")
    return None if made is None else made._replace(retries=None if limit is None else min(limit, MAX_RETRIES))


def _replicated(kind: str, spec: Fields, container: str | None) -> Workload | None:
    """Return the pod of the first group of a job of the training operator."""
    rules, report = REPLICATED[kind], spec.report
    groups, path = spec.fields(rules.replicas, required=True), spec.at(rules.replicas)
    given = spec.raw(rules.replicas)
    names = [name for name in (given if isinstance(given, Mapping) else ()) if isinstance(name, str)]
    run = spec.fields("runPolicy")
    run.ignore("cleanPodPolicy", "ttlSecondsAfterFinished", "suspend", "managedBy", "activeDeadlineSeconds")
    run.ignore("schedulingPolicy")
    limit = run.whole("backoffLimit", 0)
    run.finish(kind)
    processes = spec.raw("nprocPerNode")
    spec.ignore(*rules.ignored)
    spec.finish(kind)
    chosen = next((name for name in rules.first if name in names), None)
    if chosen is None:
        if isinstance(given, Mapping):
            report.refuse(path, f"has none of the groups {', '.join(rules.first)}: add the one that trains", "Required")
        return None
    pods, made, workers = 0, None, 0
    for name in names:
        group = groups.fields(name)
        replicas = group.whole("replicas", 0)
        template = group.raw("template")
        group.ignore("restartPolicy")
        group.finish(kind)
        count = 1 if replicas is None else replicas
        pods += count
        if name not in _WORKERS and count:
            text = f"{name} pods serve the others, but a trial has one pod: let the script train without them"
            report.refuse(groups.at(name), f"{text}, and remove this group")
        elif name == chosen:
            made = trial_template(template, group.at("template"), container, report)
        elif kind == "MPIJob":
            workers += count * _gpus(template)
    if made is None:
        return None
    variables = dict(rules.env)
    if processes is not None:
        variables |= {"PET_NNODES": "1", "PET_NPROC_PER_NODE": str(processes)}
    add_env(made.template["spec"]["containers"][0], variables)
    if pods > 1:
        _one_pod(kind, chosen, pods, path, report)
    retries = None if limit is None else min(limit, MAX_RETRIES)
    return made._replace(gpus=max(made.gpus, workers), retries=retries)


def _one_pod(kind: str, chosen: str, pods: int, path: str, report: Report) -> None:
    if kind == "MPIJob":
        text = f"a trial had {pods} pods; now the launcher's pod starts all processes, with the GPUs of all workers"
        report.note(path, f"{text}: raise its CPUs and memory to those of the workers")
        return
    text = f"a trial had {pods} pods; now one pod trains as its {chosen}, so the batch over all processes is smaller"
    report.note(path, f"{text}: adapt the batch size, or give --gpus N and start N processes in the pod")


def _gpus(template: Any) -> int:
    """Return the GPUs of the containers of a worker's template."""
    spec = template.get("spec") if isinstance(template, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    found = 0
    for one in containers if isinstance(containers, list) else ():
        asked = [number for _, number in gpus_asked(one)] if isinstance(one, dict) else []
        found += max((number for number in map(number_of, asked) if isinstance(number, int) and number > 0), default=0)
    return found
