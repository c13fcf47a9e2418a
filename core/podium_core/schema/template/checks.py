"""Checks of a pod template: names that Podium reserves, and placeholders that Podium fills in.

`validation` calls it. The rules that CEL can express are in `job_rules.TEMPLATE_RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from podium_core.schema.base import GROUP
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.search.space import ENV_PREFIX, env_name
from podium_core.schema.template.gpu_resources import pod_resource_refusals, prefix_refusals, resource_refusals
from podium_core.schema.template.leftovers import strings
from podium_core.schema.template.pod_template import GATE_VOLUME, Container, PodTemplate, TemplateMeta

RESERVED_ENV = frozenset(
    f"PODIUM_{name}"
    for name in (
        *("JOB", "TRIAL", "ATTEMPT", "PARAMS", "STEP_KEY", "METRIC", "GPU_MEMORY_BYTES", "GRACE_SECONDS", "PYTHON"),
        *("CHECKPOINT", "CHECKPOINT_KEEP", "RESUME", "METRICS_PORT"),
    )
)
CHECKPOINT_VOLUME = "podium-checkpoint"
PODIUM_MOUNT = PurePosixPath("/podium")
_PLACEHOLDER = re.compile(r"\$\(podium\.([^)]*)\)")
# Where the operator fills placeholders in; anywhere else the trial would see them unchanged.
_FILLED = re.compile(
    r"spec\.(template\.spec\.containers\[\d+]\.((command|args)\[\d+]|env\[\d+]\.value)|checkpoint\.).*"
)


# Fields that Podium extends. The API server checks them only in the pod, which the operator could not even create.
_POD_SHAPES: Mapping[str, type] = {
    "volumes": list,
    "readinessGates": list,
    "affinity": dict,
    "resources": dict,
}
_CONTAINER_SHAPES: Mapping[str, type] = {"resources": dict, "lifecycle": dict, "envFrom": list}


def _shapes(given: Mapping[str, Any], wanted: Mapping[str, type], where: str) -> Iterator[Refusal]:
    """Yield a refusal for each field that is not a list or an object, as Kubernetes requires."""
    for field, kind in wanted.items():
        value = given.get(field)
        if value is not None and not isinstance(value, kind):
            text = "a list" if kind is list else "an object"
            message = f"{field} must be {text}, not {str(value)[:60]!r}: write it as in a pod's manifest"
            yield Refusal("InvalidValue", f"{where}.{field}", message)


def template_refusals(spec: JobSpec, template: PodTemplate) -> Iterator[Refusal]:
    """Yield a refusal for each reserved name, path or resource that the template uses."""
    yield from reserved_keys(template.metadata, "spec.template.metadata")
    for field, containers in (
        ("containers", template.spec.containers),
        ("initContainers", template.spec.init_containers or []),
    ):
        for number, container in enumerate(containers):
            yield from _container(spec, container, f"spec.template.spec.{field}[{number}]")
    yield from pod_resource_refusals(template.spec, "spec.template.spec")
    yield from _twice(template)
    yield from _shapes(template.spec.model_extra or {}, _POD_SHAPES, "spec.template.spec")
    volumes = (template.spec.model_extra or {}).get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        name = volume.get("name") if isinstance(volume, Mapping) else None
        if name in (CHECKPOINT_VOLUME, GATE_VOLUME):
            message = f"the volume name {name} is reserved for Podium: use another name"
            yield Refusal("NameReserved", "spec.template.spec.volumes", message)
    if spec.checkpoint is not None:
        yield from _mount(spec.checkpoint.path, "spec.checkpoint.path")
        main = template.spec.containers[0]
        if spec.checkpoint.resume_args and not (main.command or main.args):
            message = (
                f"resumeArgs are added to the command of container {main.name}, which has none (they would "
                "replace the arguments of the image): write its command or args, or remove resumeArgs"
            )
            yield Refusal("ResumeArgsWithoutCommand", "spec.checkpoint.resumeArgs", message)


def reserved_keys(metadata: TemplateMeta | None, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each label and annotation that only Podium sets."""
    for kind in ("labels", "annotations"):
        for key in getattr(metadata, kind, None) or {}:
            if key.split("/")[0] == GROUP:
                message = f"{key} is set by Podium: remove it, or use another prefix"
                yield Refusal("Reserved", f"{where}.{kind}", message)


