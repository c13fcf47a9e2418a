"""State of a trial's pod, parsed once into the facts that decide the trial's phase. The watch caches use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field

from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import ContainerEnd, Gate, PodFacts, PodWait
from podium_core.schema.base import ObjectMeta, OwnerReference, StatusModel, controlling_trial
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY
from podium_core.schema.template.pod_template import GATE_CONTAINER
from podium_core.schema.template.workload import TRIAL_UID_LABEL, workload_uid
from podium_core.schema.trial import JOB_LABEL, WORKERS_LABEL, rank_of
from podium_operator.act.pod_manifest import (
    ATTEMPT_LABEL,
    HOLDS_GPU,
    MIGRATE_ANNOTATION,
    MIGRATED_ANNOTATION,
    REQUEUE_ANNOTATION,
    TRIAL_LABEL,
    WHOLE_GPU_ANNOTATION,
)


class _Terminated(StatusModel):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class _Waiting(StatusModel):
    reason: str = ""
    message: str = ""


class _State(StatusModel):
    waiting: _Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(StatusModel):
    name: str
    state: _State = Field(default_factory=_State)


class _Condition(StatusModel):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _PodStatus(StatusModel):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: list[_Condition] = Field(default_factory=list)
    container_statuses: list[_ContainerStatus] = Field(default_factory=list)
    init_container_statuses: list[_ContainerStatus] = Field(default_factory=list)


class _InitContainer(StatusModel):
    name: str
    restart_policy: str = ""


class _PodSpec(StatusModel):
    node_name: str | None = None
    init_containers: list[_InitContainer] = Field(default_factory=list)


class _PodMeta(ObjectMeta):
    owner_references: list[OwnerReference] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: _PodMeta
    spec: _PodSpec = Field(default_factory=_PodSpec)
    status: _PodStatus = Field(default_factory=_PodStatus)


@dataclass(frozen=True, slots=True)
class PodState:
    """State of one pod; `trial_uid` is the trial that controls it, not a later trial of the same name."""

    namespace: str
    name: str
    uid: str
    trial: str
    trial_uid: str
    job: str
    attempt: int
    facts: PodFacts
    created: float
    ended_at: float | None
    migrate_to: str = ""  # the node that its agent is asked to migrate it to
    migrated: bool = False  # it continues from the image of a live trial
    deletion_deadline: float | None = None  # time at which a pod that is being deleted should be gone
    startable_since: float = 0.0  # when its containers could start: scheduled, and past its gate; 0: not yet
    rank: int = 0  # of its worker
    size: int = 1  # number of pods of its attempt
    of_job: bool = False  # a Job created it, not the operator
    # of the pod that stands for several workers (`worker_pods`)
    workers: tuple[PodState, ...] = ()  # their pods that exist, by rank
    decisive: int = 0  # rank of the worker that `facts` are about
    missing: bool = False  # that worker's pod is gone, and the others have ended
    broken: bool = False  # a worker has failed, is being deleted or is gone

    @property
    def trial_key(self) -> TrialKey:
        """Key of its trial, which is in the pod's namespace: an owner reference does not cross namespaces."""
        return TrialKey(self.namespace, self.trial, self.trial_uid)

    @property
    def node(self) -> str | None:
        """Node of worker 0, or None."""
        first = next((one for one in self.workers if one.rank == 0), None if self.workers else self)
        return None if first is None else first.facts.node


