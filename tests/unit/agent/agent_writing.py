"""Trial writers on a machine of folders, each a task that can be killed between any two turns of its loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from agent_builders import Machine, TrialServer

from podium_agent.metrics import Metrics
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.sources.push import PushQueues
from podium_agent.report.trial_record import TrialRecord
from podium_agent.report.trial_writer import TrialWriter
from podium_cluster.client import Api
from podium_core.attempts.lost_work import GateReport


def started(one: TrialPod, gate_report: GateReport | None = None, node: str = "n") -> TrialRecord:
    trial_record = TrialRecord(one, node)
    trial_record.life.started, trial_record.life.gate_report = True, gate_report
    return trial_record


def end(trial_record: TrialRecord) -> None:
    trial_record.follow(None, (), time.time())
    trial_record.life.closed = True
    trial_record.urgent.set()


class Writing:
    """The machine, and the API server that its writers talk to."""

    def __init__(self, folder: Path, server: TrialServer) -> None:
        self.machine = Machine(folder)
        self.server = server

    def start(self, trial_record: TrialRecord, queues: PushQueues | None = None, **settings: Any) -> asyncio.Task[None]:
        api, made = cast(Api, self.server), self.machine.settings(**settings)
        return asyncio.ensure_future(TrialWriter(made, api, Metrics(), trial_record, queues).run())

    async def until(self, condition: Callable[[], object], what: str) -> None:
        end_at = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end_at, f"{what}: never"
            await asyncio.sleep(0.002)

    async def whole_life(self, trial_record: TrialRecord, **settings: Any) -> None:
        """From its start to the end of a pod that has ended."""
        end(trial_record)
        await asyncio.wait_for(self.start(trial_record, **settings), 300)


async def kill(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def log_cursor(pod_uid: str, **more: Any) -> dict[str, Any]:
    return {"podUid": pod_uid, "container": "train", "file": "", "fingerprint": "", "offset": 0, "lines": 0} | more
