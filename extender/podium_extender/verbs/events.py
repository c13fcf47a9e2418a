"""Events about trials that are to leave for a more important pod: for whom, from where, and what that may cost, by the
figures that chose them. `preempt` puts them down, `main` has them written beside the verbs: an answer waits for no
call. kube-scheduler deletes the victims when it has the answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podium_cluster.client import Api
from podium_cluster.events import emit
from podium_cluster.resources import TRIALS
from podium_core.domain.unsaved_work import WILL_LOSE_WORK, UnsavedWork
from podium_core.placement.victims import Eviction

COMPONENT = "podium-extender"


@dataclass(frozen=True, slots=True)
class Announcement:
    """About one HyperParamTrial."""

    namespace: str
    trial: str
    uid: str
    message: str


class Announcements:
    """As many wait here as `restraint` lets go in a minute, however slow the API server is."""

    def __init__(self) -> None:
        self._due: asyncio.Queue[Announcement] = asyncio.Queue()

    def evicted(self, preemptor: str, priority: int, eviction: Eviction) -> None:
        """`preemptor`: namespace/name of the pod that gets the room. A trial whose object is not known is left out."""
        for victim in eviction.victims:
            if victim.pod.trial is not None and victim.trial_uid:
                cost = UnsavedWork(victim.steps, victim.unsaved).sentence
                why = f"Pod {preemptor} of priority {priority} gets its share of {eviction.node}. {cost}"
                self._due.put_nowait(Announcement(*victim.pod.trial, victim.trial_uid, why))

    async def write_for_ever(self, api: Api) -> None:
        while True:
            one = await self._due.get()
            about = {"namespace": one.namespace, "name": one.trial, "uid": one.uid}
            await emit(api, TRIALS, about, reason=WILL_LOSE_WORK, message=one.message, component=COMPONENT)
