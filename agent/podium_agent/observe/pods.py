"""Pods of trials on this node, parsed from the API into what the agent needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import Field, ValidationError

from podium_agent.suspension.gpu_state_notes import GpuState
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.base import ObjectMeta, OwnerReference, StatusModel, controlling_trial
from podium_core.schema.metrics.config import METRICS_ANNOTATION, MetricsConfig
from podium_core.schema.quantity import to_thousandths
from podium_core.schema.template.cpu_downsizing import CPU_ANNOTATION, from_annotation
from podium_core.schema.trial import JOB_LABEL

TRIAL_LABEL = "podium.dev/trial"
ATTEMPT_LABEL = "podium.dev/attempt"
GATE_CONTAINER = "podium-gate"
METHODS_ANNOTATION = "podium.dev/methods"
GPU_STATE_ANNOTATION = "podium.dev/gpu-state"
INVALID_GPU_STATE = "InvalidGPUState"
MIGRATE_ANNOTATION = "podium.dev/migrate"
MIGRATED_ANNOTATION = "podium.dev/migrated"
CHECKPOINT_ANNOTATION = "podium.dev/checkpoint"
FREEZE = "freeze"
MEMORY_VARIABLE = "PODIUM_GPU_MEMORY_BYTES"
ON_ITS_WAY = ("", "PodInitializing", "ContainerCreating")


class _Meta(ObjectMeta):
    owner_references: list[OwnerReference] = Field(default_factory=list)
    deletion_grace_period_seconds: int | None = None


class _Variable(StatusModel):
    name: str
    value: str = ""


class _Resources(StatusModel):
    requests: dict[str, str] = Field(default_factory=dict)


class _Container(StatusModel):
    name: str
    image: str = ""
    env: list[_Variable] = Field(default_factory=list)
    resources: _Resources = Field(default_factory=_Resources)


class _Spec(StatusModel):
    termination_grace_period_seconds: float = 30.0
    containers: list[_Container] = Field(default_factory=list)
    init_containers: list[_Container] = Field(default_factory=list)
    host_network: bool = False


class _Waiting(StatusModel):
    reason: str = ""


class _Terminated(StatusModel):
    exit_code: int = 0


class _Running(StatusModel):
    started_at: datetime | None = None


class _State(StatusModel):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(StatusModel):
    name: str
    container_id: str = Field("", alias="containerID")
    state: _State = Field(default_factory=_State)


class _Condition(StatusModel):
    type: str
    status: str
    reason: str = ""


class _Status(StatusModel):
    phase: str = "Pending"
    pod_ip: str = Field("", alias="podIP")
    conditions: list[_Condition] = Field(default_factory=list)
    container_statuses: list[_ContainerStatus] = Field(default_factory=list)
    init_container_statuses: list[_ContainerStatus] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: _Meta
    spec: _Spec = Field(default_factory=_Spec)
    status: _Status = Field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class TrialPod:
    """One trial's pod.

    `running`: ids of its own containers that run; `ended`: it has ended, as the API reports.

    `gated`: it has a gate, as every pod with a slot; of other pods only the log is read. `starting`: one of its
    containers is still to start, and nothing prevents that. `main`: id of its first container, whose log is read and
    which writes checkpoints to `checkpoint`. `methods`: its job's suspension.methods, in order.

    `gpu_state`: of a migrated pod, its GPU state from the source node; `gpu_state_trouble`: why that cannot be read, as
    a code and a sentence. Such a pod counts as one that started here.

    `migrate_to`: the target node of its live migration, empty without one. `migrated`: it continues from an image of a
    live trial, the `image` of its first container.

    `ip`: its own address; empty without one, and for a pod in the network of its node.

    `job`: its label, which anyone may set; only for the log.

    `cpu`: what each container requests while the trial runs; `requests`: what it requests now; in thousandths of a
    CPU.
    """

    key: TrialKey
    name: str
    uid: str
    containers: tuple[str, ...]
    running: frozenset[str]
    ended: bool
    gate_running: bool
    gate_passed: bool
    deadline: float | None  # when a deleted pod is killed
    memory: int
    reading: MetricsConfig | None
    reading_trouble: str = ""
    conditions: Mapping[str, tuple[str, str]] | None = None
    gated: bool = True
    starting: bool = False
    attempt: int = 0
    grace: float = 30.0  # seconds from SIGTERM to SIGKILL
    main: str = ""
    checkpoint: str = ""
    methods: tuple[str, ...] = (FREEZE,)
    cpu: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    gpu_state: GpuState | None = None
    gpu_state_trouble: str = ""
    migrate_to: str = ""
    migrated: bool = False
    image: str = ""
    ip: str = ""
    job: str = ""


def parse(payload: Mapping[str, Any]) -> TrialPod:
    """Parse a trial's pod; raises ValueError if its label names a trial that does not control it."""
    pod = _Pod.model_validate(payload)
    meta, status = pod.metadata, pod.status
    trial = meta.labels.get(TRIAL_LABEL, "")
    owner = controlling_trial(meta.owner_references, trial)
    if owner is None:
        raise ValueError(f"label {TRIAL_LABEL}={trial}, but no HyperParamTrial of that name controls the pod")
    main = status.container_statuses
    gate = next((one for one in status.init_container_statuses if one.name == GATE_CONTAINER), None)
    reading, trouble = _reading(meta.annotations.get(METRICS_ANNOTATION))
    cpu = from_annotation(meta.annotations.get(CPU_ANNOTATION, "{}"))
    gpu_state, gpu_state_trouble = _gpu_state(meta.annotations.get(GPU_STATE_ANNOTATION))
    return TrialPod(
        key=TrialKey(meta.namespace, trial, owner.uid),
        name=meta.name,
        uid=meta.uid,
        containers=tuple(container.name for container in pod.spec.containers),
        running=frozenset(_id(one.container_id) for one in main if one.state.running is not None),
        ended=status.phase in ("Succeeded", "Failed")
        or (bool(main) and all(one.state.terminated is not None and one.container_id for one in main)),
        gate_running=gate is not None and gate.state.running is not None,
        gate_passed=gate is not None and gate.state.terminated is not None and gate.state.terminated.exit_code == 0,
        deadline=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
        memory=_memory(pod.spec),
        reading=reading,
        reading_trouble=trouble,
        conditions={one.type: (one.status, one.reason) for one in status.conditions},
        gated=any(container.name == GATE_CONTAINER for container in pod.spec.init_containers),
        starting=_starting(pod),
        attempt=_attempt(meta.labels.get(ATTEMPT_LABEL, "")),
        grace=_grace(pod),
        main=_main(pod),
        checkpoint=meta.annotations.get(CHECKPOINT_ANNOTATION, ""),
        methods=tuple(meta.annotations.get(METHODS_ANNOTATION, FREEZE).split(",")),
        cpu=cpu,
        requests={one.name: _thousandths(one) for one in pod.spec.containers if one.name in cpu},
        gpu_state=gpu_state,
        gpu_state_trouble=gpu_state_trouble,
        migrate_to=meta.annotations.get(MIGRATE_ANNOTATION, ""),
        migrated=MIGRATED_ANNOTATION in meta.annotations,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        ip="" if pod.spec.host_network else status.pod_ip,
        job=meta.labels.get(JOB_LABEL, ""),
    )


