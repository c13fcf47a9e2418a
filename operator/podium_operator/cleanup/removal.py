"""Remove a deleted job's folder: create its clean-up pods and watch until each has succeeded. `cleanup` uses it.

Only a pod that exists and has Succeeded counts. A missing pod (it was deleted, or another pod has its name) is created
again, and a request that fails now is repeated. `cleanup` bounds the time; `waits` says what the removal waits for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic import Field

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.job import HyperParamJob
from podium_operator.cleanup.cleanup_pod import CLEANUP_LABEL, make_cleanup_pod

MANAGER = "podium-operator"
POLL_SECONDS = 0.5  # seconds
MAX_EXPLANATION = 400  # characters of a pod's own explanation: an Event has 1024
log = logging.getLogger(__name__)


class _Explanation(StatusModel):
    reason: str = ""
    message: str = ""


class _State(StatusModel):
    waiting: _Explanation | None = None
    terminated: _Explanation | None = None


class _Container(StatusModel):
    state: _State = Field(default_factory=_State)


class _Condition(_Explanation):
    status: str


class _PodStatus(_Explanation):
    phase: str = ""
    container_statuses: list[_Container] = Field(default_factory=list)
    conditions: list[_Condition] = Field(default_factory=list)


class _Pod(StatusModel):
    metadata: ObjectMeta
    status: _PodStatus = Field(default_factory=_PodStatus)


class Removal:
    """Removal of a folder from `nodes`; None stands for a volume that every node can mount."""

    def __init__(self, api: Api, job: HyperParamJob, image: str | None, nodes: tuple[str | None, ...]) -> None:
        self._api = api
        self._job = job
        self._image = image
        self._nodes = nodes
        self.waits = ""

    async def run(self) -> str:
        """Return why the folder cannot be removed, or an empty string once it is removed everywhere."""
        if self._image is None:
            return "PODIUM_IMAGE is not set, so the operator has no image that can remove the folder"
        if not self._nodes:
            return "the node of the folder is unknown, since neither a trial nor a GPUNode exists"
        pods = [make_cleanup_pod(self._job, self._image, number, node) for number, node in enumerate(self._nodes)]
        left = {pod["metadata"]["name"]: pod for pod in pods}
        while True:
            try:
                refused = await self._step(left)
            except ApiError as error:
                if not error.transient:
                    return f"the API server refuses the clean-up pods ({error.message})"
                self.waits = str(error)
                log.warning("folder of job %s/%s: %s", self._job.metadata.namespace, self._job.metadata.name, error)
            else:
                if refused or not left:
                    return refused
            await asyncio.sleep(POLL_SECONDS)

    async def _step(self, left: dict[str, dict[str, Any]]) -> str:
        """Drop succeeded pods from `left` and create missing ones. Return which pod failed, or an empty string."""
        meta = self._job.metadata
        items = (await self._api.list(PODS, meta.namespace, labels=f"{CLEANUP_LABEL}={meta.uid}"))["items"]
        there = {pod.metadata.name: pod for pod in map(_Pod.model_validate, items)}
        for name, manifest in list(left.items()):
            pod = there.get(name)
            if pod is None:
                self.waits = f"pod {name} is missing"
                await self._make(name, manifest)
            elif pod.status.phase == "Succeeded":
                del left[name]
            elif pod.metadata.deletion_timestamp is not None:  # it may report Failed for that: another pod replaces it
                self.waits = f"pod {name} is being deleted by another client"
            elif pod.status.phase == "Failed":
                return f"pod {name} failed{_why(pod.status)}"
            else:
                self.waits = f"pod {name} has not ended{_why(pod.status)}"
        return ""

    async def _make(self, name: str, manifest: dict[str, Any]) -> None:
        try:
            await self._api.create(PODS, manifest, manager=MANAGER)
        except ApiError as error:
            if not error.conflict:
                raise
            # an earlier operator created it a moment ago, or it belongs to another client: the next poll decides
            self.waits = f"pod {name} is missing, since another pod has its name"


def _why(status: _PodStatus) -> str:
    """Return the explanation of the kubelet, the scheduler or the program in the pod."""
    states = [container.state for container in status.container_statuses]
    explanations: list[_Explanation] = [status]
    explanations += [one for state in states for one in (state.terminated, state.waiting) if one is not None]
    explanations += [condition for condition in status.conditions if condition.status == "False"]
    first = next((one for one in explanations if one.reason or one.message), _Explanation())
    text = ": ".join(part.strip() for part in (first.reason, first.message) if part)
    return f" ({text[:MAX_EXPLANATION]})" if text else ""
