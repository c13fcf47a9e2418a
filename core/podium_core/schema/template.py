"""The part of a trial's pod template that Podium has rules for; every other field of a pod passes untouched.

`crd` makes the typed skeleton of `spec.template` from these models, so that CEL can see the fields that Podium refuses
by name; `validation` reads a template through them for the same reason. `JobSpec.template` itself stays as typed.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from podium_core.schema.base import OpenModel

GATE_CONTAINER = "podium-gate"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def _others(names: str) -> ConfigDict:
    """Fields that pass unread, by name: CEL's `self == oldSelf` overlooks that one unknown field took another's place,
    so a template could be changed under a running search.
    """
    return ConfigDict(json_schema_extra={"x-others": names.split()})  # type: ignore[dict-item]


class EnvVar(OpenModel):
    """An environment variable; see Kubernetes' EnvVar."""

    model_config = _others("value valueFrom")

    name: str = Field(min_length=1, max_length=253, description="of the variable")


class VolumeMount(OpenModel):
    """Where a volume appears; see Kubernetes' VolumeMount."""

    model_config = _others("name mountPropagation readOnly recursiveReadOnly subPath subPathExpr")

    mount_path: str = Field(min_length=1, max_length=1024, description="path in the container")


class Container(OpenModel):
    """A container; see Kubernetes' Container for all its fields."""

    model_config = _others(
        "envFrom imagePullPolicy lifecycle ports readinessProbe resizePolicy resources restartPolicyRules "
        "securityContext stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices workingDir"
    )
    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=NAME_PATTERN,
        description="of the container",
        json_schema_extra={"x-says": "use lower-case letters, digits and -, such as train"},
    )
    image: str = Field(min_length=1, max_length=1024, description="what to run")
    command: list[str] | None = Field(None, max_length=256, description="may hold `$(podium.args)` and the like")
    args: list[str] | None = Field(None, max_length=256, description="may hold `$(podium.args)` and the like")
    env: list[EnvVar] | None = Field(None, max_length=256, description="PODIUM_... variables are set by Podium")
    volume_mounts: list[VolumeMount] | None = Field(None, max_length=64, description="see Kubernetes' Container")
    restart_policy: str | None = Field(None, max_length=32, description="Never, or left out")
    liveness_probe: dict[str, Any] | None = Field(None, description="refused: it would kill a suspended trial")
    startup_probe: dict[str, Any] | None = Field(None, description="refused: it would kill a suspended trial")


class InitContainer(Container):
    """A container that runs before the others, and before the trial waits for its GPU."""

    restart_policy: str | None = Field(None, max_length=32, description="Always makes it a sidecar")


class PodSpec(OpenModel):
    """A pod's spec; see Kubernetes' PodSpec for all its fields."""

    model_config = _others(
        "affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers hostAliases "
        "hostIPC hostNetwork hostUsers hostname hostnameOverride imagePullSecrets nodeName nodeSelector os overhead "
        "preemptionPolicy priority priorityClassName readinessGates resourceClaims resources runtimeClassName "
        "schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain tolerations topologySpreadConstraints volumes"
    )

    containers: list[Container] = Field(
        min_length=1,
        max_length=16,
        description="the first one is the trial: it gets the GPUs and its log is read",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    init_containers: list[InitContainer] | None = Field(
        None,
        max_length=16,
        description="`podium-gate` is added by Podium",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    restart_policy: str | None = Field(None, max_length=32, description="Never, or left out")
    active_deadline_seconds: int | None = Field(None, description="refused: it would count suspended time")
    termination_grace_period_seconds: int | None = Field(
        None, ge=0, le=3600, description="in which a deleted pod saves and ends; default: suspension.gracePeriodSeconds"
    )
    scheduler_name: str | None = Field(None, max_length=253, description="set by Podium")
    host_pid: bool | None = Field(None, alias="hostPID", description="refused: a trial sees its own processes only")


class TemplateMeta(OpenModel):
    """Labels and annotations of the trials' pods."""

    labels: dict[str, str] | None = Field(None, description="`podium.dev/...` are set by Podium")
    annotations: dict[str, str] | None = Field(None, description="`podium.dev/...` are set by Podium")


class PodTemplate(OpenModel):
    """What a trial runs."""

    metadata: TemplateMeta | None = Field(None, description="labels and annotations of the trials' pods")
    spec: PodSpec = Field(description="a pod's spec")
