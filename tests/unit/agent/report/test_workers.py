"""Trials of several workers: only the agent of rank 0 writes the trial's status, and counts the GPUs of all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from agent_builders import TrialServer, cri, pod
from agent_writing import Writing, end, started

from podium_agent.metrics import Metrics
from podium_agent.observe.pods import PodWorker, parse
from podium_agent.observe.sources.push import PushQueues
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.node_reconciler import run_queues_of
from podium_agent.wiring import TrialWriters
from podium_cluster.client import Api
from podium_core.attempts.local_scheduler import QueueEntry
from podium_core.attempts.lost_work import AttemptStart
from podium_core.attempts.trial_status import ledger_fields, ledger_from
from podium_core.attempts.usage_ledger import MAX_RECENT, SuspensionCost, UsageLedger, begin_attempt, follow
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import GPUNode, SlotState
from podium_core.schema.trial import TrialStatus

RUNNING, SUSPENDED = SlotState.RUNNING, SlotState.SUSPENDED


@pytest.mark.parametrize(
    ("labels", "worker"),
    [
        ({}, PodWorker(0, 1)),
        ({"podium.dev/rank": "0", "podium.dev/workers": "2"}, PodWorker(0, 2)),
        ({"podium.dev/rank": "15", "podium.dev/workers": "16"}, PodWorker(15, 16)),
        ({"podium.dev/rank": "x", "podium.dev/workers": "0"}, PodWorker(0, 1)),
    ],
)
def test_a_pod_names_its_rank_and_the_number_of_workers(labels: dict[str, str], worker: PodWorker) -> None:
    owner = {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "name": "a",
        "uid": "u",
        "controller": True,
    }
    about: dict[str, Any] = {"name": "a-0", "namespace": "lab", "uid": "p", "ownerReferences": [owner]}
    about["labels"] = {"podium.dev/trial": "a", **labels}
    assert parse({"metadata": about, "spec": {"containers": [{"name": "train"}]}, "status": {}}).worker == worker


@pytest.mark.parametrize(("given", "on_hold"), [({}, False), ({"onHold": True}, True), ({"onHold": False}, False)])
def test_the_local_scheduler_learns_which_entries_are_on_hold(given: dict[str, Any], on_hold: bool) -> None:
    entry = {"namespace": "lab", "trial": "a", "uid": "u", "reason": "WaitingForAllGPUs", "message": "It waits."}
    spec = {"epoch": 3, "gpus": [{"uuid": "G", "runQueue": [entry | given]}]}
    queues = run_queues_of(GPUNode.model_validate({"metadata": {"name": "n"}, "spec": spec}))
    assert queues.of("G") == (QueueEntry(TrialKey("lab", "a", "u"), "WaitingForAllGPUs", "It waits.", on_hold),)


def test_the_gpu_seconds_of_all_workers_count() -> None:
    """Three workers of two GPUs: one that is suspended after 10 s and runs again, as read back after a restart."""
    ledger = follow(UsageLedger(workers=3), RUNNING, ("A", "B"), "n", 100.0)
    ledger = follow(ledger, SUSPENDED, ("A", "B"), "n", 110.0)
    assert ledger.gpu_seconds(200.0) == 60.0
    ledger = follow(ledger, RUNNING, ("A", "B"), "n", 200.0)
    assert ledger.gpu_seconds(205.0) == 90.0
    stored = TrialStatus.model_validate(ledger_fields(ledger, 205.0))
    assert ledger_from(stored, 3) == ledger
    ended = begin_attempt(ledger_from(stored, 3), AttemptStart(None, "m", 1), None, stored.gpu_seconds, 900.0)
    assert (ended.allocations[-1].end, ended.gpu_seconds(900.0)) == (205.0, 90.0)


def test_the_agent_of_rank_0_writes_the_gpu_seconds_of_both_workers(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        one = pod(worker=PodWorker(0, 2))
        writing.machine.log(one).write_text(cri('{"acc": 0.9}'))
        await writing.whole_life(started(one))

    since, until = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
    status = write(scene, allocations=[{"gpus": ["G"], "node": "n", "start": since, "end": until}]).parsed
    assert (status.last_value, status.gpu_seconds) == (0.9, 20.0)


def test_the_agent_of_another_rank_writes_only_the_conditions_of_its_pod(write: Callable[..., TrialServer]) -> None:
    shown: list[tuple[str, str]] = []
    records: list[TrialRecord] = []

    async def scene(writing: Writing) -> None:
        async def patch(_: Any, name: str, __: str, body: dict[str, Any], **___: Any) -> None:
            shown.append((name, body["status"]["conditions"][0]["reason"]))

        writing.server.strategic_patch = patch  # type: ignore[method-assign]
        one = pod(worker=PodWorker(1, 2))
        writing.machine.log(one).write_text(cri('{"acc": 0.9}'))
        settings = writing.machine.settings()
        async with asyncio.TaskGroup() as tasks:
            writers = TrialWriters(settings, cast(Api, writing.server), Metrics(), tasks, PushQueues())
            record = writers.open(one)
            records.append(record)
            record.life.started = True
            for number in range(2 * MAX_RECENT):
                record.suspended(SuspensionCost("freeze", float(number), 0.1))
            for state in (RUNNING, SUSPENDED, RUNNING):
                record.follow(state, ("G",), 100.0)
                await writing.until(lambda state=state: shown and shown[-1][1] == str(state), f"{state} on the pod")
            assert record.held_since() == 100.0
            end(record)  # the writer ends, and with it the group

    assert write(scene).written == []
    assert shown == [("a-0", "Running"), ("a-0", "Suspended"), ("a-0", "Running")]
    (record,) = records
    assert record.writing.changes == [], "nothing waits for a status that it never writes"
    assert record.ledger is not None
    assert len(record.ledger.recent) == MAX_RECENT


def test_the_writer_of_another_rank_survives_what_it_does_not_expect(write: Callable[..., TrialServer]) -> None:
    shown: list[str] = []

    async def scene(writing: Writing) -> None:
        async def patch(*_: Any, **__: Any) -> None:
            shown.append("again" if shown else "once")
            if shown == ["once"]:
                raise RuntimeError("a bug")

        writing.server.strategic_patch = patch  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            writers = TrialWriters(
                writing.machine.settings(), cast(Api, writing.server), Metrics(), tasks, PushQueues()
            )
            record = writers.open(pod(worker=PodWorker(1, 2)))
            record.follow(RUNNING, ("G",), 100.0)
            await writing.until(lambda: "again" in shown, "a second pass")
            end(record)

    write(scene)
