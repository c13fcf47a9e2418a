"""The rules of a trial's pod template, as a table. See `schema.rules`."""

from __future__ import annotations

from typing import Any

from podium_core.schema.base import OpenModel
from podium_core.schema.rules import Rule
from podium_core.schema.template.pod_template import GATE_CONTAINER, Container, PodSpec

_POD = "spec.template.spec"
GPU_PREFIX, CUDA_DEVICES = "NVIDIA_", "CUDA_VISIBLE_DEVICES"
MATH_VARIABLE = "NVIDIA_TF32_OVERRIDE"  # read by cuBLAS, not by the container runtime


def _probes(path: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            "ProbeNotAllowed",
            path,
            f"!has(self.{field})",
            f"remove {field} of container {{name}}: it would kill a trial that is suspended",
            lambda container, field=field: _wire(container, field) is None,  # type: ignore[misc]
            at=field,
        )
        for field in ("livenessProbe", "startupProbe")
    )


def _wire(container: Container, field: str) -> Any:
    return {"livenessProbe": container.liveness_probe, "startupProbe": container.startup_probe}[field]


def _gate(path: str) -> Rule:
    return Rule(
        "NameReserved",
        path,
        f"self.name != '{GATE_CONTAINER}'",
        "the name {name} is reserved for Podium: choose another",
        lambda container: container.name != GATE_CONTAINER,
        at="name",
    )


def _other(part: OpenModel, field: str) -> Any:
    return (part.model_extra or {}).get(field)


def is_gpu_variable(name: str) -> bool:
    """Return whether an environment variable chooses GPUs, or what the runtime mounts of the driver."""
    return name != MATH_VARIABLE and (name.startswith(GPU_PREFIX) or name == CUDA_DEVICES)


def _gpu_variable(path: str) -> Rule:
    return Rule(
        "GPUVariable",
        f"{path}.env[]",
        f"self.name == '{MATH_VARIABLE}' || !(self.name.startsWith('{GPU_PREFIX}') || self.name == '{CUDA_DEVICES}')",
        "remove the variable {name}: Podium chooses the trial's GPUs, and this variable would show others to it; "
        "gpus.perTrial and gpus.products choose GPUs",
        lambda variable: not is_gpu_variable(variable.name),
        at="name",
    )


def _pid(pod: PodSpec) -> bool:
    return not pod.host_pid


TEMPLATE_RULES: tuple[Rule, ...] = (
    Rule(
        "RestartPolicy",
        _POD,
        "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        "restartPolicy is {restartPolicy}, but a restart would lose steps unnoticed: write Never or remove it; "
        "trials.retries sets how often a failed trial is retried",
        lambda pod: pod.restart_policy in (None, "Never"),
        at="restartPolicy",
    ),
    Rule(
        "ActiveDeadline",
        _POD,
        "!has(self.activeDeadlineSeconds)",
        "remove activeDeadlineSeconds: it also counts while a trial is suspended; trials.maxSteps, "
        "budget.gpuSeconds and budget.deadline end trials",
        lambda pod: pod.active_deadline_seconds is None,
        at="activeDeadlineSeconds",
    ),
    Rule(
        "SchedulerName",
        _POD,
        "!has(self.schedulerName) || self.schedulerName == 'podium'",
        "remove schedulerName {schedulerName}: Podium's scheduler places trials",
        lambda pod: pod.scheduler_name in (None, "podium"),
        at="schedulerName",
    ),
    Rule(
        "HostPID",
        _POD,
        "!has(self.hostPID) || !self.hostPID",
        "remove hostPID: a trial may only see its own processes",
        _pid,
        at="hostPID",
    ),
    Rule(
        "RestartPolicy",
        f"{_POD}.containers[]",
        "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        "restartPolicy of container {name} is {restartPolicy}, but a restart would lose steps unnoticed: "
        "write Never or remove it",
        lambda container: container.restart_policy in (None, "Never"),
        at="restartPolicy",
    ),
    Rule(
        "RestartPolicy",
        f"{_POD}.containers[]",
        "!has(dyn(self).restartPolicyRules)",
        "remove restartPolicyRules of container {name}: a restart would lose steps unnoticed",
        lambda container: _other(container, "restartPolicyRules") is None,
        at="restartPolicyRules",
    ),
    Rule(
        "NodeName",
        _POD,
        "!has(dyn(self).nodeName)",
        "remove nodeName: Podium's scheduler places trials; use nodeSelector to restrict the nodes",
        lambda pod: _other(pod, "nodeName") is None,
        at="nodeName",
    ),
    Rule(
        "EphemeralContainers",
        _POD,
        "!has(dyn(self).ephemeralContainers)",
        "remove ephemeralContainers: Kubernetes refuses a pod that is created with them; use kubectl debug",
        lambda pod: _other(pod, "ephemeralContainers") is None,
        at="ephemeralContainers",
    ),
    _gpu_variable(f"{_POD}.containers[]"),
    _gpu_variable(f"{_POD}.initContainers[]"),
    *_probes(f"{_POD}.containers[]"),
    *_probes(f"{_POD}.initContainers[]"),
    _gate(f"{_POD}.containers[]"),
    _gate(f"{_POD}.initContainers[]"),
)
