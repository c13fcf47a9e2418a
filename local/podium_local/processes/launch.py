"""Command, environment and folder of one attempt at a trial. Pure.

Parameters, variables and placeholders are the same as on a cluster (`podium_core.attempts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podium_core.attempts.environment import environment
from podium_core.attempts.substitution import Substitution, expanded
from podium_core.schema.job import HyperParamJob
from podium_core.schema.quantity import to_bytes
from podium_core.schema.trial import HyperParamTrial
from podium_local.devices import Device
from podium_local.processes.process import Launch
from podium_local.processes.process_tree import ATTEMPT_VARIABLE, RUN_VARIABLE
from podium_local.template import mapped

CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"  # read by OpenMP, OpenBLAS, MKL and PyTorch


@dataclass(frozen=True, slots=True)
class Place:
    """What the machine gives to an attempt.

    `devices`: its devices. `checkpoints`: its checkpoint folder, None without `checkpoint`. `helper`: folder with
    `podium.trial`. `resume`: path of the checkpoint that it continues from, inside the folder. `paths`: what replaces
    other paths of the command. `port`: for its page of metrics, if it has one of its own.
    """

    devices: Sequence[Device]
    checkpoints: Path | None
    helper: Path
    environ: Mapping[str, str]
    resume: str | None = None
    hides_gpus: bool = False
    paths: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


def grace_seconds(job: HyperParamJob) -> int:
    """Return the seconds from the order to end until SIGKILL."""
    given = job.spec.template["spec"].get("terminationGracePeriodSeconds")
    return job.spec.suspension.grace_period_seconds if given is None else int(given)


def launch(job: HyperParamJob, trial: HyperParamTrial, attempt: int, place: Place) -> Launch:
    """Return what to execute for this attempt."""
    spec = job.spec
    main: Mapping[str, Any] = spec.template["spec"]["containers"][0]
    folder = None if place.checkpoints is None else str(place.checkpoints)
    if folder is not None and spec.checkpoint is not None:
        spec = spec.model_copy(update={"checkpoint": spec.checkpoint.model_copy(update={"path": folder})})
    if place.port is not None:
        spec = spec.model_copy(update={"metrics": spec.metrics.model_copy(update={"port": place.port})})
    resume = None if folder is None or place.resume is None else str(Path(folder) / place.resume)
    conditional = {parameter.name for parameter in spec.parameters if parameter.when is not None}
    words = Substitution(trial.spec.parameters, folder, conditional, spec.metrics.port)
    command = words.command([*main["command"], *(main.get("args") or [])])
    if resume is not None and spec.checkpoint is not None:
        command += Substitution(trial.spec.parameters, resume, conditional).command(spec.checkpoint.resume_args)
    memory = None if spec.gpus.memory is None else to_bytes(spec.gpus.memory)
    variables = environment(
        job.model_copy(update={"spec": spec}), trial, attempt, grace=grace_seconds(job), resume=resume, memory=memory
    )
    given = words.environment([one for one in main.get("env") or [] if not one.get("inherit")])
    own = {str(one["name"]): str(one.get("value", "")) for one in given}
    paths = {} if folder is None or job.spec.checkpoint is None else {job.spec.checkpoint.path: folder}
    paths |= place.paths
    named: dict[str, str] = {}
    for name, value in own.items():  # as on a cluster, a variable may name those before it
        named[name] = expanded(mapped(value, paths), named)
    given_variables = {
        **variables,
        "PODIUM_PYTHON": str(place.helper),
        RUN_VARIABLE: str(place.helper.parent),
        **named,
        **_gpus(place),
        ATTEMPT_VARIABLE: f"{place.helper.parent}/{trial.metadata.name}-{attempt}",
    }
    return Launch(
        [expanded(mapped(word, paths), given_variables) for word in command],
        {**_inherited(place.environ), **_threads(place), **given_variables},
        str(main["workingDir"]),
    )


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process, without those that Podium defines."""
    return {name: value for name, value in environ.items() if not name.startswith("PODIUM_")}


def _threads(place: Place) -> dict[str, str]:
    """Return the number of threads, so that trials beside each other do not use more cores than there are."""
    if THREADS in place.environ or not place.devices:
        return {}
    return {THREADS: str(sum(device.cpus for device in place.devices))}


def _gpus(place: Place) -> dict[str, str]:
    gpus = [device.uuid for device in place.devices if device.is_gpu]
    if gpus:
        return {CUDA_DEVICES: ",".join(gpus)}
    return {CUDA_DEVICES: ""} if place.hides_gpus else {}