def _starting(pod: _Pod) -> bool:
    """Return whether a container is still to start.

    One that waits with an error (ImagePullBackOff) may never do so.
    """
    states = {one.name: one.state for one in pod.status.container_statuses}
    for container in pod.spec.containers:
        state = states.get(container.name, _State())
        reason = state.waiting.reason if state.waiting is not None else ""
        if state.running is None and state.terminated is None and reason in ON_ITS_WAY:
            return True
    return False


def _grace(pod: _Pod) -> float:
    given = pod.metadata.deletion_grace_period_seconds
    return pod.spec.termination_grace_period_seconds if given is None else float(given)


def _main(pod: _Pod) -> str:
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    return next((_id(one.container_id) for one in pod.status.container_statuses if one.name == first), "")


def _attempt(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _id(text: str) -> str:
    """Return the id alone of `containerd://<id>`."""
    return text.rpartition("/")[2]


def _thousandths(container: _Container) -> int:
    return to_thousandths(container.resources.requests.get("cpu", "0"))


def _memory(spec: _Spec) -> int:
    for container in spec.containers:
        for variable in container.env:
            if variable.name == MEMORY_VARIABLE and variable.value.isdigit():
                return int(variable.value)
    return 0


def _reading(text: str | None) -> tuple[MetricsConfig | None, str]:
    if text is None:
        return None, ""
    try:
        return MetricsConfig.model_validate_json(text), ""
    except ValidationError as error:
        return None, f"annotation {METRICS_ANNOTATION}: {error.errors()[0]['msg']}"


def _gpu_state(text: str | None) -> tuple[GpuState | None, str]:
    if text is None:
        return None, ""
    try:
        return GpuState.model_validate_json(text), ""
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"])) or "value"
        cure = "copy what the migration command printed as `gpuState`, and create the pod again"
        return None, f"{INVALID_GPU_STATE}: annotation {GPU_STATE_ANNOTATION}: {path}: {first['msg']}; {cure}"
