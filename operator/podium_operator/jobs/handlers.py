"""kopf handlers: check each new or changed HyperParamJob and set its condition Accepted.

Before that they set the finalizer where checkpoint folders have to be removed with the job; `cleanup` removes it.
Without such folders no finalizer is set: owner references delete everything and never wait for the operator. A
deleted job that cannot be parsed is released here (`release_unreadable`), because `cleanup` never sees it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import kopf

from podium_cluster import clock, events
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.component.logs import about
from podium_cluster.resources import CLAIMS, JOBS
from podium_core.schema.base import ObjectMeta
from podium_core.schema.job import HyperParamJob
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.act.checkpoint_volume import folder_of_job
from podium_operator.jobs import finalizers
from podium_operator.jobs.acceptance import Claim, ClaimModes, claim_name, condition
from podium_operator.jobs.connection import login
from podium_operator.jobs.events import emit
from podium_operator.jobs.finalizers import ORPHAN, awaits_cleanup, remove_finalizer
from podium_operator.jobs.warm_start import WarmStart, read_warm_start

MANAGER = "podium-operator-acceptance"
PREFIX = "podium.dev"
RETRY_SECONDS = 5.0  # seconds until a claim that did not exist, or a job that had not ended, is checked again
log = logging.getLogger(__name__)


def register(api: Api, *, removes_folders: bool, reserved_gpus: bool) -> kopf.OperatorRegistry:
    """Return the handlers, bound to `api`.

    `removes_folders`: the operator has an image that can remove folders; `reserved_gpus`: Podium reserves its GPUs.
    """
    registry = kopf.OperatorRegistry()

    async def accept(body: kopf.Body, **_: Any) -> None:
        await _accept(api, dict(body), removes_folders=removes_folders, reserved_gpus=reserved_gpus)

    async def release(body: kopf.Body, **_: Any) -> None:
        await release_unreadable(api, dict(body))

    async def log_in(**arguments: Any) -> kopf.AiohttpSession | None:
        return await login(api.may_write, **arguments)

    resource = (JOBS.group, JOBS.version, JOBS.plural)
    kopf.on.resume(*resource, registry=registry, id="accept")(accept)
    kopf.on.create(*resource, registry=registry, id="accept")(accept)
    kopf.on.update(*resource, registry=registry, id="accept", field="spec")(accept)
    kopf.on.event(*resource, registry=registry, id="release-unreadable")(release)
    kopf.on.login(registry=registry, id="login")(log_in)
    return registry


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings: Podium's names, no peering objects and no Events about handlers."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.finalizer = f"{PREFIX}/operator"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=PREFIX, key="last-handled")
    chosen.peering.standalone = True
    chosen.posting.enabled = False
    chosen.networking.request_timeout = 15
    chosen.networking.connect_timeout = 5
    chosen.watching.reconnect_backoff = 2.0
    chosen.watching.server_timeout = 240
    chosen.watching.client_timeout = 270
    return chosen


async def _accept(api: Api, manifest: dict[str, Any], *, removes_folders: bool, reserved_gpus: bool) -> None:
    meta = manifest["metadata"]
    now = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    claim = await _claim(api, meta["namespace"], claim_name(manifest))
    warm_start = await _warm_start(api, manifest)
    wanted = condition(manifest, now, claim, warm_start, reserved_gpus=reserved_gpus)
    status: dict[str, Any] = {
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": {"conditions": [wanted]},
    }
    if warm_start.status and (wanted["status"] == "True" or not warm_start.new):
        # in one patch with the condition, and again in every later one: no trial is proposed without it
        status["status"]["warmStart"] = warm_start.status
    job = parse_job(manifest)
    try:
        adds = removes_folders and isinstance(job, HyperParamJob) and finalizers.needs_finalizer(job.spec)
        if adds and wanted["status"] == "True":
            # first: once the job is accepted, its trials may write; a job that is not accepted has no trials
            await finalizers.add_finalizer(api, meta["namespace"], meta["name"])
        await api.apply_status(JOBS, status, manager=MANAGER)
    except ApiError as error:
        if error.not_found:
            return  # deleted meanwhile
        raise kopf.TemporaryError(f"the condition Accepted was not written: {error}", delay=2) from error
    with about(namespace=meta["namespace"], job=meta["name"]):
        log.info("job %s/%s: Accepted=%s %s", meta["namespace"], meta["name"], wanted["status"], wanted["reason"])
    if warm_start.new and wanted["status"] == "True":
        text = events.EventText("WarmStarted", str(warm_start.status["message"]), "Normal")
        await events.emit(api, JOBS, meta, text, component="podium-operator")
    if wanted["status"] == "False":
        text = events.EventText(wanted["reason"], wanted["message"], "Warning")
        await events.emit(api, JOBS, meta, text, component="podium-operator")
    if wanted["status"] == "Unknown":
        raise kopf.TemporaryError(wanted["message"], delay=RETRY_SECONDS)


LONGEST_PAUSE = 30.0


async def release_unreadable(api: Api, manifest: Mapping[str, Any], pause: float = 0.5) -> None:
    """Remove the finalizer of a deleted job that cannot be parsed. `pause`: seconds until the first retry.

    An older version may have accepted the job. The watch caches leave it out, so `cleanup` never sees it and its
    finalizer would stay forever.
    """
    meta = ObjectMeta.model_validate(manifest["metadata"])
    if not awaits_cleanup(meta):
        return
    wrong = parse_job(manifest)
    if not isinstance(wrong, Refusal):
        return  # `cleanup` handles it
    backoff = Backoff(first=pause, longest=LONGEST_PAUSE)
    while True:
        try:
            await remove_finalizer(api, meta.namespace, meta.name)
        except ApiError as error:
            log.warning("finalizer of job %s/%s: %s", meta.namespace, meta.name, error)
            if not error.transient:
                return  # the job is gone
            await asyncio.sleep(backoff.pause(error.retry_after))
        else:
            break
    if ORPHAN not in meta.finalizers:
        text = (
            f"Folder {folder_of_job(meta)} of the checkpoint volume was not removed: the job cannot be parsed any more "
            f"({wrong}). Remove the folder by hand."
        )
        await emit(api, JOBS, meta, "CheckpointsNotRemoved", text, "Warning")


async def _warm_start(api: Api, manifest: Mapping[str, Any]) -> WarmStart:
    try:
        return await read_warm_start(api, manifest)
    except ApiError as error:
        raise kopf.TemporaryError(f"the jobs of warmStart could not be read: {error}", delay=2) from error


async def _claim(api: Api, namespace: str, name: str | None) -> Claim | None:
    if name is None:
        return None
    try:
        return Claim(name, ClaimModes.model_validate(await api.get(CLAIMS, name, namespace)).modes)
    except ApiError as error:
        if error.not_found:
            return Claim(name, None)
        raise kopf.TemporaryError(f"claim {name} could not be read: {error}", delay=2) from error
