"""Objects that exist under a name that a trial needs: they must be the trial's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.postponed_actions import PostponedError


def belongs_to(found: Mapping[str, Any], trial: HyperParamTrial) -> bool:
    """Return whether the trial is an owner of a stored object. Pure."""
    return any(one.get("uid") == trial.metadata.uid for one in _owners(found))


def is_going(found: Mapping[str, Any]) -> bool:
    """Return whether a stored object is being deleted. Pure."""
    return "deletionTimestamp" in found["metadata"]


async def read_own(
    api: Api, resource: Resource, name: str, trial: HyperParamTrial, reason: str = "NameTaken"
) -> Mapping[str, Any]:
    """Return the trial's own object of this name, which was there a moment ago.

    Raises PostponedError while it, or that of an earlier trial of this name, goes away, and ApiError with the `reason`
    if it is another one.
    """
    try:
        found = await api.get(resource, name, trial.metadata.namespace)
    except ApiError as error:
        if error.not_found:
            raise PostponedError from error
        raise
    if belongs_to(found, trial) and not is_going(found):
        return found
    if any(one.get("kind") == "HyperParamTrial" for one in _owners(found)):
        raise PostponedError
    raise ApiError(409, reason, f"{resource.kind} {name} exists and is not the trial's: delete or rename it")


def _owners(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    owners: list[Mapping[str, Any]] = found["metadata"].get("ownerReferences") or []
    return owners
