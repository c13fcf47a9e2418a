"""Read the log of a trial without a GPU once its pod has ended: the pod may run on a node that has no agent.

The curve goes into the trial's status under a field manager of its own; the reconciler reads it like a curve from an
agent. The reconciler calls this. It does not report such a trial as Succeeded before its values are known, or known to
be missing.
"""

from __future__ import annotations

import asyncio
import logging

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS
from podium_core.curves import additional_metrics as observations
from podium_core.curves.growing_curve import Curve, Line, extend
from podium_core.curves.line_readers import line_reader
from podium_core.curves.thinning import Grid
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.trial import CurvePoint, HyperParamTrial
from podium_operator.act.pod_manifest import reading_of
from podium_operator.observe.cluster_state import World, job_key
from podium_operator.observe.observation import waits_for_log
from podium_operator.observe.pod_state import SeenPod

MANAGER = "podium-operator-reader"
TRIES = 5
MOST_BYTES = 32 * 2**20
log = logging.getLogger(__name__)


class LastWords:
    """Reads the logs of ended pods in the background."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._empty: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def empty(self) -> frozenset[str]:
        """Uids of pods whose log holds no value of the metric, or could not be read."""
        return frozenset(self._empty)

    def read(self, world: World) -> None:
        """Start to read every log that is needed and not being read yet."""
        there = {pod.uid for pod in world.pods}
        self._empty &= there
        self._tasks = {uid: task for uid, task in self._tasks.items() if uid in there}
        for trial in world.trials:
            job = world.job_by_key.get(job_key(trial))
            pod = world.latest_pod.get(trial.metadata.uid)
            if job is None or pod is None or pod.uid in self._tasks or not waits_for_log(world, trial, job, pod):
                continue
            self._tasks[pod.uid] = asyncio.create_task(self._one(job, trial, pod))

    async def _one(self, job: HyperParamJob, trial: HyperParamTrial, pod: SeenPod) -> None:
        reading = reading_of(job)
        pause = 0.2
        for _ in range(TRIES):
            try:
                text = await self._api.logs(pod.name, pod.namespace, reading.container, limit_bytes=MOST_BYTES)
                lines = [Line(pod.ended_at or 0.0, line) for line in text.splitlines()]
                grid = Grid(maximize=job.spec.objective.direction is Direction.MAXIMIZE)
                curve = extend(Curve(), lines, line_reader(reading), grid)
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
            pause *= 2
        log.info("the log of pod %s/%s holds no value of %s", pod.namespace, pod.name, reading.metric)
        self._empty.add(pod.uid)


def _manifest(trial: HyperParamTrial, curve: Curve) -> dict[str, object]:
    points = [CurvePoint(step=p.step, value=p.value, time=p.time).model_dump(by_alias=True) for p in curve.points]
    meta = trial.metadata
    status: dict[str, object] = {
        "curve": {"points": points},
        "lastStep": curve.last_step,
        "lastValue": curve.last_value,
    }
    if curve.additional_metrics:
        told = observations.to_status(curve.additional_metrics)
        status["additionalMetrics"] = [one.model_dump(by_alias=True, exclude_none=True) for one in told]
    return {
        # resourceVersion identifies this exact object: the API server ignores a uid here
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
        "status": status,
    }
