"""What users ask of a job or trial by one field of its spec: suspend, resume, pin and stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium_cluster.resources import JOBS, TRIALS, Resource

if TYPE_CHECKING:  # the dashboard of a folder has no client of the API server
    from podium_cluster.client import Api


@dataclass(frozen=True, slots=True)
class Intent:
    """One request: the fields of the spec that it sets, and what it means.

    `effect` completes "Suspend NAME: ...", and `result` completes "NAME ...".
    """

    name: str
    resource: Resource
    spec: Mapping[str, Any]
    effect: str
    result: str


SUSPEND = Intent(
    "suspend",
    JOBS,
    {"suspend": True},
    "Its trials release their GPUs and keep their progress.",
    "is being suspended",
)
RESUME = Intent("resume", JOBS, {"suspend": False}, "Its trials get GPUs again and continue.", "continues")
PIN = Intent(
    "pin", TRIALS, {"pinned": True}, "It gets a GPU before the others.", "is ranked before all others of its job"
)
UNPIN = Intent("unpin", TRIALS, {"pinned": False}, "It is ranked like the others.", "is ranked like the others again")
STOP = Intent(
    "stop",
    TRIALS,
    {"stopped": True},
    "It ends now and keeps its result. This cannot be undone.",
    "is being stopped; its result is kept",
)
INTENTS: Mapping[str, Intent] = {one.name: one for one in (SUSPEND, RESUME, PIN, UNPIN, STOP)}


async def carry_out(
    api: Api, intent: Intent, name: str, namespace: str, *, manager: str, uid: str | None = None
) -> None:
    """Set the fields; with `uid`, only on the object that has it. Raises ApiError."""
    patch: dict[str, Any] = {"spec": dict(intent.spec)}
    if uid is not None:
        patch["metadata"] = {"uid": uid}
    await api.patch(intent.resource, name, namespace, patch, manager=manager)
