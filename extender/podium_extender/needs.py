"""What a pod needs of a node's GPUs, read from its requests and annotations. Used by `app` (the pod in question) and
`telemetry` (the pods that sit on nodes already).
"""

from __future__ import annotations

from collections.abc import Iterable

from podium.placement.views import PodNeed
from podium_extender.wire import Container, Pod

GPU_RESOURCE = "podium.dev/gpu"
MEMORY_ANNOTATION = "podium.dev/gpu-memory"
PRODUCTS_ANNOTATION = "podium.dev/gpu-products"
MEMORY_VARIABLE = "PODIUM_GPU_MEMORY_BYTES"
_SUFFIXES = {"k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}


class BadPodError(ValueError):
    """The pod says something that cannot be read: it can be placed nowhere, and its user is told why."""

    code = "BadPod"


def need_of(pod: Pod) -> PodNeed:
    """GPUs as the scheduler counts them: the larger of the sum of the containers and any one init container."""
    together = sum(_gpus(container) for container in pod.spec.containers)
    alone = max((_gpus(container) for container in pod.spec.init_containers), default=0)
    products = pod.metadata.annotations.get(PRODUCTS_ANNOTATION, "")
    return PodNeed(
        gpus=max(together, alone),
        memory=_memory(pod),
        products=tuple(name.strip() for name in products.split(",") if name.strip()),
    )


def _gpus(container: Container) -> int:
    asked = container.resources.requests.get(GPU_RESOURCE, 0)
    text = str(asked)
    number = text.rstrip("kKMi")
    try:
        count = int(number) * _SUFFIXES.get(text[len(number) :], 1)
    except ValueError:
        raise BadPodError(
            f"container {container.name!r} requests {GPU_RESOURCE}={text!r}: a whole number is needed"
        ) from None
    if count < 0:
        raise BadPodError(f"container {container.name!r} requests {GPU_RESOURCE}={text!r}: it cannot be negative")
    return count


def _memory(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(MEMORY_ANNOTATION) or _variable(pod.spec.containers)
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BadPodError(
            f"annotation {MEMORY_ANNOTATION}={text!r} (or variable {MEMORY_VARIABLE}) is no number of bytes"
        )
    return int(text)


def _variable(containers: Iterable[Container]) -> str:
    for container in containers:
        for variable in container.env:
            if variable.name == MEMORY_VARIABLE and variable.value:
                return variable.value
    return ""
