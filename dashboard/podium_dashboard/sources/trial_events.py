"""Kubernetes Events of a trial and of its pod: read when its page is looked at, and bounded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import EVENTS, Page
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.sources.source import EventLine, EventList

MAX_EVENTS = 40  # that are shown; the newest
PAGE = 200  # that are read of each object
AGE_SECONDS = 5.0  # for which an answer is used again
MAX_TRIALS = 32  # whose answers are kept


class TrialEvents:
    """Reads the Events of trials with the rights of one account.

    Those of each trial are read at most once in a while.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, tuple[float, EventList]] = {}

    async def of(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of the trial and of its present pod."""
        key = f"{trial.metadata.uid}/{trial.status.pod}"
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] < AGE_SECONDS:
            return known[1]
        fresh = await read_events(self._api, trial)
        self._known.pop(key, None)
        self._known[key] = (time.monotonic(), fresh)
        while len(self._known) > MAX_TRIALS:
            del self._known[next(iter(self._known))]
        return fresh


async def read_events(api: Api, trial: HyperParamTrial) -> EventList:
    """Return the Events, the newest first."""
    namespace, wanted = trial.metadata.namespace, [("HyperParamTrial", trial.metadata.name)]
    if trial.status.pod:
        wanted.append(("Pod", trial.status.pod))
    found: list[EventLine] = []
    try:
        for kind, name in wanted:
            fields = f"involvedObject.kind={kind},involvedObject.name={name}"
            answer = await api.list(EVENTS, namespace, fields=fields, page=Page(PAGE))
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
