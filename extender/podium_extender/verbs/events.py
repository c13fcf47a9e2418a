"""Events about trials that are preempted for a more important pod.

Each event names the pod, the node and the work that may be lost, by the figures that chose the trial. The verb preempt
records the events, and `main` runs the loop that writes them: a response never waits for the API server.
kube-scheduler deletes the victims when it has the response.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from podium_cluster.client import Api
from podium_cluster.component.logs import about
from podium_cluster.events import EventText, emit
from podium_cluster.resources import TRIALS
from podium_core.domain.unsaved_work import WILL_LOSE_WORK, UnsavedWork
from podium_core.placement.victims import Eviction

COMPONENT = "podium-extender"
MAX_EVENTS = 1000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """An event about one HyperParamTrial."""

    namespace: str
    trial: str
    uid: str
    message: str


class EventRecorder:
    """A queue of events; while the API server does not take them, only the first ones are kept."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[TrialEvent] = asyncio.Queue(MAX_EVENTS)

    def record_preemption(self, preemptor: str, priority: int, eviction: Eviction) -> None:
        """Add an event for each victim whose trial object is known.

        `preemptor` is namespace/name of the pod that gets the capacity.
        """
        for victim in eviction.victims:
            if victim.pod.trial is not None and victim.trial_uid:
                cost = UnsavedWork(victim.steps, victim.unsaved).sentence
                message = f"Pod {preemptor} of priority {priority} gets its slot of {eviction.node}. {cost}"
                self._add(TrialEvent(*victim.pod.trial, victim.trial_uid, message))

    def _add(self, event: TrialEvent) -> None:
        if self._queue.full():
            with about(namespace=event.namespace, trial=event.trial):
                log.warning(
                    "event about trial %s/%s omitted: %d wait already", event.namespace, event.trial, MAX_EVENTS
                )
        else:
            self._queue.put_nowait(event)

    async def run(self, api: Api) -> None:
        """Write the events until cancelled."""
        while True:
            event = await self._queue.get()
            metadata = {"namespace": event.namespace, "name": event.trial, "uid": event.uid}
            await emit(api, TRIALS, metadata, EventText(WILL_LOSE_WORK, event.message), component=COMPONENT)
