"""Create and delete the JobSets and TrainJobs of trials. `actuator` uses it.

Their controllers create the pods. That takes seconds, or much longer if other parts come first, such as the initializer
of a TrainJob. Meanwhile the trial says what its object waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import RUNTIMES, Resource
from podium_core.domain.keys import TrialKey
from podium_core.schema.job import HyperParamJob
from podium_core.schema.template.workload import TrialWorkload, marked
from podium_core.schema.trial import HyperParamTrial, pod_name
from podium_core.schema.validation import template_problems
from podium_operator.act.ownership import belongs_to, read_own
from podium_operator.act.postponed_actions import PostponedError, RefusedAction, refused_again
from podium_operator.act.workload_manifests import (
    RuntimeNotUsableError,
    all_resources,
    main_resource,
    make_objects,
    merged_template,
    runtime_of,
)
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.trial_state import TrialState

Manifest = dict[str, Any]


class WorkloadFailedError(Exception):
    """The object of an attempt has failed before its pods trained."""


class WorkloadCreator:
    """Creates the objects of attempts, and remembers what they wait for while they have no pods."""

    def __init__(self, api: Api, manager: str) -> None:
        self._api = api
        self._manager = manager
        self._waits: dict[TrialKey, RefusedAction] = {}

    def start(self, wanted: Collection[TrialKey]) -> None:
        """Start a reconcile: forget the trials that have their pods. `wanted`: those that need some."""
        self._waits = {key: wait for key, wait in self._waits.items() if key in wanted}

    def waiting(self) -> Mapping[TrialKey, str]:
        """Return what the object of a trial without pods waits for."""
        return {key: wait.message for key, wait in self._waits.items()}

    def is_paused(self, key: TrialKey) -> bool:
        """Return whether the object of a trial exists, and was looked at a moment ago."""
        return key in self._waits and self._waits[key].in_backoff

    async def create(
        self, cluster: ClusterState, trial: TrialState, attempt: int, make: Callable[[HyperParamJob], Manifest]
    ) -> None:
        """Create the objects of an attempt.

        Delete those of the attempt before, unless one of its pods can still be read. `make` returns the attempt's pod.
        Raises ApiError, WorkloadFailedError, and PostponedError while the objects have no pods.
        """
        key, job = trial_key(trial), cluster.job_by_key[job_key(trial)]
        workload = job.spec.workload
        if workload is None:
            raise ValueError(f"job {job.metadata.name} has no workload")
        before = [pod for pod in cluster.each_pod.get(key, ()) if pod.attempt == attempt - 1]
        runtime = await self._runtime(workload, trial.metadata.namespace)
        used = job if runtime is None else _with_template(job, workload, runtime)
        if attempt and all(pod.facts.deleting for pod in before):
            for resource in all_resources(workload):
                await self._delete(resource, pod_name(trial.metadata.name, attempt - 1), trial)
        name = pod_name(trial.metadata.name, attempt)
        *others, last = make_objects(workload, make(used), runtime)
        for manifest in others:
            if not await self._create(RUNTIMES, manifest):
                await read_own(self._api, RUNTIMES, name, trial)
        resource = main_resource(workload)
        if await self._create(resource, last):
            return
        text = await self._state(resource, name, trial)
        self._waits[key] = refused_again(self._waits.get(key), text)
        raise PostponedError

    async def _runtime(self, workload: TrialWorkload, namespace: str) -> Mapping[str, Any] | None:
        """Return the runtime of a TrainJob."""
        named = runtime_of(workload)
        if named is None:
            return None
        resource, name = named
        try:
            return await self._api.get(resource, name, namespace if resource.namespaced else None)
        except ApiError as error:
            if not error.not_found:
                raise
            if f'"{name}" not found' not in error.message:  # it does not know the kind
                raise _not_installed(resource) from error
            raise ApiError(404, "RuntimeNotFound", f"{resource.kind} {name} is missing: create it") from error

    async def _create(self, resource: Resource, manifest: Manifest) -> bool:
        """Create an object; return False if it exists already."""
        try:
            await self._api.create(resource, manifest, manager=self._manager)
        except ApiError as error:
            if error.conflict:
                return False
            if error.not_found:
                raise _not_installed(resource) from error
            raise
        return True

    async def _delete(self, resource: Resource, name: str, trial: HyperParamTrial) -> None:
        """Delete an object if it is the trial's."""
        try:
            found = await self._api.get(resource, name, trial.metadata.namespace)
        except ApiError as error:
            if error.not_found:
                return
            raise
        if belongs_to(found, trial):
            uid = found["metadata"].get("uid")
            await self._api.delete(resource, name, trial.metadata.namespace, uid=uid)

    async def _state(self, resource: Resource, name: str, trial: HyperParamTrial) -> str:
        """Return what an object that exists waits for. Raises what it is about if it is another one, or has failed."""
        found, about = await read_own(self._api, resource, name, trial), f"{resource.kind} {name}"
        conditions = (found.get("status") or {}).get("conditions") or []
        true = {one.get("type"): one for one in conditions if one.get("status") == "True"}
        if "Failed" in true:
            raise WorkloadFailedError(f"{about} has failed: {_message(true['Failed'])}")
        if "Suspended" in true:
            return f"{about} is suspended: {_message(true['Suspended'])}"
        return f"{about} has not created the pods that train yet (kubectl describe says more)."


def _with_template(job: HyperParamJob, workload: TrialWorkload, runtime: Mapping[str, Any]) -> HyperParamJob:
    """Return the job with the pod template of the runtime. Raises ApiError: the runtime can be corrected."""
    try:
        template = merged_template(workload, runtime)
    except RuntimeNotUsableError as error:
        raise ApiError(409, "RuntimeNotUsable", str(error)) from error
    marks = marked(runtime.get("spec"), "spec")
    if marks:
        raise ApiError(409, "RuntimeNotUsable", f"the runtime has a label or annotation of Podium: {marks[0]}")
    spec = job.spec.with_template(template)
    refusals = template_problems(spec)
    if refusals:
        first = refusals[0]
        where = first.field.removeprefix("spec.template")
        text = f"the pod template of the runtime cannot be a trial: {where.lstrip('.')}: {first.message}"
        raise ApiError(409, "RuntimeNotUsable", f"{text} (in the runtime, or by the TrainJob's trainer)")
    return job.model_copy(update={"spec": spec})


def _not_installed(resource: Resource) -> ApiError:
    text = f"the cluster has no {resource.kind} ({resource.api_version}): install its controller"
    return ApiError(404, "KindNotInstalled", text)


def _message(condition: Mapping[str, Any]) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:512]
