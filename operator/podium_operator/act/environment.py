"""Environment of a trial's containers. Pure; used by `pod_manifest`.

Variables that the template sets win; validation reserves the names that start with PODIUM_.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from podium_core.schema.job import HyperParamJob, JobSpec, ParameterType, Scalar
from podium_core.schema.search_space import env_name
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.substitution import text

METRICS_SOCKET = "/podium/metrics.sock"
PYTHON_HELPER = "/podium/python"  # mounted by the agent's device plugin, so only where the pod has a slot


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
