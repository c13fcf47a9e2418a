"""What a new attempt lost, counted once over agents that die and nodes that change; and whose the record is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from agent_builders import TrialServer, cri, pod
from agent_writing import Writing, kill, log_cursor, started

from podium_core.attempts.lost_work import CompletionMarker, GateReport
from podium_core.attempts.usage_ledger import SuspensionCost
from podium_core.schema.gpunode import SlotState

RUNNING = SlotState.RUNNING


def saved_status(**more: Any) -> dict[str, Any]:
    saved = {"step": 10, "at": "2026-11-21T00:00:00Z", "path": "step-10", "node": "far", "gpuSeconds": 40.0}
    return {"lastStep": 15, "gpuSeconds": 100.0, "checkpoint": saved, "logCursor": log_cursor(pod().uid)} | more


@pytest.mark.parametrize(
    ("gate_report", "printed_by_gate", "resumed_from"),
    [
        (GateReport(CompletionMarker(10.0, "step-10")), None, 10.0),
        (GateReport(CompletionMarker(12.0, "step-12")), None, 12.0),
        (GateReport(None), None, 0.0),
        (None, "saved: 13", 13.0),
        (None, "saved: null", 0.0),
        (None, "wait: an older gate", 10.0),
        (None, None, 10.0),
    ],
)
def test_the_lost_work_of_an_attempt(
    write: Callable[..., TrialServer], gate_report: GateReport | None, printed_by_gate: str | None, resumed_from: float
) -> None:
    """The gate tells; to an agent that was not there its log does; else what the status says has to do."""

    async def scene(writing: Writing) -> None:
        new = pod(attempt=1)
        if printed_by_gate is not None:
            writing.machine.log(new, "podium-gate").write_text(cri(printed_by_gate))
        await writing.whole_life(started(new, gate_report))

    lost_work = write(scene, attempt=1, **saved_status()).parsed.lost_work
    assert (lost_work.count, lost_work.steps) == (1, 15.0 - resumed_from)
    assert (lost_work.recent[0].attempt, lost_work.recent[0].resumed_from) == (1, resumed_from)


@pytest.mark.parametrize("deaths", [0, 1, 5])
def test_lost_work_is_counted_once_however_often_the_agent_dies(write: Callable[..., TrialServer], deaths: int) -> None:
    """Also while the attempt prints further steps, which the attempt before did not lose."""
    new = pod(attempt=1)

    async def scene(writing: Writing) -> None:
        log = writing.machine.log(new)
        for number in range(deaths):
            before = writing.server.patches
            trial_record = started(new, GateReport(CompletionMarker(10.0, "step-10")) if number == 0 else None)
            trial_record.follow(RUNNING, ("A",), time.time())
            task = writing.start(trial_record)
            with log.open("a") as file:
                file.write(cri(f'{{"step": {20 + number}, "acc": 0.5}}'))
            await writing.until(lambda n=before: writing.server.patches > n, "a patch")
            await kill(task)
        await writing.whole_life(started(new, GateReport(CompletionMarker(10.0, "step-10"))))

    lost_work = write(scene, attempt=1, **saved_status()).parsed.lost_work
    assert (lost_work.count, lost_work.steps, lost_work.gpu_seconds, lost_work.accounted_gpu_seconds) == (
        1,
        5.0,
        60.0,
        100.0,
    )


def test_a_final_report_of_another_node_counts_as_lost_work(write: Callable[..., TrialServer]) -> None:
    """The old pod's agent writes after this one has looked: the loss is counted again from what is true then."""

    async def scene(writing: Writing) -> None:
        server, new = writing.server, started(pod(attempt=1), GateReport(CompletionMarker(10.0, "step-10")))
        new.follow(RUNNING, ("A",), 1000.0)
        load = server.get
        looks = 0

        async def get(*words: Any) -> dict[str, Any]:
            nonlocal looks
            looks += 1
            answer = await load(*words)
            if looks == 1:
                server.write(saved_status(lastStep=17, gpuSeconds=120.0))
            return answer

        server.get = get  # type: ignore[method-assign]
        writing.machine.log(new.pod).write_text(cri('{"step": 11, "acc": 0.1}') + cri('{"step": 18, "acc": 0.2}'))
        await writing.whole_life(new)

    status = write(scene, attempt=1, **saved_status()).parsed
    assert (status.lost_work.steps, status.lost_work.gpu_seconds) == (7.0, 80.0)
    assert status.last_step == 18.0
    assert status.log_cursor is not None
    assert status.log_cursor.lines == 2
    assert [allocation.start.timestamp() for allocation in status.allocations] == [1000.0]


def test_the_writer_of_an_older_pod_stops_once_a_newer_pod_has_started(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        old = started(pod())
        task = writing.start(old)
        old.suspended(SuspensionCost("freeze", 1.0, 0.5))
        await writing.until(lambda: writing.server.patches == 1, "a patch of the old one")
        writing.server.operator_writes(attempt=1)
        await writing.whole_life(started(pod(attempt=1), GateReport(None), node="m"))
        old.suspended(SuspensionCost("freeze", 2.0, 0.5))
        await asyncio.wait_for(task, 300)

    status = write(scene).parsed
    assert status.log_cursor is not None
    assert status.log_cursor.pod_uid == pod(attempt=1).uid
    assert status.suspensions.count == 1
