"""Kubernetes Events of a trial and of its pod: read when its page is looked at, and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import EVENTS, Page
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.sources.source import EventLine, EventList

MAX_EVENTS = 40  # that are shown; the newest
PAGE = 200  # that are read of each object


class TrialPod(NamedTuple):
    """A trial and its present pod; the pod is None or empty if there is none."""

    namespace: str
    trial: str
    uid: str
    pod: str | None

    @classmethod
    def of(cls, trial: HyperParamTrial) -> TrialPod:
        """Return the names of a trial."""
        meta = trial.metadata
        return cls(meta.namespace, meta.name, meta.uid, trial.status.pod)


async def read_events(api: Api, about: TrialPod) -> EventList:
    """Return the Events, the newest first."""
    wanted = [("HyperParamTrial", about.trial)]
    if about.pod:
        wanted.append(("Pod", about.pod))
    found: list[EventLine] = []
    try:
        for kind, name in wanted:
            fields = f"involvedObject.kind={kind},involvedObject.name={name}"
            answer = await api.list(EVENTS, about.namespace, fields=fields, page=Page(PAGE))
            found += [_line(one) for one in answer["items"] if isinstance(one, Mapping)]
    except ApiError as error:
        return EventList(note=f"The Events cannot be read: {error.message}")
    found.sort(key=lambda one: one.at or datetime.fromtimestamp(0, UTC), reverse=True)
    if not found:
        return EventList(note="There are no Events of it: Kubernetes keeps them for an hour.")
    return EventList(tuple(found[:MAX_EVENTS]))


def _line(event: Mapping[str, Any]) -> EventLine:
    """Return what is shown of one Event. Any field may be missing: other components write Events, too."""
    about = event.get("involvedObject") or {}
    count = event.get("count")
    return EventLine(
        at=_moment(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp")),
        about=str(about.get("kind", "")).removeprefix("HyperParam").lower(),
        kind=str(event.get("type", "")),
        reason=str(event.get("reason", "")),
        message=str(event.get("message", ""))[:1024],
        count=count if isinstance(count, int) else 1,
    )


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
