"""Warnings about a job's pod template: what may show GPUs that are not the trial's, or make trials equal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.acceptance.finding import Finding, warning
from podium_core.schema.job import JobSpec
from podium_core.schema.template.gpu_resources import accelerators, env_sources
from podium_core.schema.template.leftovers import CURE, MAX_TEXT, is_referenced, leftovers, strings
from podium_core.schema.template.pod_template import Container, PodTemplate

_SET_IN_COMMAND = re.compile(r"\b(CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES)\b\s*[=\"']")
_DEVICES = ("/dev", "/proc", "/sys", "/var/lib/kubelet/device-plugins")


def template_warnings(spec: JobSpec) -> Iterator[Finding]:
    """Yield the warnings about the template of a job without errors."""
    template = PodTemplate.model_validate(spec.template)
    yield from _parameters(spec)
    for one in leftovers(spec):
        if not one.certain:
            message = f"{one.text} looks like a placeholder of {one.tool}, which Podium does not replace: {CURE}"
            yield warning("ForeignPlaceholder", one.field, message)
    for field, containers in (
        ("containers", template.spec.containers),
        ("initContainers", template.spec.init_containers or []),
    ):
        for number, container in enumerate(containers):
            yield from _container(spec, container, f"spec.template.spec.{field}[{number}]")
    yield from _pod(template.spec.model_extra or {}, spec, template.spec.termination_grace_period_seconds)


def _parameters(spec: JobSpec) -> Iterator[Finding]:
    """Warn of parameters whose values probably do not reach the script.

    A template that names no parameter may be right: a script that calls `podium.trial.params` reads PODIUM_PARAMS. It
    is wrong if it gives a parameter a fixed value. If it names some parameters, it should name all of them.
    """
    whole = "\n".join(text for _, text in strings(spec.template, ""))
    unused = [parameter.name for parameter in spec.parameters if not is_referenced(parameter.name, whole)]
    if len(unused) == len(spec.parameters):
        unused = [name for name in unused if _has_fixed_value(name, spec.template)]
        what = "the command gives a fixed value to {names}, so trials may be equal"
        cure = "replace it by $(podium.args) or $(podium.params.NAME)"
    else:
        what = (
            "the template names other parameters, but not {names}; this works only if the script itself reads "
            "PODIUM_PARAMS or PODIUM_PARAM_NAME"
        )
        cure = "add $(podium.args) or $(podium.params.NAME) to command, args or env"
    if unused:
        names = ", ".join(unused[:8]) + (", ..." if len(unused) > 8 else "")
        yield warning("ParameterNotUsed", "spec.template.spec.containers", f"{what.format(names=names)}: {cure}")


def _has_fixed_value(parameter: str, template: Mapping[str, Any]) -> bool:
    """Return whether a container's command has a flag of this name, such as `--lr` or `lr=`."""
    names = "|".join(re.escape(name) for name in sorted({parameter, parameter.replace("_", "-")}))
    flag = re.compile(rf"(?:^|[\s'\"])(?:--?(?:{names})(?:[=\s]|\Z)|(?:{names})=)")
    containers = PodTemplate.model_validate(template).spec.containers
    texts = [text for one in containers for part in (one.command, one.args) for text in part or []]
    return any(flag.search(text[:MAX_TEXT]) for text in texts)


def _container(spec: JobSpec, container: Container, where: str) -> Iterator[Finding]:
    for part, name in accelerators(container):
        message = (
            f"container {container.name} asks for {name}, which Podium neither shares nor counts: "
            f"remove it and set gpus.perTrial, or keep it for trials without GPUs of Podium"
        )
        yield warning("GPUResource", f"{where}.resources.{part}", message, cluster_only=True)
    if env_sources(container):
        message = (
            "the variables of envFrom are not in the manifest: if one is CUDA_VISIBLE_DEVICES or starts with NVIDIA_, "
            "the trial sees GPUs of others; remove it there"
        )
        yield warning("VariablesUnknown", f"{where}.envFrom", message, cluster_only=True)
    for field, texts in (("command", container.command), ("args", container.args)):
        found = next((match[1] for text in texts or [] if (match := _SET_IN_COMMAND.search(text[:MAX_TEXT]))), None)
        if found is not None and spec.gpus.per_trial > 0:
            message = (
                f"{found} is set in the command: a trial sees only its own GPUs, numbered from 0, and another value "
                "hides them; remove it"
            )
            yield warning("GPUVariable", f"{where}.{field}", message)
    extra = container.model_extra or {}
    context, resources = extra.get("securityContext"), extra.get("resources")
    if isinstance(context, Mapping) and context.get("privileged") is True:
        message = f"container {container.name} is privileged, so it sees all GPUs of its node: remove privileged"
        yield warning("GPUsNotIsolated", f"{where}.securityContext.privileged", message, cluster_only=True)
    if isinstance(resources, Mapping) and resources.get("claims"):
        message = "a device of resource claims stays with the trial while it is suspended: use gpus.perTrial for GPUs"
        yield warning("DeviceClaim", f"{where}.resources.claims", message, cluster_only=True)


def _pod(extra: Mapping[str, Any], spec: JobSpec, grace: int | None) -> Iterator[Finding]:
    volumes = extra.get("volumes")
    for number, volume in enumerate(volumes if isinstance(volumes, list) else []):
        host = volume.get("hostPath") if isinstance(volume, Mapping) else None
        path = str(host.get("path", "")) if isinstance(host, Mapping) else ""
        inside = any(path.rstrip("/") == one or path.startswith(f"{one}/") for one in _DEVICES)
        if (inside or path == "/") and path != "/dev/shm" and not path.startswith("/dev/infiniband"):
            message = f"hostPath {path} shows devices of the node to the trial, other trials' GPUs too: remove it"
            field = f"spec.template.spec.volumes[{number}].hostPath"
            yield warning("GPUsNotIsolated", field, message, cluster_only=True)
    wanted = spec.suspension.grace_period_seconds
    if grace is not None and grace < wanted and "app-checkpoint" in spec.suspension.methods:
        message = (
            f"{grace} s is less than suspension.gracePeriodSeconds ({wanted} s), so a checkpoint may be cut off: "
            "remove it, or raise it"
        )
        yield warning("GracePeriodTooShort", "spec.template.spec.terminationGracePeriodSeconds", message)
