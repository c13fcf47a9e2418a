"""A JobSet or a Kubeflow TrainJob whose pods are the workers of a trial, and the pod template of these pods. Pure.

`JobSpec` takes the pod template from here, so that everything else reads it as that of a trial of plain pods. Sources:
JobSet's API jobset.x-k8s.io/v1alpha2, and Kubeflow Trainer's trainer.kubeflow.org/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from podium_core.schema.base import GROUP, OpenModel, SpecModel
from podium_core.schema.template.pod_template import NAME_PATTERN, TemplateMeta, others

JOBSET, TRAIN_JOB = "JobSet", "TrainJob"
VERSIONS: Mapping[str, str] = {JOBSET: "jobset.x-k8s.io/v1alpha2", TRAIN_JOB: "trainer.kubeflow.org/v1alpha1"}
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
TRAINER = "node"  # Trainer's name of the container and of the replicated job that train
# what a pod's label says of its place: written by the Job controller, and by JobSet
POD_INDEX, JOB_INDEX = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
TRIAL_UID_LABEL = "podium.dev/trial-uid"  # on pods that a Job controls (`JobSpec.workload`)
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"  # on these pods: written by JobSet itself
_TRAINER_FIELDS = ("image", "command", "args", "env")


class TrialWorkloadSpec(OpenModel):
    """Spec of a JobSet or a TrainJob."""

    model_config = others(
        "replicatedJobs network successPolicy failurePolicy startupPolicy coordinator managedBy suspend "
        "ttlSecondsAfterFinished volumeClaimPolicies "
        "runtimeRef initializer trainer labels annotations activeDeadlineSeconds podTemplateOverrides podSpecOverrides "
        "runtimePatches"
    )


class TrialWorkload(SpecModel):
    """A JobSet or a Kubeflow TrainJob; each attempt of a trial is one."""

    api_version: Literal["jobset.x-k8s.io/v1alpha2", "trainer.kubeflow.org/v1alpha1"] = Field(
        description="API version of the object."
    )
    kind: Literal["JobSet", "TrainJob"] = Field(description="Kind of the object.")
    metadata: TemplateMeta | None = Field(None, description="Labels and annotations of the object.")
    replicated_job: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        pattern=NAME_PATTERN,
        description="Name of the replicated job of a JobSet whose pods train: they get the GPUs and are suspended, and "
        "the metric is read from the first one. The pods of other replicated jobs run as they are. Default: the only "
        "one.",
        json_schema_extra={"x-says": "write the name of a replicated job, such as worker"},
    )
    spec: TrialWorkloadSpec = Field(
        description="Spec of the object. Placeholders such as `$(podium.args)` are filled in in the containers that "
        "train."
    )

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return the spec as written."""
        return self.spec.model_extra or {}


def pod_template_of(workload: TrialWorkload) -> dict[str, Any]:
    """Return the pod template of the pods that train; without containers if the workload has none.

    Its parts are those of the workload: copy it before a change.
    """
    if workload.kind == TRAIN_JOB:
        return {"spec": {"containers": [trainer_container(workload)]}}
    number = number_of_job(workload.fields, workload.replicated_job)
    found = {} if number is None else training_template(workload.fields["replicatedJobs"][number])
    return dict(found) if isinstance(found.get("spec"), Mapping) else {"spec": {"containers": []}}


def trainer_container(workload: TrialWorkload) -> dict[str, Any]:
    """Return the container of a TrainJob's trainer, as far as the TrainJob says what it is."""
    trainer = part(workload.fields, "trainer")
    given = {name: trainer[name] for name in _TRAINER_FIELDS if trainer.get(name) is not None}
    resources = trainer.get("resourcesPerNode")
    return {"name": TRAINER, **given} | ({} if resources is None else {"resources": resources})


def training_template(job: Any) -> Mapping[str, Any]:
    """Return the pod template of a replicated job; empty if it is malformed."""
    return part(part(part(job, "template"), "spec"), "template")


def number_of_job(spec: Mapping[str, Any], name: str | None) -> int | None:
    """Return the position of the replicated job that trains; None if it is not there or not certain."""
    jobs = spec.get("replicatedJobs")
    if not isinstance(jobs, list):
        return None
    if name is None:
        return 0 if len(jobs) == 1 else None
    return next(
        (number for number, job in enumerate(jobs) if isinstance(job, Mapping) and job.get("name") == name), None
    )


def name_of_job(workload: TrialWorkload) -> str:
    """Return the name of the replicated job that trains; Trainer's own for a TrainJob."""
    number = number_of_job(workload.fields, workload.replicated_job)
    jobs = workload.fields.get("replicatedJobs")
    if number is None or not isinstance(jobs, list) or not isinstance(jobs[number], Mapping):
        return TRAINER
    return str(jobs[number].get("name"))


def written_path(workload: TrialWorkload, field: str) -> str:
    """Return where the user wrote a field that a finding about the pod template names."""
    if not field.startswith("spec.template"):
        return field
    rest = field.removeprefix("spec.template")
    if workload.kind == TRAIN_JOB:
        container = ".spec.containers[0]"
        inner = rest.removeprefix(container).replace(".resources", ".resourcesPerNode", 1)
        return f"spec.workload.spec.trainer{inner if rest.startswith(container) else ''}"
    number = number_of_job(workload.fields, workload.replicated_job)
    return f"spec.workload.spec.replicatedJobs[{number or 0}].template.spec.template{rest}"


def workload_uid(labels: Mapping[str, str]) -> str | None:
    """Return the uid of the trial whose JobSet a pod belongs to; None if it belongs to none.

    `labels`: of the pod. JobSet writes the name of the JobSet. So a pod that another object makes from a template of a
    trial, such as a TrainJob with the runtime of one, is none of the trial's.
    """
    attempt = f"{labels.get('podium.dev/trial')}-{labels.get('podium.dev/attempt')}"
    return labels.get(TRIAL_UID_LABEL) if labels.get(JOBSET_NAME) == attempt else None


def marked(value: Any, path: str) -> list[str]:
    """Return where an object, at any depth, has a label or an annotation of Podium."""
    found, todo = [], [(path, value)]
    while todo:
        where, one = todo.pop()
        if isinstance(one, Mapping):
            for name, inner in one.items():
                at = f"{where}.{name}"
                if name in ("labels", "annotations") and isinstance(inner, Mapping):
                    found += [f"{at}.{key}" for key in inner if str(key).startswith(f"{GROUP}/")]
                todo.append((at, inner))
        elif isinstance(one, list):
            todo += [(f"{where}[{number}]", inner) for number, inner in enumerate(one)]
    return sorted(found)


def part(value: Any, name: str) -> Mapping[str, Any]:
    """Return an object within an object; an empty one if it is missing or no object."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}
