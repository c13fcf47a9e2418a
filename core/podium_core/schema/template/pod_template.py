"""The parts of a trial's pod template for which Podium has rules; every other field of a pod passes unchanged.

`crd` generates the typed skeleton of `spec.template` from these models, so that CEL can see the fields that Podium
refuses. `validation` reads a template through them for the same reason. `JobSpec.template` itself remains as written.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from podium_core.schema.base import OpenModel

GATE_CONTAINER = "podium-gate"
GATE_VOLUME = "podium-gate"  # of the gate alone; the agent puts the helper and a socket into it
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def others(names: str) -> ConfigDict:
    """Declare, by name, fields that pass unread.

    CEL's `self == oldSelf` does not see that one unknown field replaced another one, so without the declaration a
    template could be changed during a search.
    """
    return ConfigDict(json_schema_extra={"x-others": names.split()})  # type: ignore[dict-item]


class EnvVar(OpenModel):
    """An environment variable; see Kubernetes' EnvVar."""

    model_config = others("value valueFrom")

    name: str = Field(min_length=1, max_length=253, description="Name of the environment variable.")


class VolumeMount(OpenModel):
    """A mounted volume; see Kubernetes' VolumeMount."""

    model_config = others("name mountPropagation readOnly recursiveReadOnly subPath subPathExpr")

    mount_path: str = Field(min_length=1, max_length=1024, description="Path of the volume in the container.")


class Container(OpenModel):
    """A container; see Kubernetes' Container for all its fields."""

    model_config = others(
        "envFrom imagePullPolicy lifecycle ports readinessProbe resizePolicy resources restartPolicyRules "
        "securityContext stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices workingDir"
    )
    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=NAME_PATTERN,
        description="Name of the container.",
        json_schema_extra={"x-says": "use lower-case letters, digits and -, such as train"},
    )
    image: str = Field(min_length=1, max_length=1024, description="Container image.")
    command: list[str] | None = Field(
        None, max_length=256, description="Command. May contain placeholders such as `$(podium.args)`."
    )
    args: list[str] | None = Field(
        None, max_length=256, description="Arguments. May contain placeholders such as `$(podium.args)`."
    )
    env: list[EnvVar] | None = Field(
        None, max_length=256, description="Environment variables. Podium sets variables that start with PODIUM_."
    )
    volume_mounts: list[VolumeMount] | None = Field(
        None, max_length=64, description="Mounted volumes; see Kubernetes' Container."
    )
    restart_policy: str | None = Field(None, max_length=32, description="Restart policy: Never, or omitted.")
    liveness_probe: dict[str, Any] | None = Field(None, description="Refused: the probe would kill a suspended trial.")
    startup_probe: dict[str, Any] | None = Field(None, description="Refused: the probe would kill a suspended trial.")


class InitContainer(Container):
    """A container that runs before the others and before the trial waits at its gate."""

    restart_policy: str | None = Field(
        None, max_length=32, description="Restart policy. Always makes the container a sidecar."
    )


class PodSpec(OpenModel):
    """A pod's spec; see Kubernetes' PodSpec for all its fields."""

    model_config = others(
        "affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers hostAliases "
        "hostIPC hostNetwork hostUsers hostname hostnameOverride imagePullSecrets nodeName nodeSelector os overhead "
        "preemptionPolicy priority priorityClassName readinessGates resourceClaims resources runtimeClassName "
        "schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain tolerations topologySpreadConstraints volumes"
    )

    containers: list[Container] = Field(
        min_length=1,
        max_length=16,
        description="Containers of the pod. The first one is the trial: it gets the GPUs, and its log is read.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    init_containers: list[InitContainer] | None = Field(
        None,
        max_length=16,
        description="Init containers. Podium adds `podium-gate`.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    restart_policy: str | None = Field(None, max_length=32, description="Restart policy: Never, or omitted.")
    active_deadline_seconds: int | None = Field(
        None, description="Refused: it would also count the time in which the trial is suspended."
    )
    termination_grace_period_seconds: int | None = Field(
        None,
        ge=0,
        le=3600,
        description="Seconds in which a deleted pod checkpoints and ends. Default: suspension.gracePeriodSeconds.",
    )
    scheduler_name: str | None = Field(None, max_length=253, description="Set by Podium.")
    host_pid: bool | None = Field(None, alias="hostPID", description="Refused: a trial may only see its own processes.")


class TemplateMeta(OpenModel):
    """Labels and annotations of the trials' pods."""

    labels: dict[str, str] | None = Field(
        None, description="Labels of the pods. Podium sets labels with the prefix `podium.dev/`."
    )
    annotations: dict[str, str] | None = Field(
        None, description="Annotations of the pods. Podium sets annotations with the prefix `podium.dev/`."
    )


class PodTemplate(OpenModel):
    """Pod template of the trials."""

    metadata: TemplateMeta | None = Field(None, description="Labels and annotations of the pods.")
    spec: PodSpec = Field(description="Spec of the pods.")
