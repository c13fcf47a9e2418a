"""Base classes of the API models: camelCase on the wire; specs refuse unknown fields, statuses ignore them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "podium.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
TRIAL_KIND = "HyperParamTrial"
JOB_VERSION = "batch/v1"


class SpecModel(BaseModel):
    """Base of what a user or the operator writes: an unknown field is an error that names the field."""

    # JSON has neither infinity nor NaN, so a YAML file with .inf must fail here as it does at the API server
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


class OpenModel(BaseModel):
    """Base of a part of another API's object (a pod template).

    The named fields are checked; all other fields pass unchanged.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)


class StatusModel(BaseModel):
    """Base of what a controller reports.

    Fields of a newer version are ignored, so that an older reader still works.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class OwnerReference(StatusModel):
    """Kubernetes' OwnerReference; the owner is in the namespace of the object."""

    api_version: str = ""
    kind: str
    name: str = ""
    uid: str
    controller: bool = False


def controlling_trial(owners: Iterable[OwnerReference], name: str | None, uid: str | None) -> OwnerReference | None:
    """Return a reference to the HyperParamTrial `name` that a pod belongs to; None if it belongs to none.

    The trial controls the pod. If a Job does (`JobSpec.workload`), the pod's label has the trial's `uid`. The admission
    policies of the chart see to it that only Jobs of trials have such pods.
    """
    owner = next((owner for owner in owners if owner.controller), None)
    if owner is None or not name:
        return None
    if owner.kind == "Job" and owner.api_version == JOB_VERSION and uid:
        return OwnerReference(api_version=API_VERSION, kind=TRIAL_KIND, name=name, uid=uid, controller=True)
    if owner.kind != TRIAL_KIND or owner.api_version.partition("/")[0] != GROUP:
        return None
    return owner if owner.name == name else None


class ObjectMeta(StatusModel):
    """The part of Kubernetes' ObjectMeta that Podium reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)

    @property
    def created(self) -> float:
        """Return when the object was created, in seconds since the Unix epoch; 0 if it is not stored yet."""
        return 0.0 if self.creation_timestamp is None else self.creation_timestamp.timestamp()


class Condition(StatusModel):
    """Kubernetes' meta/v1 Condition."""

    type: str = Field(
        description="Aspect that the condition describes, in CamelCase: Accepted, MetricsUnavailable, ..."
    )
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")] = Field(
        description="Status of the condition: True, False or Unknown."
    )
    reason: str = Field(description="Reason of the status for programs, in CamelCase; never empty.")
    message: str = Field("", description="Reason of the status for people, as a sentence.")
    last_transition_time: datetime | None = Field(None, description="Time at which the status last changed.")
    observed_generation: int | None = Field(None, description="Generation of the spec to which the condition refers.")


class TrialRef(StatusModel):
    """Reference to a trial from a cluster-scoped object.

    The uid distinguishes the trial from a later trial of the same name.
    """

    namespace: str = Field(description="Namespace of the trial.")
    trial: str = Field(description="Name of the trial.")
    uid: str = Field(description="UID of the trial.")
