"""Pods of trials on this node, parsed from the API into what the agent needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from podium_agent.observe.pod_payload import ContainerSpec, ContainerState, PodPayload, PodSpec
from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import is_denial
from podium_core.schema.base import controlling_trial
from podium_core.schema.metrics.config import METRICS_ANNOTATION, MetricsConfig
from podium_core.schema.quantity import to_thousandths
from podium_core.schema.template.cpu_downsizing import CPU_ANNOTATION, from_annotation
from podium_core.schema.template.pod_template import GATE_CONTAINER, GATE_VOLUME
from podium_core.schema.template.workload import workload_uid
from podium_core.schema.trial import JOB_LABEL, WORKERS_LABEL, rank_of
from podium_suspension.gpu_state_notes import GpuState

TRIAL_LABEL = "podium.dev/trial"
ATTEMPT_LABEL = "podium.dev/attempt"
METHODS_ANNOTATION = "podium.dev/methods"
GPU_STATE_ANNOTATION = "podium.dev/gpu-state"
INVALID_GPU_STATE = "InvalidGPUState"
MIGRATE_ANNOTATION = "podium.dev/migrate"
MIGRATED_ANNOTATION = "podium.dev/migrated"
CHECKPOINT_ANNOTATION = "podium.dev/checkpoint"
FREEZE = "freeze"
MEMORY_VARIABLE = "PODIUM_GPU_MEMORY_BYTES"
ON_ITS_WAY = ("", "PodInitializing", "ContainerCreating")


@dataclass(frozen=True, slots=True)
class PodContainers:
    """The containers of a trial's pod, without its gate and other init containers.

    `running`: ids of those that run. `main`: id of the first one, whose log is read and which writes the checkpoints.
    `starting`: one of them is still to start, and nothing prevents that.
    """

    names: tuple[str, ...] = ()
    running: frozenset[str] = frozenset()
    main: str = ""
    starting: bool = False


@dataclass(frozen=True, slots=True)
class PodGate:
    """The gate of a trial's pod. Every pod with a slot has one; of other pods only the log is read.

    `volume`: it has a volume for its files. Otherwise it has slots, and the device plugin mounts them.
    """

    present: bool = True
    running: bool = False
    passed: bool = False
    volume: bool = False


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What the API reports of a trial's pod as a whole.

    `denied`: a kubelet denied its admission; if the kubelet was restarted, its processes may still run. `ip`: its own
    address; empty without one, and for a pod in the network of its node.
    """

    ended: bool = False
    denied: bool = False
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # status and reason, by type
    ip: str = ""


@dataclass(frozen=True, slots=True)
class PodTermination:
    """The end of a pod that is deleted."""

    deadline: float | None = None  # when a deleted pod is killed; None: it is not deleted
    grace: float = 30.0  # seconds from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True)
class PodRequests:
    """What a trial's pod asks for.

    `cpu`: what each container requests while the trial runs; `cpu_now`: what it requests now; in thousandths of a
    CPU.
    """

    gpu_memory: int = 0  # declared bytes of GPU memory
    cpu: Mapping[str, int] = field(default_factory=dict)
    cpu_now: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Settings of its job that a trial's pod carries as annotations.

    `methods`: its job's suspension.methods, in order. `metrics_trouble`: why the metrics settings cannot be read.
    """

    methods: tuple[str, ...] = (FREEZE,)
    checkpoint: str = ""  # folder of the checkpoints in the first container
    metrics: MetricsConfig | None = None
    metrics_trouble: str = ""


@dataclass(frozen=True, slots=True)
class PodMigration:
    """A live migration from or to this pod.

    `to`: the target node, empty without a migration from here. `migrated`: the pod continues from an image of a live
    trial, the `image` of its first container. `gpu_state`: its GPU state from the source node; `gpu_state_trouble`: why
    that cannot be read, as a code and a sentence. Such a pod counts as one that started here.
    """

    to: str = ""
    migrated: bool = False
    image: str = ""
    gpu_state: GpuState | None = None
    gpu_state_trouble: str = ""


@dataclass(frozen=True, slots=True)
class PodWorker:
    """Which of the workers of its trial a pod is; only the agent of rank 0 writes the trial's status."""

    rank: int = 0
    count: int = 1  # workers of the trial


@dataclass(frozen=True, slots=True)
class TrialPod:
    """One trial's pod; `job`: its label, which anyone may set; only for the log."""

    key: TrialKey
    name: str
    uid: str
    attempt: int = 0
    job: str = ""
    containers: PodContainers = PodContainers()
    gate: PodGate = PodGate()
    status: PodStatus = PodStatus()
    termination: PodTermination = PodTermination()
    requests: PodRequests = PodRequests()
    settings: PodSettings = PodSettings()
    migration: PodMigration = PodMigration()
    worker: PodWorker = PodWorker()


