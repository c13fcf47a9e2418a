"""Release a deleted job that cannot be parsed (an older version accepted it, for example).

The watch caches leave such a job out, so `cleanup` never sees it and its finalizer would stay forever. The handlers
call this for each event of a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS
from podium_core.schema.base import ObjectMeta
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.act.checkpoint_volume import folder_of_job
from podium_operator.jobs.events import emit
from podium_operator.jobs.finalizers import ORPHAN, awaits_cleanup, remove_finalizer

LONGEST_PAUSE = 30.0
log = logging.getLogger(__name__)


async def release_unreadable(api: Api, manifest: Mapping[str, Any], pause: float = 0.5) -> None:
    """Remove the finalizer of a deleted job that cannot be parsed. `pause`: seconds until a retry."""
    meta = ObjectMeta.model_validate(manifest["metadata"])
    if not awaits_cleanup(meta):
        return
    wrong = parse_job(manifest)
    if not isinstance(wrong, Refusal):
        return  # `cleanup` handles it
    while True:
        try:
            await remove_finalizer(api, meta.namespace, meta.name)
        except ApiError as error:
            log.warning("finalizer of job %s/%s: %s", meta.namespace, meta.name, error)
            if not error.transient:
                return  # the job is gone
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            break
    if ORPHAN not in meta.finalizers:
        text = (
            f"Folder {folder_of_job(meta)} of the checkpoint volume was not removed: the job cannot be parsed any more "
            f"({wrong}). Remove the folder by hand."
        )
        await emit(api, JOBS, meta, "CheckpointsNotRemoved", text, "Warning")
