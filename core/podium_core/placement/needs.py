"""What a pod needs of a node's GPUs, read from its requests and annotations. Used by the extender (the pod in question,
and the pods that sit on nodes already) and by `podium explain pod`.
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
    """The pod says something that cannot be read: it can be placed nowhere, and its user is told why."""

    code = "InvalidPod"


def need_of(pod: Pod) -> PodNeed:
    """GPUs as the scheduler counts them. Raises InvalidPodError."""
    shared, whole = _gpus(pod)
    if shared and whole:
        raise InvalidPodError(
            f"it requests {GPU_RESOURCE}={shared} and {EXCLUSIVE_RESOURCE}={whole}: one of them at a time"
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
    """Whether a trial that is suspended by these is off its GPU with its memory, and never frozen there with it."""
    return "cuda-checkpoint" in methods and "freeze" not in methods


def has_placement_constraints(pod: Pod) -> bool:
    """More than its requests decides where it fits: other pods, a port of the node, a volume. One pod cannot then be
    taken for another that requests as much.
    """
    claims = any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in pod.spec.volumes)
    return depends_on_other_pods(pod) or claims


def depends_on_other_pods(pod: Pod) -> bool:
    """Other pods, by its affinities or by a port of the node, decide where it fits."""
    spec = pod.spec
    ports = any(port.host_port for container in spec.containers for port in container.ports)
    others = spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity or spec.topology_spread_constraints
    return bool(others) or ports


def has_preferences(pod: Pod) -> bool:
    """It says which nodes it would rather have, of those that it may have. Claims of devices may: they can name
    alternatives in an order.
    """
    spec = pod.spec
    affinities = (spec.affinity.node_affinity, spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    wishes = any(one.get("preferredDuringSchedulingIgnoredDuringExecution") for one in affinities if one)
    return (
        wishes
        or bool(spec.resource_claims)
        or any(one.get("whenUnsatisfiable") == "ScheduleAnyway" for one in spec.topology_spread_constraints)
    )


def _gpus(pod: Pod) -> tuple[int, int]:
    """Shares, and whole GPUs."""
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
        raise InvalidPodError(f"it requests {resource}={count}.{rest:03}: a whole number is needed")
    return count


def _memory(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(MEMORY_ANNOTATION) or _variable(pod.spec.containers)
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise InvalidPodError(
            f"annotation {MEMORY_ANNOTATION}={text!r} (or variable {MEMORY_VARIABLE}) is no number of bytes below 1e"
            f"{MAX_DIGITS}"
        )
    return int(text)


def _variable(containers: Iterable[Container]) -> str:
    for container in containers:
        for variable in container.env:
            if variable.name == MEMORY_VARIABLE and variable.value:
                return variable.value
    return ""
