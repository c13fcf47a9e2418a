"""Events about trials that are preempted for a more important pod.

Each event names the pod, the node and the work that may be lost, by the figures that chose the trial. The verb preempt
records the events, and `main` runs the loop that writes them: a response never waits for the API server.
kube-scheduler deletes the victims when it has the response.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podium_cluster.client import Api
from podium_cluster.events import EventText, emit
from podium_cluster.resources import TRIALS
from podium_core.domain.unsaved_work import WILL_LOSE_WORK, UnsavedWork
from podium_core.placement.victims import Eviction

COMPONENT = "podium-extender"


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """An event about one HyperParamTrial."""

    namespace: str
    trial: str
    uid: str
    message: str


class EventRecorder:
    """A queue of events; the limit of preemptions per minute bounds its length."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TrialEvent] = asyncio.Queue()

    def record_preemption(self, preemptor: str, priority: int, eviction: Eviction) -> None:
        """Add an event for each victim whose trial object is known.

        `preemptor` is namespace/name of the pod that gets the capacity.
        """
        for victim in eviction.victims:
            if victim.pod.trial is not None and victim.trial_uid:
                cost = UnsavedWork(victim.steps, victim.unsaved).sentence
                message = f"Pod {preemptor} of priority {priority} gets its slot of {eviction.node}. {cost}"
                self._queue.put_nowait(TrialEvent(*victim.pod.trial, victim.trial_uid, message))

    async def run(self, api: Api) -> None:
        """Write the events until cancelled."""
        while True:
            event = await self._queue.get()
            metadata = {"namespace": event.namespace, "name": event.trial, "uid": event.uid}
            await emit(api, TRIALS, metadata, EventText(WILL_LOSE_WORK, event.message), component=COMPONENT)
