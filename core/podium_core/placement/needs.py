"""GPU needs of a pod, read from its requests and annotations.

The extender (for the pod to place and for pods on nodes) and `podium explain pod` use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from podium_core.placement.requests import requests_of
from podium_core.placement.views import PodNeed
from podium_core.schema.pod import Container, Pod

GPU_RESOURCE = "podium.dev/gpu"
EXCLUSIVE_RESOURCE = "podium.dev/gpu-exclusive"
MEMORY_ANNOTATION = "podium.dev/gpu-memory"
TRIAL_LABEL = "podium.dev/trial"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
METHODS_ANNOTATION = "podium.dev/methods"
MEMORY_VARIABLE = "PODIUM_GPU_MEMORY_BYTES"
MAX_GPUS = 10**6
MAX_DIGITS = 18  # of a number of bytes


class InvalidPodError(ValueError):
    """The pod holds a value that cannot be read, so it cannot be placed; the message tells its user why."""

    code = "InvalidPod"


def need_of(pod: Pod) -> PodNeed:
    """Return the pod's needs; GPUs as the scheduler counts them. Raises InvalidPodError."""
    shared, whole = _gpus(pod)
    if shared and whole:
        raise InvalidPodError(
            f"it requests {GPU_RESOURCE}={shared} and {EXCLUSIVE_RESOURCE}={whole}: request only one of them"
        )
    products = pod.metadata.annotations.get(PRODUCTS_ANNOTATION, "")
    memory = _memory(pod)
    return PodNeed(
        gpus=shared or whole,
        memory=memory,
        products=tuple(name.strip() for name in products.split(",") if name.strip()),
        memory_stays=not moves_memory(pod.metadata.annotations.get(METHODS_ANNOTATION, "").split(",")),
        exclusive=whole > 0,
        packed=shared > 0 and memory is not None and not pod.metadata.labels.get(TRIAL_LABEL),
    )


def moves_memory(methods: Collection[str]) -> bool:
    """Return whether a trial that these methods suspend always leaves its GPU with its memory.

    With `freeze` among the methods, it may be frozen on the GPU.
    """
    return "cuda-checkpoint" in methods and "freeze" not in methods


def has_placement_constraints(pod: Pod) -> bool:
    """Return whether more than the pod's requests decides where the pod fits.

    Other pods, a port of the node, or a volume.

    Such a pod cannot be exchanged for another one with equal requests.
    """
    claims = any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in pod.spec.volumes)
    return depends_on_other_pods(pod) or claims


def depends_on_other_pods(pod: Pod) -> bool:
    """Return whether other pods decide where it fits, by its affinities or by a port of the node."""
    spec = pod.spec
    ports = any(port.host_port for container in spec.containers for port in container.ports)
    others = spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity or spec.topology_spread_constraints
    return bool(others) or ports


def has_preferences(pod: Pod) -> bool:
    """Return whether the pod prefers some of its possible nodes.

    Device claims may prefer: they can name alternatives in an order.
    """
    spec = pod.spec
    affinities = (spec.affinity.node_affinity, spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    preferred = any(one.get("preferredDuringSchedulingIgnoredDuringExecution") for one in affinities if one)
    return (
        preferred
        or bool(spec.resource_claims)
        or any(one.get("whenUnsatisfiable") == "ScheduleAnyway" for one in spec.topology_spread_constraints)
    )


def _gpus(pod: Pod) -> tuple[int, int]:
    """Return the numbers of slots and of whole GPUs."""
    try:
        requests = requests_of(pod.spec)
    except ValueError as error:
        raise InvalidPodError(str(error)) from None
    return _whole(requests, GPU_RESOURCE), _whole(requests, EXCLUSIVE_RESOURCE)


def _whole(requests: Mapping[str, int], resource: str) -> int:
    count, rest = divmod(requests.get(resource, 0), 1000)
    if count > MAX_GPUS:
        raise InvalidPodError(f"it requests more than {MAX_GPUS} of {resource}")
    if rest:
        raise InvalidPodError(f"it requests {resource}={count}.{rest:03}: an integer is required")
    return count


def _memory(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(MEMORY_ANNOTATION) or _variable(pod.spec.containers)
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise InvalidPodError(
            f"annotation {MEMORY_ANNOTATION}={text!r} (or variable {MEMORY_VARIABLE}) is not a number of bytes below 1e"
            f"{MAX_DIGITS}"
        )
    return int(text)


def _variable(containers: Iterable[Container]) -> str:
    for container in containers:
        for variable in container.env:
            if variable.name == MEMORY_VARIABLE and variable.value:
                return variable.value
    return ""