def _container(spec: JobSpec, container: Container, where: str) -> Iterator[Refusal]:
    for variable in container.env or []:
        if variable.name in RESERVED_ENV or variable.name.startswith(ENV_PREFIX):
            message = f"{variable.name} of container {container.name} is set by Podium: use another name"
            yield Refusal("Reserved", f"{where}.env", message)
    for mount in container.volume_mounts or []:
        yield from _mount(mount.mount_path, f"{where}.volumeMounts")
        if (mount.model_extra or {}).get("name") == GATE_VOLUME:
            message = f"the volume {GATE_VOLUME} belongs to the gate of the trial: mount another one"
            yield Refusal("NameReserved", f"{where}.volumeMounts", message)
        if spec.checkpoint is not None and _same(mount.mount_path, spec.checkpoint.path):
            message = f"{mount.mount_path} is checkpoint.path, where Podium mounts the checkpoint: remove one of them"
            yield Refusal("PathReserved", f"{where}.volumeMounts", message)
    yield from _shapes(container.model_extra or {}, _CONTAINER_SHAPES, where)
    yield from resource_refusals(spec, container, where)
    yield from prefix_refusals(container, where)


def _twice(template: PodTemplate) -> Iterator[Refusal]:
    seen: set[str] = set()
    for container in [*(template.spec.init_containers or []), *template.spec.containers]:
        if container.name in seen:
            message = f"there are two containers {container.name}: rename one"
            yield Refusal("DuplicateContainer", "spec.template.spec.containers", message)
        seen.add(container.name)


def _mount(path: str, where: str) -> Iterator[Refusal]:
    if PurePosixPath(path).is_relative_to(PODIUM_MOUNT):
        message = f"{path} is reserved for Podium: use a path outside {PODIUM_MOUNT}"
        yield Refusal("PathReserved", where, message)


def _same(one: str, other: str) -> bool:
    return PurePosixPath(one) == PurePosixPath(other)


def _can_be_left_out(where: str, text: str) -> bool:
    """Return whether a text is a variable or an argument without white space, which the operator leaves out whole."""
    return ".env[" in where or not any(map(str.isspace, text))


def placeholder_refusals(spec: JobSpec) -> Iterator[Refusal]:
    """Yield a refusal for each `$(podium...)` that Podium cannot fill in."""
    names = [parameter.name for parameter in spec.parameters]
    conditional = {parameter.name for parameter in spec.parameters if parameter.when is not None}
    arguments = spec.checkpoint.resume_args if spec.checkpoint is not None else []
    texts = [*strings(spec.template, "spec.template"), *strings(arguments, "spec.checkpoint.resumeArgs")]
    for where, text in texts:
        for match in _PLACEHOLDER.finditer(text):
            if not _FILLED.fullmatch(where):
                message = f"{match.group()} is filled in only in command, args and env of spec.template.spec.containers"
                yield Refusal("PlaceholderNotFilled", where, message)
                continue
            asked, _, parameter = match.group(1).partition(".")
            if parameter in conditional and asked == "params" and not _can_be_left_out(where, text):
                message = (
                    f"{match.group()} names a conditional parameter within a longer text, from which nothing can be "
                    f"left out while it is inactive: use $(podium.args), an argument of its own, or the variable "
                    f"{env_name(parameter)}, which is not set then"
                )
                yield Refusal("ParameterInText", where, message)
            if asked == "params" and parameter in names:
                continue
            if asked == "params":
                message = f"{match.group()} names an unknown parameter; known parameters: {', '.join(names)}"
                yield Refusal("UnknownParameter", where, message)
            elif match.group(1) == "checkpoint" and spec.checkpoint is None:
                yield Refusal("CheckpointRequired", where, f"{match.group()} needs checkpoint.path: add checkpoint")
            elif match.group(1) == "metricsPort" and spec.metrics.source != "prometheus":
                message = f"{match.group()} needs metrics.source prometheus and its port: add them, or write the port"
                yield Refusal("PortRequired", where, message)
            elif match.group(1) not in ("args", "checkpoint", "metricsPort"):
                known = "$(podium.args), $(podium.params.NAME), $(podium.checkpoint), $(podium.metricsPort)"
                yield Refusal("UnknownPlaceholder", where, f"{match.group()} is not known; known placeholders: {known}")