def parse_pod(payload: Mapping[str, Any]) -> PodState:
    """Return the state of a trial's pod.

    Raises ValueError (pydantic's) for a payload that does not describe a pod that a trial of this name controls.
    """
    pod = _Pod.model_validate(payload)
    labels = pod.metadata.labels
    owner = controlling_trial(pod.metadata.owner_references, labels.get(TRIAL_LABEL), workload_uid(labels))
    if owner is None:
        raise ValueError(
            f"pod {pod.metadata.name} has the label {TRIAL_LABEL}={labels.get(TRIAL_LABEL)!r}, but no HyperParamTrial "
            "of that name controls it, nor a Job of one; remove the label"
        )
    failed_init, ends = _ends(pod)
    finished = [end.finished_at.timestamp() for end in ends if end.finished_at is not None]
    created, deletion_deadline = pod.metadata.created, pod.metadata.deletion_timestamp
    return PodState(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        trial=owner.name,
        trial_uid=owner.uid,
        job=labels.get(JOB_LABEL, ""),
        attempt=int(labels.get(ATTEMPT_LABEL, "0")),
        facts=_facts(pod, failed_init, ends),
        created=created,
        ended_at=max(finished, default=None),
        migrate_to=pod.metadata.annotations.get(MIGRATE_ANNOTATION, ""),
        migrated=MIGRATED_ANNOTATION in pod.metadata.annotations,
        deletion_deadline=deletion_deadline.timestamp() if deletion_deadline else None,
        # the kubelet writes these times, by a clock that may be behind the API server's
        startable_since=max(since, created) if (since := _startable_since(pod.status)) else 0.0,
        rank=rank_of(labels, pod.metadata.annotations),
        size=int(labels.get(WORKERS_LABEL, "1")),
        of_job=TRIAL_UID_LABEL in labels,
    )


def _startable_since(status: _PodStatus) -> float:
    """Return the time since which the containers could start; 0 if they cannot start yet."""
    ends = (one.state.terminated for one in status.init_container_statuses)
    moments = (status.start_time, *(end.finished_at for end in ends if end is not None))
    return max((moment.timestamp() for moment in moments if moment is not None), default=0.0)


def _ends(pod: _Pod) -> tuple[str, list[_Terminated]]:
    """Return the name of a failed init container (else "") and how the containers ended.

    Where an init container failed, the other containers never started. A sidecar (an init container that is always
    restarted) decides nothing: the kubelet ends it after the others. The gate belongs to Podium, so its end is never
    the trial's fault.
    """
    ignored = {c.name for c in pod.spec.init_containers if c.restart_policy == "Always" or c.name == GATE_CONTAINER}
    for container in pod.status.init_container_statuses:
        end = container.state.terminated
        if end is not None and end.exit_code != 0 and container.name not in ignored:
            return container.name, [end]
    return "", [c.state.terminated for c in pod.status.container_statuses if c.state.terminated is not None]


def _facts(pod: _Pod, failed_init: str, ends: list[_Terminated]) -> PodFacts:
    status = pod.status
    # the worst end: a process that failed matters more than one that ended well
    end = max(ends, key=lambda e: (e.exit_code != 0, e.exit_code), default=None)
    containers = (*status.init_container_statuses, *status.container_statuses)
    waiting = [c.state.waiting for c in containers if c.state.waiting]
    # PodInitializing and ContainerCreating add nothing to the phase
    reported = [w for w in waiting if w.reason not in ("PodInitializing", "ContainerCreating", "")]
    conditions = {condition.type: condition for condition in status.conditions}
    disrupted = conditions.get("DisruptionTarget")
    scheduled = conditions.get("PodScheduled")
    holds = conditions.get(HOLDS_GPU)
    return PodFacts(
        phase=status.phase,
        reason=status.reason,
        message=status.message or (reported[0].message if reported else ""),
        deleting=pod.metadata.deletion_timestamp is not None,
        node=pod.spec.node_name,
        gate=_gate(pod),
        end=ContainerEnd(end.exit_code, end.reason, end.message, failed_init) if end else ContainerEnd(),
        wait=PodWait(
            container=reported[0].reason if reported else "",
            node=scheduled.message if scheduled is not None and scheduled.status == "False" else "",
            gpu_memory=holds.message if holds is not None and holds.reason == INSUFFICIENT_GPU_MEMORY else "",
        ),
        whole_gpus=pod.metadata.annotations.get(WHOLE_GPU_ANNOTATION) == "true",
        disruption=disrupted.reason if disrupted is not None and disrupted.status == "True" else "",
        requeue=pod.metadata.annotations.get(REQUEUE_ANNOTATION, ""),
        migrated=MIGRATED_ANNOTATION in pod.metadata.annotations,
    )


def _gate(pod: _Pod) -> Gate:
    if not any(container.name == GATE_CONTAINER for container in pod.spec.init_containers):
        return "None"
    for container in pod.status.init_container_statuses:
        if container.name == GATE_CONTAINER:
            if container.state.terminated is not None:
                return "Done"
            return "Running" if container.state.running is not None else "Waiting"
    return "Waiting"
