"""Finished jobs are deleted after ttlSecondsAfterFinished, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from operator_builders import NOW, make_cluster_state, make_job, moment

from podium_cluster.client import ApiError
from podium_operator.cleanup.deleted_jobs import MAX_DELETIONS, delete_expired, expired

ENDED = {"phase": "Succeeded", "finishedAt": moment(-60), "observedGeneration": 1}


@pytest.mark.parametrize(
    ("ttl", "status", "gone"),
    [
        (60, ENDED, True),
        (0, ENDED, True),
        (61, ENDED, False),
        (None, ENDED, False),
        (60, ENDED | {"phase": "Failed"}, True),
        (60, ENDED | {"phase": "Running"}, False),
        (60, ENDED | {"observedGeneration": 0}, False),
        (60, {"phase": "Succeeded", "observedGeneration": 1}, False),
    ],
)
def test_which_jobs_are_deleted(ttl: int | None, status: dict[str, Any], gone: bool) -> None:
    job = make_job(status=status, ttlSecondsAfterFinished=ttl)
    assert (expired([job], NOW) == [job]) is gone


def test_a_refused_deletion_does_not_stop_the_others() -> None:
    jobs = [make_job(f"sweep-{n:02}", status=ENDED, ttlSecondsAfterFinished=1) for n in range(MAX_DELETIONS + 1)]
    asked: list[tuple[str, str]] = []

    class Refusing:
        async def delete(self, _: object, name: str, namespace: str, *, uid: str) -> None:
            asked.append((name, uid))
            raise ApiError(403, "Forbidden", "no")

    api: Any = Refusing()
    asyncio.run(delete_expired(api, make_cluster_state(*jobs)))
    assert asked == [(job.metadata.name, job.metadata.uid) for job in jobs[:MAX_DELETIONS]]
