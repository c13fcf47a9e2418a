"""Create and end the pods of trials that have several workers: all of them, or none. `actuator` uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, SERVICES
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL
from podium_core.schema.trial import HyperParamTrial, pod_name
from podium_operator.act.ownership import read_own
from podium_operator.act.pod_manifest import TRIAL_LABEL, owner
from podium_operator.act.worker_manifests import make_service
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.worker_pods import WORKER_ENDED, workers_of

Manifest = dict[str, Any]
Ending = tuple[PodState, str | None]  # a pod to delete, and the reason to write on it
log = logging.getLogger(__name__)


def workers_to_end(cluster: ClusterState) -> Iterator[Ending]:
    """Yield the pods of workers that cannot continue.

    Another worker of their attempt has ended, or their trial has.
    A pod whose agent does not respond gets no reason. Its node may be lost, and then it is the cause.
    """
    for key, (latest, *_) in cluster.pods_by_trial.items():
        trial = cluster.trial_by_key.get(key)
        if not latest.workers or trial is None:
            continue
        final = trial.status.phase in FINAL
        if not (final or latest.broken):
            continue
        for pod in latest.workers:
            if pod.facts.phase not in ("Succeeded", "Failed") and not pod.facts.deleting:
                yield pod, None if final or pod.facts.node in cluster.unresponsive else WORKER_ENDED


class WorkerCreator:
    """Creates the pods of an attempt of several workers."""

    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager

    async def create(self, trial: HyperParamTrial, attempt: int, workers: int, make: Callable[[int], Manifest]) -> None:
        """Create the Service and all pods. `make` returns the pod of a rank.

        The pod of worker 0 is created last, so that an attempt with it is complete. If a pod is refused, the others are
        deleted: they would occupy slots. Raises ApiError, and PostponedError while a Service of this name goes away.
        """
        await self._create_service(trial)
        for rank in reversed(range(workers)):
            try:
                await self._create_pod(make(rank))
            except ApiError:
                for created in range(rank + 1, workers):
                    with suppress(ApiError):  # the operator deletes the pods of an incomplete attempt later
                        name = pod_name(trial.metadata.name, attempt, created)
                        await self._api.delete(PODS, name, trial.metadata.namespace)
                raise

    async def _create_pod(self, manifest: Manifest) -> None:
        try:
            await self._api.create(PODS, manifest, manager=self._manager)
        except ApiError as error:
            if not error.conflict:
                raise  # otherwise it exists already: an earlier reconcile or operator created it

    async def _create_service(self, trial: HyperParamTrial) -> None:
        meta = trial.metadata
        manifest = make_service(trial, TRIAL_LABEL, owner("HyperParamTrial", meta.name, meta.uid))
        try:
            await self._api.create(SERVICES, manifest, manager=self._manager)
        except ApiError as error:
            if not error.conflict:
                raise
            await read_own(self._api, SERVICES, meta.name, trial, "ServiceNameTaken")


def older_pods_remain(cluster: ClusterState, key: TrialKey, attempt: int) -> bool:
    """Return whether processes of another attempt may run, or a pod is about to be deleted.

    An old process would answer under the name of a new worker.
    """
    alive = [pod for pod in cluster.each_pod.get(key, ()) if pod.facts.phase not in ("Succeeded", "Failed")]
    return any(pod.facts.deleting or pod.attempt != attempt for pod in alive)


def all_workers(pod: PodState | None) -> tuple[PodState, ...]:
    """Return the pods of an attempt that can be deleted: those that are not being deleted already.

    The pods of workers that have ended remain, with their logs.
    """
    if pod is None:
        return ()
    found = [one for one in workers_of(pod) if not one.facts.deleting]
    return tuple(found if not pod.workers else [one for one in found if one.facts.phase not in ("Succeeded", "Failed")])
