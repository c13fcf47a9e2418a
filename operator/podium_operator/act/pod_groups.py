"""PodGroups of trials that have several workers: kube-scheduler binds all pods of an attempt, or none.

Without them, the first workers occupy slots while the last one finds none. Kubernetes 1.36 has the API as an alpha
feature (gates GenericWorkload of the API server, GangScheduling of the scheduler), so most clusters do not serve it.
Source: https://kubernetes.io/docs/concepts/workloads/podgroup-api/
"""

from __future__ import annotations

import time
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import POD_GROUPS
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial, pod_name
from podium_operator.act.ownership import belongs_to, is_going
from podium_operator.act.pod_manifest import owner

FORBIDDEN = 403
ASK_AGAIN_SECONDS = 600.0  # after the cluster had none


def make_pod_group(trial: HyperParamTrial, attempt: int, workers: int) -> dict[str, Any]:
    """Return the PodGroup of an attempt. Pure."""
    meta = trial.metadata
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": pod_name(meta.name, attempt),
            "namespace": meta.namespace,
            "labels": {JOB_LABEL: trial.spec.job},
            "ownerReferences": [owner("HyperParamTrial", meta.name, meta.uid)],
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": workers}}},
    }


class PodGroupCreator:
    """Creates PodGroups where the cluster serves them."""

    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager
        self._ask_at = 0.0  # by a monotonic clock

    async def create(self, trial: HyperParamTrial, attempt: int, workers: int) -> bool:
        """Create the PodGroup of an attempt; return whether the trial has one. Raises ApiError."""
        if workers == 1 or time.monotonic() < self._ask_at:
            return False
        try:
            await self._api.create(POD_GROUPS, make_pod_group(trial, attempt, workers), manager=self._manager)
        except ApiError as error:
            if error.conflict:
                return await self._is_own(trial, attempt)
            if error.not_found:
                self._ask_at = time.monotonic() + ASK_AGAIN_SECONDS
            elif error.status != FORBIDDEN:
                raise
            return False
        return True

    async def _is_own(self, trial: HyperParamTrial, attempt: int) -> bool:
        """Return whether the PodGroup that exists is the trial's."""
        meta = trial.metadata
        try:
            found = await self._api.get(POD_GROUPS, pod_name(meta.name, attempt), meta.namespace)
        except ApiError as error:
            if error.not_found or error.status == FORBIDDEN:
                return False
            raise
        return belongs_to(found, trial) and not is_going(found)
