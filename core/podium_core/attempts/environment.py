"""Environment of a trial's containers. Pure; used by the operator's `pod_manifest` and by local mode.

Variables that the template sets win; validation reserves the names that start with PODIUM_.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from podium_core.attempts.substitution import text
from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.search.space import env_name
from podium_core.schema.search.spec import ParameterType
from podium_core.schema.template.gpu_resources import is_accelerator
from podium_core.schema.trial import HyperParamTrial

METRICS_SOCKET = "/podium/metrics.sock"
METRICS_PORT = "PODIUM_METRICS_PORT"
PYTHON_HELPER = "/podium/python"  # mounted by the agent's device plugin, so only where the pod has a slot
VISIBLE_GPUS = "NVIDIA_VISIBLE_DEVICES"
NO_GPUS = "void"  # NVIDIA's container runtime then adds neither GPUs nor the driver to the container


def environment(
    job: HyperParamJob, trial: HyperParamTrial, attempt: int, *, grace: int, resume: str | None, memory: int | None
) -> Mapping[str, str]:
    """Return the variables of every main container.

    `grace`: seconds from SIGTERM to SIGKILL; `resume`: path of the checkpoint; `memory`: bytes that the trial may use
    on each of its GPUs.
    """
    spec = job.spec
    given = {
        "PODIUM_JOB": job.metadata.name,
        "PODIUM_TRIAL": trial.metadata.name,
        "PODIUM_ATTEMPT": str(attempt),
        "PODIUM_PARAMS": json.dumps(typed(spec, trial.spec.parameters)),
        "PODIUM_METRIC": spec.objective.metric,
        "PODIUM_STEP_KEY": spec.metrics.step_key,
        # without it a script that does not flush prints nothing for minutes, and its curve stays empty
        "PYTHONUNBUFFERED": "1",
    }
    if spec.metrics.source == "push":
        given["PODIUM_METRICS_SOCKET"] = METRICS_SOCKET
    if spec.metrics.source == "prometheus":
        given[METRICS_PORT] = str(spec.metrics.port)
    given |= {env_name(name): text(value) for name, value in trial.spec.parameters.items()}
    if spec.gpus.per_trial:
        given["PODIUM_PYTHON"] = PYTHON_HELPER
    if memory is not None:
        given["PODIUM_GPU_MEMORY_BYTES"] = str(memory)
    if spec.checkpoint is not None:
        given["PODIUM_CHECKPOINT"] = spec.checkpoint.path
        given["PODIUM_CHECKPOINT_KEEP"] = str(spec.checkpoint.keep)
        given["PODIUM_GRACE_SECONDS"] = str(grace)
    if resume is not None:
        given["PODIUM_RESUME"] = resume
    return given


def hide_gpus(containers: Iterable[dict[str, Any]]) -> None:
    """Let the containers that request no GPU see none: images with CUDA ask for all GPUs of their node.

    A container that requests GPUs, of Podium or of another plugin, keeps the variable that the device plugin sets: the
    kubelet prefers the manifest's.
    """
    for container in containers:
        resources = container.get("resources") or {}
        if any(is_accelerator(name) for part in ("requests", "limits") for name in resources.get(part) or {}):
            continue
        others = [variable for variable in container.get("env") or [] if variable["name"] != VISIBLE_GPUS]
        container["env"] = [*others, {"name": VISIBLE_GPUS, "value": NO_GPUS}]


def typed(spec: JobSpec, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the parameters with the types of the search space: the API server stores the float 1.0 as 1."""
    kinds = {parameter.name: parameter.kind for parameter in spec.parameters}
    return {name: _typed(kinds.get(name), value) for name, value in parameters.items()}


def _typed(kind: ParameterType | None, value: Scalar) -> Scalar:
    if isinstance(value, bool | str):
        return value
    if kind is ParameterType.FLOAT:
        return float(value)
    return int(value) if kind is ParameterType.INT else value
