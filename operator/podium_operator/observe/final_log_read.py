"""Read the log of a trial without a GPU once its pod has ended: the pod may run on a node that has no agent.

The curve goes into the trial's status under a field manager of its own; the reconciler reads it like a curve from an
agent. The reconciler calls this. It does not report such a trial as Succeeded before its values are known, or known to
be missing.
"""

from __future__ import annotations

import asyncio
import io
import logging
from itertools import islice

from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS
from podium_core.curves import additional_metrics
from podium_core.curves.growing_curve import Curve, Line, extend
from podium_core.curves.thinning import Grid
from podium_core.logs.line_reader import Reader, line_reader
from podium_core.logs.skipping import SkippingReader
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.metrics.config import metrics_config_of
from podium_core.schema.trial import CurvePoint, HyperParamTrial
from podium_operator.log_fields import about_item
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.observation import needs_log_read
from podium_operator.observe.pod_state import PodState

MANAGER = "podium-operator-reader"
TRIES = 5
FIRST_PAUSE = 0.2
MAX_BYTES = 32 * 2**20
BATCH = 16  # lines that are read without a pause
log = logging.getLogger(__name__)


class FinalLogReader:
    """Background reader of the logs of ended pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._without_value: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def without_value(self) -> frozenset[str]:
        """Uids of pods whose log holds no value of the metric, or could not be read."""
        return frozenset(self._without_value)

    def read(self, cluster: ClusterState) -> None:
        """Start to read every log that is needed and not being read yet."""
        present = {pod.uid for pod in cluster.pods}
        self._without_value &= present
        self._tasks = {uid: task for uid, task in self._tasks.items() if uid in present}
        for trial in cluster.trials:
            job = cluster.job_by_key.get(job_key(trial))
            pod = cluster.latest_pod.get(trial_key(trial))
            if job is None or pod is None or pod.uid in self._tasks or not needs_log_read(cluster, trial, job, pod):
                continue
            self._tasks[pod.uid] = asyncio.create_task(self._read_log(job, trial, pod))

    async def _read_log(self, job: HyperParamJob, trial: HyperParamTrial, pod: PodState) -> None:
        with about_item(trial):
            await self._read_until_done(job, trial, pod)

    async def _read_until_done(self, job: HyperParamJob, trial: HyperParamTrial, pod: PodState) -> None:
        config = metrics_config_of(job)
        backoff = Backoff(first=FIRST_PAUSE)
        for _ in range(TRIES):
            pause = backoff.pause()
            try:
                text = await self._api.logs(pod.name, pod.namespace, config.container, limit_bytes=MAX_BYTES)
                grid = Grid(maximize=job.spec.objective.direction is Direction.MAXIMIZE)
                curve = await _read_curve(text, pod.ended_at or 0.0, SkippingReader(line_reader(config)), grid)
                if not curve.points:
                    break
                await self._api.apply_status(TRIALS, _manifest(trial, curve), manager=MANAGER)
                return
            except (ApiError, ValueError) as error:
                if isinstance(error, ApiError) and error.conflict:
                    # the status changed meanwhile, or the name belongs to another trial: the next reconcile retries
                    self._tasks.pop(pod.uid, None)
                    return
                log.warning("log of pod %s/%s not read, again in %.1f s: %s", pod.namespace, pod.name, pause, error)
            await asyncio.sleep(pause)
        log.info("the log of pod %s/%s holds no value of %s", pod.namespace, pod.name, config.metric)
        self._without_value.add(pod.uid)


async def _read_curve(text: str, time: float, read: Reader, grid: Grid) -> Curve:
    """Return the curve in a log. The event loop continues between batches: a log may be long and made to be slow."""
    curve = Curve()
    lines = (Line(time, line.removesuffix("\n")) for line in io.StringIO(text, newline="\n"))
    while batch := list(islice(lines, BATCH)):
        curve = extend(curve, batch, read, grid)
        await asyncio.sleep(0)
    return curve


def _manifest(trial: HyperParamTrial, curve: Curve) -> dict[str, object]:
    points = [CurvePoint(step=p.step, value=p.value, time=p.time).model_dump(by_alias=True) for p in curve.points]
    meta = trial.metadata
    status: dict[str, object] = {
        "curve": {"points": points},
        "lastStep": curve.last_step,
        "lastValue": curve.last_value,
    }
    if curve.additional_metrics:
        metrics = additional_metrics.to_status(curve.additional_metrics)
        status["additionalMetrics"] = [one.model_dump(by_alias=True, exclude_none=True) for one in metrics]
    return {
        # resourceVersion identifies this exact object: the API server ignores a uid here
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
        "status": status,
    }
