"""One trial's writer over its whole life, with a folder of logs and an API server that holds one object."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from podium.domain.snapshot import TrialKey
from podium.schema.gpunode import TrialState
from podium.schema.reading import MetricsReading
from podium_agent.book import Book
from podium_agent.logs.tail import CHUNK
from podium_agent.metrics import Metrics
from podium_agent.pods import TrialPod
from podium_agent.settings import AgentSettings
from podium_agent.writer import TrialWriter
from podium_cluster.client import Api

KEY = TrialKey("demo", "a-0", "u1")
STAMP = "2026-11-21T02:54:00.000000001Z stdout F"


class Server:
    """The two calls that a writer makes of the API for a trial."""

    def __init__(self, **status: Any) -> None:
        self.status: dict[str, Any] = status
        self.patches = 0
        self.third = asyncio.Event()

    async def get(self, *_: Any) -> dict[str, Any]:
        meta = {"name": KEY.name, "namespace": KEY.namespace, "uid": KEY.uid}
        return {"metadata": meta, "spec": {"job": "a", "number": 0, "parameters": {}}, "status": self.status}

    async def patch(self, *_: Any, **__: Any) -> None:
        """The pod's conditions."""

    async def apply_status(self, resource: Any, manifest: dict[str, Any], manager: str) -> None:
        self.status = self.status | manifest["status"]
        self.patches += 1
        if self.patches == 3:
            self.third.set()


def write_all(server: Server, logs: Path, pod: TrialPod, **settings: float) -> None:
    """The writer of a pod that has ended, from its start to its own end."""
    book = Book(pod, "n")
    book.follow(None, (), 1.0)
    book.closed = True
    writer = TrialWriter(
        AgentSettings(node_name="n", pod_logs=logs, log_seconds=0.01, **settings),  # type: ignore[arg-type]
        cast(Api, server),
        Metrics(),
        book,
    )
    asyncio.run(asyncio.wait_for(writer.run(), 30))


def ended(attempt: int = 0) -> TrialPod:
    return TrialPod(
        key=KEY,
        name=f"a-0-{attempt}",
        uid=f"p{attempt}",
        containers=("train",),
        running=frozenset(),
        ended=True,
        gate_running=False,
        gate_passed=True,
        deadline=None,
        memory=0,
        reading=MetricsReading.model_validate({"metric": "acc", "direction": "maximize", "container": "train"}),
        attempt=attempt,
    )


def log_of(logs: Path, pod: TrialPod) -> Path:
    folder = logs / f"demo_{pod.name}_{pod.uid}" / "train"
    folder.mkdir(parents=True)
    return folder / "0.log"


def test_the_end_of_a_long_unread_log_is_not_lost(tmp_path: Path) -> None:
    noise = f"{STAMP} {'x' * 8000}\n"
    value = f'{STAMP} {{"acc": 0.9}}\n'
    log_of(tmp_path, ended()).write_text(noise * (17 * CHUNK // len(noise)) + value)
    server = Server()
    write_all(server, tmp_path, ended())
    assert server.status["lastValue"] == 0.9


@pytest.mark.parametrize(("attempt_in_force", "reads"), [(0, True), (1, True), (2, False)])
def test_the_pod_of_an_earlier_attempt_leaves_the_status_alone(
    tmp_path: Path, attempt_in_force: int, reads: bool
) -> None:
    """An agent that starts anew finds it beside the live one, with a cursor that is not its own."""
    old = ended(attempt=1)
    log_of(tmp_path, old).write_text(f'{STAMP} {{"acc": 0.1}}\n')
    live = {"podUid": "p2", "container": "train", "file": "0.log", "fingerprint": "f", "offset": 9, "lines": 3}
    server = Server(attempt=attempt_in_force, lastStep=3, lastValue=0.5, reader=live)
    write_all(server, tmp_path, old)
    assert (server.status["reader"]["podUid"] == old.uid) == reads
    assert (server.patches > 0) == reads


def test_the_gpu_seconds_of_a_silent_holder_are_fresh(tmp_path: Path) -> None:
    """Round robin and budgets go by them; a trial may print nothing for minutes."""
    server = Server()
    book = Book(replace(ended(), ended=False), "n")
    book.follow(TrialState.RUNNING, ("A",), time.time())
    settings = AgentSettings(
        node_name="n", pod_logs=tmp_path, log_seconds=0.01, trial_report_seconds=0.01, turn_report_seconds=0.02
    )
    writer = TrialWriter(settings, cast(Api, server), Metrics(), book)

    async def until_three_patches() -> None:
        task = asyncio.ensure_future(writer.run())
        await server.third.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(until_three_patches(), 10))
    assert server.status["gpuSeconds"] > 0.0
