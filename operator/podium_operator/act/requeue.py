"""Takes a trial's pod away so that another one goes on; knows whose pod the API server keeps. Used by `actuator`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS
from podium_core.domain.actions import Requeue
from podium_core.domain.snapshot import TrialKey
from podium_core.domain.unsaved_work import WILL_LOSE_WORK
from podium_operator.act.back_off import HeldBackError, Refusal, refused
from podium_operator.act.pod_manifest import REQUEUE_ANNOTATION
from podium_operator.jobs.events import emit
from podium_operator.observe.cluster_state import World
from podium_operator.observe.pod_state import SeenPod, parse_pod

INVALID = 422


class Requeues:
    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager
        self._kept: dict[str, Refusal] = {}  # by uid: told to go, and not deleted
        self._resting: frozenset[str] = frozenset()  # as `rests` said last
        self._stays: dict[TrialKey, str] = {}

    def begin(self, world: World) -> None:
        """A cycle: what the one before said is history."""
        self._stays = {}
        if self._kept:
            there = {pod.uid for pod in world.pods}
            self._kept = {uid: kept for uid, kept in self._kept.items() if uid in there}

    def stays(self) -> Mapping[TrialKey, str]:
        """Who was to be requeued in this cycle and surely was not, with the server's sentence."""
        return self._stays

    def rests(self) -> Collection[str]:
        """Pods that were kept a moment ago, by uid: they are not told to go again in this cycle, even if the pause ends
        while the cycle looks at something else.
        """
        self._resting = frozenset(uid for uid, kept in self._kept.items() if kept.lasts)
        return self._resting

    async def carry_out(self, world: World, action: Requeue) -> None:
        """The reason first: with it on the pod, whoever sees the deletion knows what it is for. Then an Event, with
        what that may cost.
        """
        pod = world.latest_pod.get(action.trial.uid)
        if pod is None or pod.facts.deleting:
            return
        before = self._kept.get(pod.uid)
        if before is not None and (before.lasts or pod.uid in self._resting):
            self._stays[action.trial] = before.message
            raise HeldBackError  # what is written and taken back below would wake the next cycle at once, for ever
        try:
            await self._note(pod, action.reason)
        except ApiError as error:
            if error.not_found or error.conflict or error.status == INVALID:
                return  # it is gone, or another pod of that name: the next cycle looks again
            self._stays[action.trial] = error.message
            if not error.transient:
                self._kept[pod.uid] = refused(before, error.message)
            raise
        trial = world.trial_by_key[action.trial]
        await emit(self._api, TRIALS, trial.metadata, WILL_LOSE_WORK, f"{action.message} {trial.unsaved.sentence}")
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            if await self._is_kept(pod, error):
                self._kept[pod.uid] = refused(before, error.message)
                self._stays[action.trial] = error.message
                with suppress(ApiError):  # it lives on: ended by others some day, it must not say that this was why
                    await self._note(pod, None)
            raise

    async def _is_kept(self, pod: SeenPod, error: ApiError) -> bool:
        """After a deletion that was answered so; what nobody knows is no yes."""
        if not error.status or error.not_found or error.conflict:  # those: others ended that very pod
            return False
        if not error.transient:
            return True
        try:  # the server's own trouble may have come after the deed, or be that of a webhook, which lasts
            seen = parse_pod(await self._api.get(PODS, pod.name, pod.namespace))
        except ApiError:
            return False
        return seen.uid == pod.uid and not seen.facts.deleting

    async def _note(self, pod: SeenPod, reason: str | None) -> None:
        about = {"uid": pod.uid, "annotations": {REQUEUE_ANNOTATION: reason}}
        await self._api.patch(PODS, pod.name, pod.namespace, {"metadata": about}, manager=self._manager)
