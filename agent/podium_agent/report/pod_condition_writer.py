"""Writers of a pod's conditions: one for the trial writer's passes, and one for workers whose log does not count."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from podium_agent.log_fields import about_pod
from podium_agent.metrics import Metrics
from podium_agent.report.pod_conditions import DISRUPTION, disruption_patch, patch
from podium_agent.report.trial_record import TrialRecord
from podium_cluster import clock
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.attempts.usage_ledger import UsageLedger
from podium_core.curves.growing_curve import Curve
from podium_core.domain.observe import GPU_DRIVER_ERROR
from podium_core.sources.batch import Position

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
LONGEST_PAUSE = 10.0  # between two attempts: the end of a trial waits for the condition of a disruption


class PodConditionWriter:
    """Shows a trial's state, and disruptions by the GPU driver, on its pod."""

    def __init__(self, api: Api, metrics: Metrics, trial_record: TrialRecord) -> None:
        self._api = api
        self._metrics = metrics
        self._record = trial_record
        self._shown: dict[str, tuple[str, str]] = {}
        earlier = trial_record.pod.status.conditions.get(DISRUPTION) == ("True", GPU_DRIVER_ERROR)
        self._disruption = "of an earlier agent" if earlier else ""  # what the pod shows
        self._retry_at = 0.0
        self._backoff = Backoff(longest=LONGEST_PAUSE)

    async def show_state(self) -> None:
        """Show the trial's state."""
        record = self._record
        if record.state is None or record.life.ended or record.life.closed or time.monotonic() < self._retry_at:
            return
        shown: Mapping[str, tuple[str, str]] = self._shown or record.pod.status.conditions
        body = patch(record.state, shown, _now(), record.memory_shortage, record.pod.migration.gpu_state_trouble)
        if body is None or await self._write(body) is not None:
            return
        self._shown = dict(shown) | {
            entry["type"]: (entry["status"], entry["reason"]) for entry in body["status"]["conditions"]
        }

    async def show_disruption(self) -> bool:
        """Show that the driver ended a process, before the trial's end is written.

        Returns whether the pod shows it, or cannot. The operator counts an end without it as the trial's failure.
        """
        message = self._record.driver_disruption(time.monotonic())
        if message == self._disruption or (not message and self._record.life.ended):
            return True
        if time.monotonic() < self._retry_at:
            return False
        error = await self._write(disruption_patch(message, _now()))
        if error is not None and error.transient:
            return False
        self._disruption = message
        return True

    async def _write(self, body: dict[str, Any]) -> ApiError | None:
        """Write conditions; return the error if they were not written."""
        pod = self._record.pod
        body["metadata"] = {"uid": pod.uid}
        try:
            await self._api.strategic_patch(
                PODS, pod.name, pod.key.namespace, body, manager=MANAGER, subresource="status"
            )
        except ApiError as error:
            self._retry_at = time.monotonic() + self._backoff.pause(error.retry_after)
            if not error.not_found:
                self._metrics.failures.labels("pod-condition", error.reason).inc()
                log.warning("%s: condition not written: %s", pod.name, error)
            return error
        self._backoff.reset()
        return None


class WorkerWriter:
    """Task for a pod of rank 1 or higher: it shows the state of the pod.

    The agent of rank 0 writes the trial's status. The ledger here only tells since when the worker holds its GPUs.
    """

    def __init__(self, api: Api, metrics: Metrics, trial_record: TrialRecord, seconds: float) -> None:
        """`seconds`: the longest time between two passes."""
        self._record = trial_record
        self._metrics = metrics
        self._conditions = PodConditionWriter(api, metrics, trial_record)
        self._seconds = seconds
        trial_record.load(UsageLedger(workers=trial_record.pod.worker.count), Curve(), Position())
        trial_record.own()

    async def run(self) -> None:
        """Write until the pod has ended; only a cancellation is raised."""
        record, crashes = self._record, Backoff(longest=LONGEST_PAUSE)
        while True:
            record.urgent.clear()
            closed = record.life.closed
            try:
                with about_pod(record.pod, record.gpus):
                    await self._conditions.show_state()
                    shown = await self._conditions.show_disruption()
                over = closed and shown
            except Exception:  # it must not stop the agent, which serves all trials of the node
                self._metrics.failures.labels("pod-condition", "Crashed").inc()
                log.exception("%s: its conditions are not written", record.pod.name)
                await asyncio.sleep(crashes.pause())
                over = closed
            if over:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await record.urgent.wait()


def _now() -> str:
    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
