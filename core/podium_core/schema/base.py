"""What every API model shares: camelCase on the wire, unknown fields refused in specs and ignored in what others write.

Used by the models beside it; nobody else needs it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "podium.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class SpecModel(BaseModel):
    """What a user or the operator writes: an unknown field is an error that names it."""

    # allow_inf_nan: JSON has neither, so a YAML file that says .inf must fail here as it does at the API server
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


class OpenModel(BaseModel):
    """A part of somebody else's object (a pod template): the named fields are checked, all others pass untouched."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)


class StatusModel(BaseModel):
    """What a controller reports: fields of a newer version are ignored, so that an older reader goes on."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


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


class Condition(StatusModel):
    """Kubernetes' meta/v1 Condition."""

    type: str = Field(description="what it is about, CamelCase: Accepted, MetricsUnavailable, ...")
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$")] = Field(description="True, False or Unknown")
    reason: str = Field(description="CamelCase word for programs; never empty")
    message: str = Field("", description="sentence for people")
    last_transition_time: datetime | None = Field(None, description="when status last changed")
    observed_generation: int | None = Field(None, description="the generation of the spec that this speaks of")


class TrialRef(StatusModel):
    """Names one trial from a cluster-scoped object; the uid tells it from a later trial of the same name."""

    namespace: str = Field(description="of the trial")
    trial: str = Field(description="its name")
    uid: str = Field(description="its uid")
