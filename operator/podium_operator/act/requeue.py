"""Delete a trial's pod so that a new one continues it, and remember pods that the API server did not delete."""

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
    """Carries out requeues. Used by `actuator`."""

    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager
        self._kept: dict[str, Refusal] = {}  # by uid: pods whose deletion was refused
        self._resting: frozenset[str] = frozenset()  # as `rests` returned last
        self._stays: dict[TrialKey, str] = {}

    def begin(self, world: World) -> None:
        """Start a reconcile: forget the refusals that the last one reported."""
        self._stays = {}
        if self._kept:
            there = {pod.uid for pod in world.pods}
            self._kept = {uid: kept for uid, kept in self._kept.items() if uid in there}

    def stays(self) -> Mapping[TrialKey, str]:
        """Return the trials whose requeue was refused in this reconcile, with the server's message."""
        return self._stays

    def rests(self) -> Collection[str]:
        """Return the uids of pods that the API server recently did not delete.

        They are not deleted in this reconcile, even if their pause ends before it does.
        """
        self._resting = frozenset(uid for uid, kept in self._kept.items() if kept.lasts)
        return self._resting

    async def carry_out(self, world: World, action: Requeue) -> None:
        """Delete the pod of the trial.

        The reason is written first: with it on the pod, every observer of the deletion knows its purpose. Then an Event
        reports the work at risk.
        """
        pod = world.latest_pod.get(action.trial.uid)
        if pod is None or pod.facts.deleting:
            return
        before = self._kept.get(pod.uid)
        if before is not None and (before.lasts or pod.uid in self._resting):
            self._stays[action.trial] = before.message
            raise HeldBackError  # writing and reverting the reason below would wake the next reconcile at once, forever
        try:
            await self._note(pod, action.reason)
        except ApiError as error:
            if error.not_found or error.conflict or error.status == INVALID:
                return  # the pod is gone, or the name belongs to another pod: the next reconcile handles it
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
                with suppress(ApiError):  # if it ends for another reason later, it must not report this one
                    await self._note(pod, None)
            raise

    async def _is_kept(self, pod: SeenPod, error: ApiError) -> bool:
        """Return True if the pod surely remains after a deletion with this answer."""
        # a pod that is not found or has another uid was deleted by another client
        if not error.status or error.not_found or error.conflict:
            return False
        if not error.transient:
            return True
        try:  # the server may have failed after the deletion, or the failure may be that of a webhook, which lasts
            seen = parse_pod(await self._api.get(PODS, pod.name, pod.namespace))
        except ApiError:
            return False
        return seen.uid == pod.uid and not seen.facts.deleting

    async def _note(self, pod: SeenPod, reason: str | None) -> None:
        """Write the reason of the requeue on the pod; None removes it."""
        about = {"uid": pod.uid, "annotations": {REQUEUE_ANNOTATION: reason}}
        await self._api.patch(PODS, pod.name, pod.namespace, {"metadata": about}, manager=self._manager)
