"""A Kubeflow TrainJob as one pod: its trainer, on the pod template of its runtime if the file holds the runtime."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, number_of, shown
from podium_core.conversion.workloads.pod_template import Workload, add_env, trial_template
from podium_core.schema.template.workload import RUNTIMES, TRAINER

_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


def train_job(spec: Fields, container: str | None, others: Sequence[Manifest]) -> Workload | None:
    """Return the pod of a TrainJob; None if it was refused. `others`: objects that may hold the runtime."""
    report = spec.report
    spec.ignore("suspend", "managedBy", "labels", "annotations")
    limit = spec.raw("activeDeadlineSeconds")
    if limit is not None:
        report.note(spec.at("activeDeadlineSeconds"), f"{shown(limit)} is left out: the budget limits the search")
    spec.unsupported("initializer", "prepare data and model in an init container of a Job")
    for field in ("runtimePatches", "podTemplateOverrides", "podSpecOverrides"):
        spec.unsupported(
            field, "write the fields into the pod template of the runtime, and put the runtime into the file"
        )
    reference = spec.fields("runtimeRef")
    reference.ignore("apiGroup", "kind")
    name = reference.text("name")
    reference.finish("a TrainJob")
    trainer = spec.fields("trainer")
    spec.finish("a TrainJob")
    runtime = _runtime(name, others)
    template = _template(runtime)
    if runtime is not None and template is None:
        text = f"runtime {shown(name)} has no replicated job of the trainer: correct it, or give the image in trainer"
        report.refuse(reference.at("name"), text)
    wanted = container or TRAINER
    if template is None:
        template = {"spec": {"containers": [{"name": wanted}]}}
    chosen = _container(template, wanted)
    if chosen is None:
        report.refuse(reference.at("name"), f"runtime {shown(name)} has no container {shown(wanted)}: name another")
        return None
    nodes, processes = _override(trainer, chosen)
    if not chosen.get("image"):
        text = f"is missing, and runtime {shown(name)} is not in the file: add the image, or put the runtime's manifest"
        report.refuse(trainer.at("image"), f"{text} into the file (kubectl get clustertrainingruntime NAME -o yaml)")
        return None
    made = trial_template(template, spec.path, wanted, report)
    if made is None:
        return None
    if runtime is None and name is not None:
        text = f"{name} is not in the file, so its volumes and variables are missing: put its manifest into the file"
        report.note(reference.at("name"), text)
    if nodes > 1:
        text = f"a trial had {nodes} nodes; now one pod trains, so the batch over all processes is smaller"
        report.note(trainer.at("numNodes"), f"{text}: adapt the batch size, or give --gpus N")
    alone = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": "29400"}
    alone["PET_NPROC_PER_NODE"] = str(processes or max(made.gpus, 1))
    add_env(made.template["spec"]["containers"][0], alone)
    return made


def _runtime(name: str | None, others: Sequence[Manifest]) -> Manifest | None:
    for one in others:
        meta = one.get("metadata")
        if one.get("kind") in RUNTIMES and isinstance(meta, Mapping) and meta.get("name") == name:
            return one
    return None


def _template(runtime: Manifest | None) -> Manifest | None:
    """Return the pod template of a runtime's trainer."""
    jobs = _get(runtime, "spec", "template", "spec", "replicatedJobs")
    for job in jobs if isinstance(jobs, list) else ():
        step = _get(job, "template", "metadata", "labels", _STEP_LABEL)
        template = _get(job, "template", "spec", "template")
        if (step == "trainer" or _get(job, "name") == TRAINER) and isinstance(template, dict):
            return copy.deepcopy(template)
    return None


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _container(template: Manifest, name: str) -> Manifest | None:
    """Return the container that trains."""
    containers = _get(template, "spec", "containers")
    found = [one for one in containers if isinstance(one, dict)] if isinstance(containers, list) else []
    return next((one for one in found if one.get("name") == name), None)


def _override(trainer: Fields, container: Manifest) -> tuple[int, int | None]:
    """Write the fields of a trainer into its container. Return its nodes, and its processes in each."""
    for name in ("image", "command", "args"):
        value = trainer.raw(name)
        if value is not None:
            container[name] = value
    resources = trainer.raw("resourcesPerNode")
    if resources is not None:
        container["resources"] = resources
    env = trainer.raw("env")
    if isinstance(env, list):
        names = {str(_get(one, "name")) for one in env}
        own = container.get("env")
        kept = [one for one in own if str(_get(one, "name")) not in names] if isinstance(own, list) else []
        container["env"] = [*kept, *env]
    elif env is not None:
        trainer.report.refuse(trainer.at("env"), f"must be a list, not {shown(env)}", "InvalidValue")
    nodes = trainer.whole("numNodes", 1)
    processes = number_of(trainer.raw("numProcPerNode"))
    trainer.finish("a TrainJob")
    return nodes or 1, processes if isinstance(processes, int) else None
