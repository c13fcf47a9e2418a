"""Delete a trial's pod so that a new one continues it, and remember pods that the API server did not delete."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS
from podium_core.domain.actions import Requeue
from podium_core.domain.keys import TrialKey
from podium_core.domain.unsaved_work import WILL_LOSE_WORK
from podium_operator.act.pod_manifest import REQUEUE_ANNOTATION
from podium_operator.act.postponed_actions import PostponedError, RefusedAction, refused_again
from podium_operator.act.workers import all_workers
from podium_operator.jobs.events import emit
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.pod_state import PodState, parse_pod

INVALID = 422
log = logging.getLogger(__name__)


class RequeueActuator:
    """Carries out requeues. `actuator` uses it."""

    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager
        self._refused: dict[str, RefusedAction] = {}  # by uid: pods whose deletion was refused
        self._in_backoff: frozenset[str] = frozenset()  # as `in_backoff` returned last
        self._undeleted: dict[TrialKey, str] = {}

    def start(self, cluster: ClusterState) -> None:
        """Start a reconcile: forget the refusals that the last one reported."""
        self._undeleted = {}
        if self._refused:
            there = {pod.uid for pod in cluster.pods}
            self._refused = {uid: refused for uid, refused in self._refused.items() if uid in there}

    def undeleted(self) -> Mapping[TrialKey, str]:
        """Return the trials whose requeue was refused in this reconcile, with the server's message."""
        return self._undeleted

    def in_backoff(self) -> Collection[str]:
        """Return the uids of pods that the API server recently did not delete.

        They are not deleted in this reconcile, even if their pause ends before it does.
        """
        self._in_backoff = frozenset(uid for uid, refused in self._refused.items() if refused.in_backoff)
        return self._in_backoff

    async def carry_out(self, cluster: ClusterState, action: Requeue) -> None:
        """Delete the pod of the trial, or those of all its workers.

        The reason is written first: with it on the pod, every observer of the deletion knows its purpose. Then an Event
        reports the work at risk.
        """
        pods = all_workers(cluster.latest_pod.get(action.trial))
        for pod in pods:
            before = self._refused.get(pod.uid)
            if before is not None and (before.in_backoff or pod.uid in self._in_backoff):
                self._undeleted[action.trial] = before.message
                # writing and reverting the reason below would wake the next reconcile at once, forever
                raise PostponedError
        explained = [pod for pod in pods if await self._explain(pod, action)]
        if not explained:
            return
        trial = cluster.trial_by_key[action.trial]
        await emit(self._api, TRIALS, trial.metadata, WILL_LOSE_WORK, f"{action.message} {trial.unsaved.sentence}")
        for pod in explained:
            await self._delete(pod, action.trial)

    async def end_worker(self, pod: PodState, reason: str | None) -> None:
        """Delete the pod of a worker whose trial cannot continue.

        `reason`: to write on the pod, if it has none.
        """
        before = self._refused.get(pod.uid)
        if before is not None and before.in_backoff:
            return
        try:
            if reason is not None and not pod.facts.requeue:
                await self._write_reason(pod, reason)
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            if error.not_found or error.conflict or error.status == INVALID:
                return  # the pod is gone, or the name belongs to another pod
            self._refused[pod.uid] = refused_again(before, error.message)
            log.warning(
                "pod %s/%s was not deleted, though its trial cannot continue: %s", pod.namespace, pod.name, error
            )

    async def _explain(self, pod: PodState, action: Requeue) -> bool:
        """Write the reason on the pod; return False if the pod is gone."""
        try:
            await self._write_reason(pod, action.reason)
        except ApiError as error:
            if error.not_found or error.conflict or error.status == INVALID:
                return False  # the pod is gone, or the name belongs to another pod: the next reconcile handles it
            self._undeleted[action.trial] = error.message
            if not error.transient:
                self._refused[pod.uid] = refused_again(self._refused.get(pod.uid), error.message)
            raise
        return True

    async def _delete(self, pod: PodState, trial: TrialKey) -> None:
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            if await self._remains(pod, error):
                self._refused[pod.uid] = refused_again(self._refused.get(pod.uid), error.message)
                self._undeleted[trial] = error.message
                with suppress(ApiError):  # if it ends for another reason later, it must not report this one
                    await self._write_reason(pod, None)
            raise

    async def _remains(self, pod: PodState, error: ApiError) -> bool:
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

    async def _write_reason(self, pod: PodState, reason: str | None) -> None:
        """Write the reason of the requeue on the pod; None removes it."""
        about = {"uid": pod.uid, "annotations": {REQUEUE_ANNOTATION: reason}}
        await self._api.patch(PODS, pod.name, pod.namespace, {"metadata": about}, manager=self._manager)
