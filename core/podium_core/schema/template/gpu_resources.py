"""Resources and variables by which a template would take GPUs past Podium. `validation` calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium_core.schema.base import GROUP
from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal
from podium_core.schema.template.pod_template import Container, PodSpec
from podium_core.schema.template.rules import CUDA_DEVICES, GPU_PREFIX

# Extended resources of device plugins, by the part after the domain: nvidia.com/gpu, nvidia.com/mig-1g.5gb,
# amd.com/gpu, gpu.intel.com/i915, habana.ai/gaudi, tencent.com/vcuda-core, google.com/tpu, aws.amazon.com/neuroncore
_ACCELERATOR = re.compile(
    r"(?i)([a-z0-9.-]*/[a-z0-9._-]*(gpu|gcu|mig-|cuda|tpu|npu|neuron|gaudi|ascend|mlu|dcu)[a-z0-9._-]*|gpu\.intel\.com/.+)"
)


def is_podium_resource(name: str) -> bool:
    return name.partition("/")[0] == GROUP


def is_accelerator(name: str) -> bool:
    """Return whether an extended resource is a GPU or another accelerator, of Podium or of another plugin."""
    return is_podium_resource(name) or _ACCELERATOR.fullmatch(name) is not None


def accelerators(container: Container) -> Iterator[tuple[str, str]]:
    """Yield the accelerators that a container asks for: requests or limits, and the resource."""
    yield from _accelerators((container.model_extra or {}).get("resources"))


def _accelerators(resources: Any) -> Iterator[tuple[str, str]]:
    if isinstance(resources, Mapping):
        for part in ("requests", "limits"):
            asked = resources.get(part)
            if isinstance(asked, Mapping):
                yield from ((part, name) for name in asked if isinstance(name, str) and is_accelerator(name))


def resource_refusals(spec: JobSpec, container: Container, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each accelerator of a container that Podium would not know of.

    Trials without GPUs of Podium may use those of another plugin: a warning says what that means.
    """
    for part, name in accelerators(container):
        if is_podium_resource(name):
            message = f"remove {name} of container {container.name}: gpus.perTrial sets the number of GPUs of a trial"
            yield Refusal("Reserved", f"{where}.resources.{part}", message)
        elif spec.gpus.per_trial > 0:
            message = (
                f"remove {name} of container {container.name}: the trial would hold this device beside the GPU that "
                "Podium gives it, also while it is suspended; gpus.perTrial sets the number of GPUs"
            )
            yield Refusal("GPUResource", f"{where}.resources.{part}", message)


def pod_resource_refusals(pod: PodSpec, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each accelerator that the whole pod asks for, as Kubernetes does, too."""
    for part, name in _accelerators((pod.model_extra or {}).get("resources")):
        message = (
            f"remove {name} of the whole pod: Kubernetes knows only cpu, memory and hugepages there; gpus.perTrial "
            "sets the number of GPUs of a trial"
        )
        yield Refusal("GPUResource", f"{where}.resources.{part}", message)


def prefix_refusals(container: Container, where: str) -> Iterator[Refusal]:
    """Yield a refusal for each envFrom whose prefix makes variables that choose GPUs."""
    for number, source in enumerate(env_sources(container)):
        prefix = source.get("prefix")
        if isinstance(prefix, str) and prefix and (prefix.startswith(GPU_PREFIX) or prefix == CUDA_DEVICES):
            message = f"remove prefix {prefix}: Podium chooses the trial's GPUs, and such variables would show others"
            yield Refusal("GPUVariable", f"{where}.envFrom[{number}].prefix", message)


def env_sources(container: Container) -> list[Mapping[str, Any]]:
    """Return the entries of envFrom; their variables are not in the manifest."""
    given = (container.model_extra or {}).get("envFrom")
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
