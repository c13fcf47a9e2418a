"""CPU downsizing: a suspended trial requests almost no CPU, a running one requests its full share.

A task of the agent follows the node reconciler's view; nothing waits for it. If the node has too few free CPUs for an
increase, the kubelet defers it (pod condition PodResizePending). Meanwhile the trial runs with a lower CPU weight. The
changes follow from the pods as they are, so a restarted agent needs no memory of earlier ones.
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
from podium_agent.schedule.node_reconciler import View
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.attempts.local_trial import LocalTrial
from podium_core.domain.backoff import backoff_pause
from podium_core.schema.template.cpu_downsizing import DOWNSIZED_MILLICPUS

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
ECHO_SECONDS = 5.0  # if the watch does not show the change by then, it is written again
RESIZE_UNSUPPORTED = "ResizeUnsupported"
RESIZE_CURE = "this API server has no pods/resize; use Kubernetes 1.35, or set suspension.downsizeCpu: false in the job"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of one pod's CPU requests.

    `cpu`: the new request of each container in thousandths of a CPU.
    """

    pod: TrialPod
    cpu: Mapping[str, int]

    @property
    def raises(self) -> bool:
        """Whether a container's request grows."""
        return any(wanted > DOWNSIZED_MILLICPUS for wanted in self.cpu.values())


def resizes(pods: Iterable[TrialPod], trials: Iterable[LocalTrial]) -> tuple[Resize, ...]:
    """Return the changes to make, decreases first because they may free the CPUs for the others. O(pods)."""
    at_work = {trial.pod.uid: trial.occupies for trial in trials}
    planned = []
    for pod in pods:
        if not pod.requests.cpu or pod.status.ended or pod.termination.deadline is not None or pod.uid not in at_work:
            continue
        wanted = {name: full if at_work[pod.uid] else DOWNSIZED_MILLICPUS for name, full in pod.requests.cpu.items()}
        if any(pod.requests.cpu_now.get(name) != cpu for name, cpu in wanted.items()):
            planned.append(Resize(pod, wanted))
    return tuple(sorted(planned, key=lambda one: (one.raises, one.pod.key, one.pod.attempt)))


@dataclass(frozen=True, slots=True)
class _Asked:
    cpu: Mapping[str, int]
    until: float  # no new request before
    failures: int


class CpuDownsizer:
    """Task that changes CPU requests; `pods` returns this node's pods as the watch has them."""

    def __init__(self, api: Api, metrics: Metrics, pods: Callable[[], Iterable[TrialPod]]) -> None:
        self._api = api
        self._metrics = metrics
        self._pods = pods
        self._view = View()
        self._event = asyncio.Event()
        self._asked: dict[str, _Asked] = {}

    def on_view(self, view: View) -> None:
        """Follow the node reconciler: store its view and wake the task."""
        self._view = view
        self._event.set()

    async def run(self) -> None:
        """Apply the changes whenever the view changes, and at least once a second."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_PAUSE):
                    await self._event.wait()
            self._event.clear()
            await self.once(time.monotonic())

    async def once(self, now: float) -> None:
        """Request every change that is due at `now` (monotonic seconds)."""
        todo = resizes(self._pods(), self._view.trials)
        self._asked = {one.pod.uid: self._asked[one.pod.uid] for one in todo if one.pod.uid in self._asked}
        for one in todo:
            before = self._asked.get(one.pod.uid)
            if before is not None and before.cpu == one.cpu and now < before.until:
                continue
            await self._ask(one, before.failures if before is not None else 0, now)

    async def _ask(self, one: Resize, failures: int, now: float) -> None:
        pod = one.pod
        containers = [{"name": name, "resources": {"requests": {"cpu": f"{cpu}m"}}} for name, cpu in one.cpu.items()]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"containers": containers}}
        self._asked[pod.uid] = _Asked(one.cpu, now + ECHO_SECONDS, 0)
        try:
            await self._api.strategic_patch(
                PODS, pod.name, pod.key.namespace, patch, manager=MANAGER, subresource="resize"
            )
        except ApiError as error:
            if error.not_found and pod.name in error.message:
                return  # the pod is gone, and the watch will report it
            pause = backoff_pause(failures + 1, FIRST_PAUSE, LONGEST_PAUSE)
            self._asked[pod.uid] = _Asked(one.cpu, now + pause, failures + 1)
            reason = RESIZE_UNSUPPORTED if error.not_found else error.reason
            cure = f" ({RESIZE_CURE})" if error.not_found else ""
            self._metrics.failures.labels("resize", reason).inc()
            log.warning("%s: CPU requests not changed, trying again in %.0f s: %s%s", pod.name, pause, error, cure)
