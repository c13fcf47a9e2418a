"""CPU parking: the requests of a trial that does not work are next to nothing, those of one that works what it wants.

A task of the agent that follows the conductor's view: nothing waits for it. A raise that the node has no room for is
deferred by the kubelet and carried out when there is (condition PodResizePending on the pod); the trial works
meanwhile, with less weight than it asked for. What is to be done is derived from the pods as they are, so an agent that
starts anew has nothing to remember.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from podium_agent.metrics import Metrics
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.trials import LocalTrial
from podium_agent.schedule.node_reconciler import View
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.schema.cpu_downsizing import DOWNSIZED_MILLICPUS

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
ECHO_SECONDS = 5.0  # the watch shows what was written within this time, or it is written again
RESIZE_UNSUPPORTED = "ResizeUnsupported"
RESIZE_CURE = (
    "this API server has no pods/resize; it takes Kubernetes 1.35, or suspension.downsizeCpu: false in the job"
)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Resize:
    """`cpu`: by container, the thousandths that it is to request."""

    pod: TrialPod
    cpu: Mapping[str, int]

    @property
    def raises(self) -> bool:
        return any(wanted > DOWNSIZED_MILLICPUS for wanted in self.cpu.values())


def resizes(pods: Iterable[TrialPod], trials: Iterable[LocalTrial]) -> tuple[Resize, ...]:
    """What is to change, the lowering first: it may make the room for the rest. O(pods)."""
    at_work = {trial.pod_uid: trial.occupies for trial in trials}
    found = []
    for pod in pods:
        if not pod.cpu or pod.ended or pod.deadline is not None or pod.uid not in at_work:
            continue
        wanted = {name: full if at_work[pod.uid] else DOWNSIZED_MILLICPUS for name, full in pod.cpu.items()}
        if any(pod.requests.get(name) != cpu for name, cpu in wanted.items()):
            found.append(Resize(pod, wanted))
    return tuple(sorted(found, key=lambda one: (one.raises, one.pod.key, one.pod.attempt)))


@dataclass(frozen=True, slots=True)
class _Asked:
    cpu: Mapping[str, int]
    until: float  # not again before
    pause: float


class Parker:
    """`pods`: those of this node, as the watch has them."""

    def __init__(self, api: Api, metrics: Metrics, pods: Callable[[], Iterable[TrialPod]]) -> None:
        self._api = api
        self._metrics = metrics
        self._pods = pods
        self._view = View()
        self._event = asyncio.Event()
        self._asked: dict[str, _Asked] = {}

    def heed(self, view: View) -> None:
        """The conductor's listener."""
        self._view = view
        self._event.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_PAUSE):
                    await self._event.wait()
            self._event.clear()
            await self.once(time.monotonic())

    async def once(self, now: float) -> None:
        todo = resizes(self._pods(), self._view.trials)
        self._asked = {one.pod.uid: self._asked[one.pod.uid] for one in todo if one.pod.uid in self._asked}
        for one in todo:
            before = self._asked.get(one.pod.uid)
            if before is not None and before.cpu == one.cpu and now < before.until:
                continue
            await self._ask(one, before.pause if before is not None else 0.0, now)

    async def _ask(self, one: Resize, pause: float, now: float) -> None:
        pod = one.pod
        containers = [{"name": name, "resources": {"requests": {"cpu": f"{cpu}m"}}} for name, cpu in one.cpu.items()]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"containers": containers}}
        self._asked[pod.uid] = _Asked(one.cpu, now + ECHO_SECONDS, 0.0)
        try:
            await self._api.patch(
                PODS, pod.name, pod.key.namespace, patch, manager=MANAGER, subresource="resize", strategic=True
            )
        except ApiError as error:
            if error.not_found and pod.name in error.message:
                return  # it is gone, and the watch will say so
            longer = min(max(FIRST_PAUSE, pause * 2), LONGEST_PAUSE)
            self._asked[pod.uid] = _Asked(one.cpu, now + longer, longer)
            reason = RESIZE_UNSUPPORTED if error.not_found else error.reason
            cure = f" ({RESIZE_CURE})" if error.not_found else ""
            self._metrics.failures.labels("resize", reason).inc()
            log.warning("%s: CPU requests stay as they are, again in %.0f s: %s%s", pod.name, longer, error, cure)