def parse(payload: Mapping[str, Any]) -> TrialPod:
    """Parse a trial's pod; raises ValueError if its label names a trial that does not control it."""
    pod = PodPayload.model_validate(payload)
    meta = pod.metadata
    trial = meta.labels.get(TRIAL_LABEL, "")
    owner = controlling_trial(meta.owner_references, trial, workload_uid(meta.labels))
    if owner is None:
        raise ValueError(f"label {TRIAL_LABEL}={trial}, but neither this HyperParamTrial nor a Job controls the pod")
    return TrialPod(
        key=TrialKey(meta.namespace, trial, owner.uid),
        name=meta.name,
        uid=meta.uid,
        attempt=_number(meta.labels.get(ATTEMPT_LABEL, "")),
        job=meta.labels.get(JOB_LABEL, ""),
        containers=_containers(pod),
        gate=_gate(pod),
        status=_status(pod),
        termination=PodTermination(
            deadline=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None, grace=_grace(pod)
        ),
        requests=_requests(pod),
        settings=_settings(meta.annotations),
        migration=_migration(pod),
        worker=PodWorker(rank_of(meta.labels, meta.annotations), max(1, _number(meta.labels.get(WORKERS_LABEL, "")))),
    )


def _containers(pod: PodPayload) -> PodContainers:
    statuses = pod.status.container_statuses
    return PodContainers(
        names=tuple(container.name for container in pod.spec.containers),
        running=frozenset(_id(one.container_id) for one in statuses if one.state.running is not None),
        main=_main(pod),
        starting=_starting(pod),
    )


def _gate(pod: PodPayload) -> PodGate:
    gate = next(
        (one.state for one in pod.status.init_container_statuses if one.name == GATE_CONTAINER), ContainerState()
    )
    return PodGate(
        present=any(container.name == GATE_CONTAINER for container in pod.spec.init_containers),
        running=gate.running is not None,
        passed=gate.terminated is not None and gate.terminated.exit_code == 0,
        volume=any(one.name == GATE_VOLUME and one.empty_dir is not None for one in pod.spec.volumes),
    )


def _status(pod: PodPayload) -> PodStatus:
    status, main = pod.status, pod.status.container_statuses
    return PodStatus(
        denied=status.phase == "Failed" and is_denial(status.reason),
        ended=status.phase in ("Succeeded", "Failed")
        or (bool(main) and all(one.state.terminated is not None and one.container_id for one in main)),
        conditions={one.type: (one.status, one.reason) for one in status.conditions},
        ip="" if pod.spec.host_network else status.pod_ip,
    )


def _requests(pod: PodPayload) -> PodRequests:
    cpu = from_annotation(pod.metadata.annotations.get(CPU_ANNOTATION, "{}"))
    cpu_now = {one.name: _thousandths(one) for one in pod.spec.containers if one.name in cpu}
    return PodRequests(_memory(pod.spec), cpu, cpu_now)


def _settings(annotations: Mapping[str, str]) -> PodSettings:
    metrics, trouble = _metrics(annotations.get(METRICS_ANNOTATION))
    return PodSettings(
        methods=tuple(annotations.get(METHODS_ANNOTATION, FREEZE).split(",")),
        checkpoint=annotations.get(CHECKPOINT_ANNOTATION, ""),
        metrics=metrics,
        metrics_trouble=trouble,
    )


def _migration(pod: PodPayload) -> PodMigration:
    annotations = pod.metadata.annotations
    gpu_state, trouble = _gpu_state(annotations.get(GPU_STATE_ANNOTATION))
    return PodMigration(
        to=annotations.get(MIGRATE_ANNOTATION, ""),
        migrated=MIGRATED_ANNOTATION in annotations,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        gpu_state=gpu_state,
        gpu_state_trouble=trouble,
    )


def _starting(pod: PodPayload) -> bool:
    """Return whether a container is still to start.

    One that waits with an error (ImagePullBackOff) may never do so.
    """
    states = {one.name: one.state for one in pod.status.container_statuses}
    for container in pod.spec.containers:
        state = states.get(container.name, ContainerState())
        reason = state.waiting.reason if state.waiting is not None else ""
        if state.running is None and state.terminated is None and reason in ON_ITS_WAY:
            return True
    return False


def _grace(pod: PodPayload) -> float:
    given = pod.metadata.deletion_grace_period_seconds
    return pod.spec.termination_grace_period_seconds if given is None else given


def _main(pod: PodPayload) -> str:
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    return next((_id(one.container_id) for one in pod.status.container_statuses if one.name == first), "")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _id(text: str) -> str:
    """Return the id alone of `containerd://<id>`."""
    return text.rpartition("/")[2]


def _thousandths(container: ContainerSpec) -> int:
    return to_thousandths(container.resources.requests.get("cpu", "0"))


def _memory(spec: PodSpec) -> int:
    for container in spec.containers:
        for variable in container.env:
            if variable.name == MEMORY_VARIABLE and variable.value.isdigit():
                return int(variable.value)
    return 0


def _metrics(text: str | None) -> tuple[MetricsConfig | None, str]:
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
