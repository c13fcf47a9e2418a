"""Carry out the planner's decisions, one API call for each action. Every call may be repeated without harm.

A refused call affects only its action: it is counted, logged with the server's message, and tried again by the next
reconcile. Only a pod that the API server calls invalid is final: the template is wrong, and no retry corrects it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import UnionType

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS, Resource
from podium_core.domain.actions import Action, CreatePod, CreateTrial, DeletePod, EndTrial, Requeue, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobKey, TrialKey
from podium_core.schema.gpunode import GpuNodeSpec, GpuRunQueue, RunQueueEntry
from podium_core.schema.search_settings import learns
from podium_operator.act.awaiting_final_report import Settling
from podium_operator.act.back_off import HeldBackError, Refusal, refused
from podium_operator.act.memory_retry import exceeded, whole_gpu
from podium_operator.act.migration import arrival, asks, takes
from podium_operator.act.pod_manifest import CARRY_ANNOTATION, PodRules, make_pod, make_trial, pod_name
from podium_operator.act.requeue import INVALID, Requeues
from podium_operator.jobs.events import emit
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import World, job_key
from podium_operator.observe.pod_state import SeenPod
from podium_operator.observe.watch_caches import Mirror
from podium_operator.searchers.base import Tried
from podium_operator.searchers.registry import SEARCHERS
from podium_operator.searchers.results import shown

MANAGER = "podium-operator"
PARALLEL_CALLS = 16
LONGEST_MESSAGE = 1024
MIGRATED_GRACE_SECONDS = 1
ECHO_SECONDS = 10.0  # time within which the cache shows what was created
log = logging.getLogger(__name__)


def _superseded(world: World) -> Iterator[SeenPod]:
    """Yield pods that still run though a later attempt of their trial exists: both would write to one folder."""
    for pods in world.pods_of.values():
        for pod in pods[1:]:
            if pod.facts.phase not in ("Succeeded", "Failed") and not pod.facts.deleting:
                yield pod


class Actuator:
    """Carries out actions, and remembers what the API server refused."""

    def __init__(self, api: Api, mirror: Mirror, rules: PodRules, metrics: Metrics) -> None:
        self._api = api
        self._mirror = mirror
        self._rules = rules
        self._metrics = metrics
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)
        self._order_slots = asyncio.Semaphore(PARALLEL_CALLS)  # no GPU waits for pods that are being created
        self._refused: dict[TrialKey, Refusal] = {}
        self._requeues = Requeues(api, MANAGER)
        self._uncarried: dict[TrialKey, str] = {}
        self._tried: dict[JobKey, list[Tried]] = {}  # in this reconcile, for searches that learn
        self._sent: dict[TrialKey, float] = {}  # when, by a monotonic clock
        self._settling = Settling()

    async def order(self, world: World, actions: Iterable[Action]) -> None:
        """Carry out what GPUs wait for: the first half of a reconcile.

        Deletions go before the run queues. Without a deletion, the agent would suspend a trial that is not in the run
        queue any more, and resume it at once for its SIGTERM.
        """
        actions = tuple(actions)
        self._refused = {key: refusal for key, refusal in self._refused.items() if key in world.trial_by_key}
        self._requeues.begin(world)
        self._settling.forget(world)
        self._uncarried = {}
        now = time.monotonic()
        self._sent = {key: at for key, at in self._sent.items() if now < at + ECHO_SECONDS}
        await asyncio.gather(*(self._ask(pod, target) for pod, target in asks(world)))
        await asyncio.gather(*(self._end(pod) for pod in _superseded(world)))
        await self._all(world, actions, DeletePod | Requeue)
        await self._all(world, actions, WriteRunQueues)

    async def order_alone(self, world: World, actions: Iterable[Action]) -> None:
        """Write run queues between two reconciles, unless a pod has to be deleted or an agent asked first."""
        actions = tuple(actions)
        pods_go = any(isinstance(action, DeletePod | Requeue) for action in actions) or any(_superseded(world))
        if not (pods_go or any(asks(world))):
            await self._all(world, actions, WriteRunQueues)

    async def create(self, world: World, actions: Iterable[Action]) -> tuple[EndTrial, ...]:
        """Create trials and pods: the second half of a reconcile.

        Return the trials that ended because they cannot be started.
        """
        self._tried = {}
        ends = await self._all(world, actions, CreateTrial | CreatePod)
        return tuple(end for end in ends if end is not None)

    async def _all(self, world: World, actions: Iterable[Action], kinds: UnionType | type) -> list[EndTrial | None]:
        some = [self._guarded(world, action) for action in actions if isinstance(action, kinds)]
        return list(await asyncio.gather(*some))

    def refused(self) -> Mapping[TrialKey, str]:
        """Return the trials whose pod cannot be created for now, with the server's message."""
        return {key: refusal.message for key, refusal in self._refused.items()}

    def stays(self) -> Mapping[TrialKey, str]:
        """Return the trials whose requeue was refused in this reconcile, with the server's message."""
        return self._requeues.stays()

    def rests(self) -> Collection[str]:
        """Return the uids of pods that the API server recently did not delete: their requeue backs off."""
        return self._requeues.rests()

    def uncarried(self) -> Mapping[TrialKey, str]:
        """Return the migrating trials whose new pod was just refused for good, with the server's message."""
        return self._uncarried

    def sent(self) -> Collection[TrialKey]:
        """Return the migrating trials whose new pod was sent recently and not refused."""
        return self._sent.keys()

    def _refuse(self, action: CreatePod, error: ApiError) -> None:
        text = f"The API server refuses the pod for now: {error.message}"
        self._refused[action.trial] = refused(self._refused.get(action.trial), text)

    async def _guarded(self, world: World, action: Action) -> EndTrial | None:
        kind = type(action).__name__
        try:
            async with self._order_slots if isinstance(action, WriteRunQueues) else self._slots:
                end = await self._do(world, action)
        except HeldBackError:
            return None
        except ApiError as error:
            self._metrics.failed.labels(kind).inc()
            log.warning("%s was not carried out: %s", action, error)
            if isinstance(action, CreatePod):
                self._refuse(action, error)
            return None
        except (ValueError, KeyError, ArithmeticError) as error:
            # validation accepted a spec that cannot be carried out: only this trial is affected
            self._metrics.failed.labels(kind).inc()
            log.error("%s cannot be carried out: %s", action, error)
            return None
        self._metrics.actions.labels(kind).inc()
        return end

    async def _do(self, world: World, action: Action) -> EndTrial | None:
        match action:
            case WriteRunQueues():
                await self._order(action)
            case CreateTrial():
                await self._create_trial(world, action)
            case CreatePod():
                return await self._create_pod(world, action)
            case DeletePod():
                pod = world.latest_pod.get(action.trial.uid)
                if pod is not None and not pod.facts.deleting:
                    await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
            case Requeue():
                await self._requeues.carry_out(world, action)
        return None

    async def _ask(self, pod: SeenPod, target: str) -> None:
        """Ask the pod's agent to migrate the trial to `target`, or (empty) to cancel that."""
        about = {"uid": pod.uid, "annotations": {CARRY_ANNOTATION: target or None}}
        try:
            await self._api.patch(PODS, pod.name, pod.namespace, {"metadata": about}, manager=MANAGER)
        except ApiError as error:
            log.warning("pod %s/%s: its agent could not be asked to migrate it: %s", pod.namespace, pod.name, error)

    async def _end(self, pod: SeenPod) -> None:
        """Delete a pod whose trial has a later attempt."""
        try:
            log.warning("pod %s/%s is deleted: a later attempt of its trial exists", pod.namespace, pod.name)
            # the process of a migrated trial is stopped and has nothing to checkpoint any more
            grace = {"grace_seconds": MIGRATED_GRACE_SECONDS} if pod.carry else {}
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, **grace)
        except ApiError as error:
            log.warning("pod %s/%s was not deleted: %s", pod.namespace, pod.name, error)

    async def _order(self, order: WriteRunQueues) -> None:
        gpus = [
            GpuRunQueue(
                uuid=uuid,
                run_queue=[
                    RunQueueEntry(
                        namespace=place.trial.namespace,
                        trial=place.trial.name,
                        uid=place.trial.uid,
                        reason=place.reason,
                        message=place.message[:LONGEST_MESSAGE],
                        preempts=True if position == 0 and uuid in order.preempting else None,
                    )
                    for position, place in enumerate(places)
                ],
            )
            for uuid, places in order.gpus
        ]
        spec = GpuNodeSpec(epoch=order.epoch, gpus=gpus)
        # the other fields belong to podium-cli: applying them here would take them away
        body = spec.model_dump(by_alias=True, include={"epoch", "gpus"}, exclude_none=True, mode="json")
        try:
            await self._api.apply(GPUNODES, {"metadata": {"name": order.node}, "spec": body}, manager=MANAGER)
        except ApiError as error:
            if error.transient:
                self._mirror.unanswered(order.node, spec.epoch)
            raise
        self._mirror.ordered(order.node, spec)

    async def _create_trial(self, world: World, action: CreateTrial) -> None:
        job = world.job_by_key[action.job]
        if learns(job.spec) and action.job not in self._tried:
            self._tried[action.job] = list(shown(job, world.trials))
        tried = self._tried.get(action.job, [])  # other searches ignore the results
        parameters = SEARCHERS[job.spec.search.algorithm].propose(job.spec, action.number, tried)
        if parameters is None:
            log.info("job %s: the search space is exhausted before trial %d", job.metadata.name, action.number)
            return
        tried.append(Tried(action.number, parameters))  # the next proposals have to differ from this one
        await self._create(TRIALS, make_trial(job, action.number, parameters))

    async def _create_pod(self, world: World, action: CreatePod) -> EndTrial | None:
        trial = world.trial_by_key[action.trial]
        job = world.job_by_key[job_key(trial)]
        before = self._refused.get(action.trial)
        if before is not None and before.lasts:
            raise HeldBackError
        if action.attempt and not self._settling.settled(world, trial, time.monotonic()):
            raise HeldBackError
        came = arrival(world, trial, action.attempt)
        if came is not None:
            if action.trial in self._sent or not takes(world, came.target_node):
                raise HeldBackError  # a second pod could be refused because of the first one, for example by a quota
            self._sent[action.trial] = time.monotonic()
        try:
            nodes = {node.metadata.name for node in world.nodes}
            to_itself = exceeded(trial, world.latest_pod.get(action.trial.uid))
            alone = whole_gpu(job.spec.gpus, world.nodes) if to_itself else None
            await self._create(PODS, make_pod(job, trial, action.attempt, self._rules, nodes, alone, came))
        except ApiError as error:
            if (
                came is not None and not error.transient
            ):  # the new pod surely does not exist: the trial continues where it is
                self._uncarried[action.trial] = error.message
                del self._sent[action.trial]
                return None
            if error.status != INVALID:
                raise
            name = pod_name(trial.metadata.name, action.attempt)
            text = f"The API server refuses pod {name}: {error.message}"
            await emit(self._api, JOBS, job.metadata, "PodRefused", text, "Warning")
            return EndTrial(action.trial, TrialPhase.FAILED, "PodRefused", f"{text} Correct the job's template.")
        self._refused.pop(action.trial, None)
        return None

    async def _create(self, resource: Resource, manifest: dict[str, object]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **manifest}
        try:
            await self._api.create(resource, body, manager=MANAGER)
        except ApiError as error:
            if not error.conflict:
                raise  # otherwise it exists already: an earlier reconcile or operator created it
