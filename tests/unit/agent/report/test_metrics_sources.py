"""A trial's writer with other sources than its log: files that outlive pods, pushed values, and what is missing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_builders import FIRST_PID, Machine, TrialServer, pod
from agent_writing import Writing, end, kill, log_cursor, started
from descriptors import no_threads
from event_files import append, event

import podium_core.attempts.unread_log
from podium.push import Push
from podium_agent.observe.cgroups import Container
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.sources.push import PushQueues
from podium_agent.observe.sources.push_server import PushServer
from podium_agent.report.trial_record import TrialRecord
from podium_core.attempts.lost_work import GateReport
from podium_core.schema.gpunode import SlotState
from podium_core.schema.metrics.config import MetricsConfig

TRAIN = "ab" * 32


def reading(source: str, **more: object) -> MetricsConfig:
    given = {"metric": "acc", "direction": "maximize", "container": "train", "source": source}
    return MetricsConfig.model_validate(given | more)


def running(machine: Machine, one: TrialPod, container: str = TRAIN) -> TrialRecord:
    """Start the container of a pod; return its record."""
    pid = next(machine.pids)
    freezer = machine.run(one, container, pid)
    trial_record = started(one, GateReport(None))
    trial_record.main = Container(container, pid, freezer)
    trial_record.follow(SlotState.RUNNING, ("A",), 100.0)
    return trial_record


def folder_of(machine: Machine, container: str = TRAIN) -> Path:
    place = machine.root(container) / "logs"
    place.mkdir(parents=True, exist_ok=True)
    return place


def line(step: int) -> str:
    return json.dumps({"step": step, "acc": step / 16}) + "\n"


def test_a_file_is_read_while_the_trial_runs_and_after_its_end(write: Callable[..., TrialServer]) -> None:
    one = pod(settings__metrics=reading("file", path="/logs/a.jsonl"), containers__main=TRAIN)

    async def scene(writing: Writing) -> None:
        file = folder_of(writing.machine) / "a.jsonl"
        trial_record = running(writing.machine, one)
        task = writing.start(trial_record)
        file.write_text(line(1))
        await writing.until(lambda: writing.server.parsed.last_step == 1.0, "the first step")
        with file.open("a") as more:
            more.write(line(2).strip())  # nothing ends the last line
        assert trial_record.main is not None
        writing.machine.end(trial_record.main.freezer)
        end(trial_record)
        await asyncio.wait_for(task, 300)

    status = write(scene).parsed
    assert [(point.step, point.value) for point in status.curve.points] == [(1.0, 1 / 16), (2.0, 2 / 16)]
    assert status.log_cursor is not None
    assert (status.log_cursor.file, status.log_cursor.offset) == ("a.jsonl", len(line(1) + line(2)) - 1)


def test_a_shortage_of_threads_delays_metrics_and_checkpoints_only(
    write: Callable[..., TrialServer], caplog: pytest.LogCaptureFixture
) -> None:
    one = pod(
        settings__metrics=reading("file", path="/logs/a.jsonl"), containers__main=TRAIN, settings__checkpoint="/logs"
    )

    async def scene(writing: Writing) -> None:
        server, folder = writing.server, folder_of(writing.machine)
        trial_record = running(writing.machine, one)
        (folder / "a.jsonl").write_text(line(1))
        task = writing.start(trial_record, holder_report_seconds=0.01)
        await writing.until(lambda: server.parsed.last_step == 1.0, "the first step")
        with no_threads():
            await writing.until(lambda: "metrics cannot be read now" in caplog.text, "the message")
            await writing.until(lambda: "checkpoints cannot be read" in caplog.text, "the other message")
            spent = server.parsed.gpu_seconds
            await writing.until(lambda: server.parsed.gpu_seconds > spent, "the status is written")
        with (folder / "a.jsonl").open("a") as more:
            more.write(line(2))
        (folder / "podium-checkpoint.json").write_text('{"step": 2}')
        await writing.until(lambda: server.parsed.last_step == 2.0 and server.parsed.checkpoint, "both")
        end(trial_record)
        await asyncio.wait_for(task, 300)

    write(scene)
    assert "Resource temporarily unavailable" in caplog.text


@pytest.mark.parametrize("kept", [True, False], ids=["on a volume", "on an ephemeral disk"])
def test_a_new_attempt_counts_no_step_twice(write: Callable[..., TrialServer], kept: bool) -> None:
    config, other = reading("file", path="/logs/a.jsonl"), "cd" * 32

    async def scene(writing: Writing) -> None:
        first, second = (
            pod(settings__metrics=config, containers__main=TRAIN),
            pod(attempt=1, settings__metrics=config, containers__main=other),
        )
        before = "".join(map(line, (1, 2, 3)))
        (folder_of(writing.machine) / "a.jsonl").write_text(before)
        trial_record = running(writing.machine, first)
        task = writing.start(trial_record)
        await writing.until(lambda: writing.server.parsed.last_step == 3.0, "three steps")
        end(trial_record)
        await asyncio.wait_for(task, 300)
        writing.server.operator_writes(attempt=1)
        again = "".join(map(line, (3, 4)))
        (folder_of(writing.machine, other) / "a.jsonl").write_text(before + again if kept else again)
        trial_record = running(writing.machine, second, other)
        trial_record.follow(SlotState.RUNNING, ("A",), 200.0)
        task = writing.start(trial_record)
        await writing.until(lambda: writing.server.parsed.last_step == 4.0, "the next step")
        end(trial_record)
        await asyncio.wait_for(task, 300)

    status = write(scene).parsed
    assert [point.step for point in status.curve.points] == [1.0, 2.0, 3.0, 4.0]
    assert status.log_cursor is not None
    assert status.log_cursor.lines == 5, "of the kept file only the new lines were read"


def test_event_files_have_a_cursor_each(write: Callable[..., TrialServer]) -> None:
    one = pod(settings__metrics=reading("tensorboard", path="/logs"), containers__main=TRAIN)
    data = event(1, acc=0.5) + event(2, acc=0.75)

    async def scene(writing: Writing) -> None:
        append(folder_of(writing.machine) / "events.out.tfevents.1.h", data)
        trial_record = running(writing.machine, one)
        task = writing.start(trial_record)
        await writing.until(lambda: writing.server.parsed.last_step == 2.0, "two steps")
        await kill(task)
        trial_record = started(one, GateReport(None))
        trial_record.main = Container(TRAIN, FIRST_PID, writing.machine.run(one, "ef" * 32))
        append(folder_of(writing.machine) / "events.out.tfevents.2.h", event(3, acc=0.8))
        task = writing.start(trial_record)
        await writing.until(lambda: writing.server.parsed.last_step == 3.0, "the next step")
        await kill(task)

    status = write(scene).parsed
    assert status.log_cursor is not None
    cursors = [(file.name, file.offset) for file in status.log_cursor.files or ()]
    assert cursors == [("events.out.tfevents.1.h", len(data)), ("events.out.tfevents.2.h", len(event(3, acc=0.8)))]
    assert [point.step for point in status.curve.points] == [1.0, 2.0, 3.0]


def test_what_is_missing_is_reported_without_a_single_line(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podium_core.attempts.unread_log, "AFTER", 0.0)
    one = pod(settings__metrics=reading("file", path="/logs/a.jsonl"), containers__main=TRAIN)

    async def scene(writing: Writing) -> None:
        file = folder_of(writing.machine) / "a.jsonl"
        trial_record = running(writing.machine, one)
        task = writing.start(trial_record)
        await writing.until(lambda: "does not exist" in str(writing.server.status.get("unreadLog")), "the report")
        file.write_text(line(1))
        await writing.until(lambda: "unreadLog" not in writing.server.status, "a value ends the report")
        end(trial_record)
        await asyncio.wait_for(task, 300)

    assert write(scene).parsed.last_step == 1.0


def test_pushed_values_are_acknowledged_when_they_are_stored(write: Callable[..., TrialServer]) -> None:
    one = pod(settings__metrics=reading("push"), containers__main=TRAIN)
    queues = PushQueues()

    async def scene(writing: Writing) -> None:
        machine, folder = writing.machine, writing.machine.folder
        process = folder / "proc" / str(os.getpid())
        process.mkdir()
        (process / "cgroup").write_text(f"0::/kubepods/pod{one.uid}/{TRAIN}\n")
        trial_record = running(machine, one)
        async with PushServer(folder / "proc", queues).serve(folder):
            task = writing.start(trial_record, queues, trial_report_seconds=60)
            push = Push(str(folder / "metrics.sock"))
            push.add('{"step": 1, "acc": 0.5}')
            await writing.until(lambda: writing.server.parsed.last_step == 1.0, "the first report")
            push.add('{"step": 2, "acc": 0.75}')
            push.add('{"step": 2, "acc": 0.75}')
            assert await asyncio.to_thread(push.finish, 50.0), "the end of the script does not wait for the period"
            assert writing.server.parsed.last_step == 2.0
            end(trial_record)
            await asyncio.wait_for(task, 300)

    status = write(scene, logCursor=log_cursor(one.uid)).parsed
    assert status.log_cursor is not None
    assert (status.log_cursor.file, status.log_cursor.offset) == ("push", 3)
