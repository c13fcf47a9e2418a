"""One trial's writer over its whole life: log, status and versions, with agents that die and an API that goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from agent_builders import TrialServer, cri, pod
from agent_writing import Writing, end, kill, log_cursor, started

import podium_agent.observe.sources.stdout
import podium_agent.report.trial_writer
import podium_core.attempts.unread_log
from podium_agent.report.checkpoint_watch import CheckpointWatch
from podium_agent.report.trial_record import TrialRecord
from podium_core.attempts.lost_work import CompletionMarker, GateReport
from podium_core.attempts.usage_ledger import SuspensionCost
from podium_core.logs.line_reader import ParsedLine
from podium_core.logs.skipping import MAX_CONSECUTIVE
from podium_core.schema.gpunode import SlotState
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import CHUNK

TEXT = MetricsConfig.model_validate(
    {"metric": "acc", "direction": "maximize", "container": "train", "format": "text", "stepKey": "epoch"}
)
JSON = MetricsConfig.model_validate({"metric": "acc", "direction": "maximize", "container": "train"})
RUNNING = SlotState.RUNNING
SUSPENDED = SlotState.SUSPENDED


def test_the_end_of_a_long_unread_log_is_not_lost(write: Callable[..., TrialServer]) -> None:
    """Nor is the hold closed before it is read: that says to the operator that the curve is whole."""
    since = datetime.fromtimestamp(time.time() - 60, UTC).isoformat()
    allocations = [{"gpus": ["G"], "node": "n", "start": since}]

    async def scene(writing: Writing) -> None:
        noise = cri("x" * 8000)
        writing.machine.log(pod()).write_text(noise * (33 * CHUNK // len(noise)) + cri('{"acc": 0.9}'))
        await writing.whole_life(started(pod()), log_seconds=1e-9)  # a look takes longer than it waits for containerd

    server = write(scene, allocations=allocations, logCursor=log_cursor(pod().uid))
    assert server.status["lastValue"] == 0.9
    closed = [status["lastValue"] for status in server.written if "end" in status["allocations"][-1]]
    assert closed == [0.9] * len(closed) != []


def test_a_log_without_a_value_is_reported_until_a_value_comes(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podium_core.attempts.unread_log, "AFTER", 0.0)

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri('{"accuracy": 0.9}'))
        await writing.whole_life(started(pod()))

    server = write(scene)
    assert server.status["unreadLog"] == {
        "lines": 1,
        "reason": "no line names acc",
        "last": ['{"accuracy": 0.9}'],
    }


def test_a_value_ends_the_report(write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podium_core.attempts.unread_log, "AFTER", 0.0)

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri("hello") + cri('{"acc": 0.9}'))
        await writing.whole_life(started(pod()))

    server = write(
        scene, unreadLog={"lines": 9, "reason": "no line names acc", "last": []}, logCursor=log_cursor(pod().uid)
    )
    assert "unreadLog" not in server.status
    assert server.status["lastValue"] == 0.9


def test_a_line_on_which_the_parser_fails_is_skipped_and_counted(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parse = podium_agent.observe.sources.stdout.line_reader(JSON)

    def read(line: str) -> list[ParsedLine]:
        if "bad" in line:
            raise ZeroDivisionError(line)
        return parse(line)

    monkeypatch.setattr(podium_agent.observe.sources.stdout, "line_reader", lambda _: read)

    async def scene(writing: Writing) -> None:
        lines = [cri(f"bad {number}") for number in range(5)]
        writing.machine.log(pod()).write_text("".join(lines[:4]) + cri('{"acc": 0.5}') + lines[4] + cri('{"acc": 0.6}'))
        await writing.whole_life(started(pod()))

    server = write(scene)
    assert [point.value for point in server.parsed.curve.points] == [0.5, 0.6]
    assert "unreadLog" not in server.status
    assert "the reader failed on 5 lines and skipped them, at last for ZeroDivisionError('bad 4')" in caplog.text


def test_skipped_lines_are_reported_until_a_value_comes(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(line: str) -> list[ParsedLine]:
        raise ZeroDivisionError(line)

    monkeypatch.setattr(podium_agent.observe.sources.stdout, "line_reader", lambda _: read)
    monkeypatch.setattr(podium_core.attempts.unread_log, "AFTER", 0.0)

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri("one acc") + cri("two"))
        await writing.whole_life(started(pod()))

    status = write(scene).status
    reason = "the reader failed on 2 lines and skipped them, at last for ZeroDivisionError('two')"
    assert status["unreadLog"]["reason"] == reason


def test_a_source_on_which_every_line_fails_pauses_only_the_metrics(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial's GPU-seconds are counted and written all the same."""

    def read(_: str) -> list[ParsedLine]:
        raise ZeroDivisionError

    monkeypatch.setattr(podium_agent.observe.sources.stdout, "line_reader", lambda _: read)
    monkeypatch.setattr(podium_agent.report.trial_writer, "UNREADABLE_SECONDS", 0.0)

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri("x") * (MAX_CONSECUTIVE + 1))
        record, server = started(pod()), writing.server
        record.follow(RUNNING, ("G",), time.time())
        task = writing.start(record, holder_report_seconds=0.01)
        await writing.until(lambda: "unreadLog" in server.status, "the reason")
        before = server.parsed.gpu_seconds
        await writing.until(lambda: server.parsed.gpu_seconds > before, "more GPU-seconds")
        end(record)
        await asyncio.wait_for(task, 300)

    status = write(scene).status
    assert "the agent's reader failed (ZeroDivisionError())" in status["unreadLog"]["reason"]
    assert "end" in status["allocations"][-1]


def test_a_source_that_failed_once_is_read_from_its_position(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, failures = podium_agent.observe.sources.stdout.line_reader, [MemoryError()]

    def read(line: str) -> list[ParsedLine]:
        if "0.75" in line and failures:
            raise failures.pop()
        return parse(JSON)(line)

    monkeypatch.setattr(podium_agent.observe.sources.stdout, "line_reader", lambda _: read)

    async def scene(writing: Writing) -> None:
        log, record = writing.machine.log(pod()), started(pod())
        log.write_text(cri('{"acc": 0.5}'))
        task = writing.start(record)
        await writing.until(lambda: writing.server.status.get("lastValue") == 0.5, "the first value")
        with log.open("a") as file:
            file.write(cri('{"acc": 0.6}') + cri('{"acc": 0.75}'))
        await writing.until(lambda: writing.server.status.get("lastValue") == 0.75, "the value after the error")
        end(record)
        await asyncio.wait_for(task, 300)

    server = write(scene)
    assert [point.value for point in server.parsed.curve.points] == [0.5, 0.6, 0.75]
    assert any("unreadLog" in status for status in server.written)
    assert "unreadLog" not in server.status


@pytest.mark.parametrize("lasts", [True, False], ids=["always", "once"])
def test_a_writer_that_crashes_tries_again(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lasts: bool
) -> None:
    look, failures = CheckpointWatch.look, [KeyError("x")]
    monkeypatch.setattr(podium_agent.report.trial_writer, "CRASHES_AFTER_END", 1)

    async def failing(watch: CheckpointWatch) -> None:
        if failures:
            raise failures[0] if lasts else failures.pop()
        await look(watch)

    monkeypatch.setattr(CheckpointWatch, "look", failing)

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri('{"acc": 0.5}'))
        await writing.whole_life(started(pod()))

    server = write(scene)
    assert "its status is not written, trying again" in caplog.text
    assert ("its status is not complete" in caplog.text) == lasts
    assert (server.status.get("lastValue") == 0.5) != lasts


@pytest.mark.parametrize(("attempt_in_force", "reads"), [(0, True), (1, True), (2, False)])
def test_the_pod_of_an_earlier_attempt_does_not_write_the_status(
    write: Callable[..., TrialServer], attempt_in_force: int, reads: bool
) -> None:
    """A restarted agent sees it beside the live pod, with a cursor that is not its own."""
    old = pod(attempt=1)

    async def scene(writing: Writing) -> None:
        writing.machine.log(old).write_text(cri('{"acc": 0.1}'))
        await writing.whole_life(started(old))

    server = write(scene, attempt=attempt_in_force, lastStep=3, lastValue=0.5, logCursor=log_cursor("live", offset=9))
    assert (server.status["logCursor"]["podUid"] == old.uid) == reads
    assert (server.patches > 0) == reads


def test_the_final_report_of_a_pod_is_written_although_a_new_pod_exists(
    write: Callable[..., TrialServer],
) -> None:
    """The record is still its own: the new pod's begins when that passes its gate."""

    async def scene(writing: Writing) -> None:
        writing.machine.log(pod()).write_text(cri('{"acc": 0.1}') + cri('{"acc": 0.2}'))
        await writing.whole_life(started(pod()))

    server = write(scene, attempt=1, logCursor=log_cursor(pod().uid))
    assert server.status["lastStep"] == 2.0


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("begins", "lost"), [(21, 0.0), (16, 5.0), (1, 20.0)])
def test_a_script_that_continues_before_its_checkpoint_loses_that_too(
    write: Callable[..., TrialServer], begins: int, lost: float, killed: bool
) -> None:
    """Also where the agent dies after it has read the first lines, in which there is no value."""
    reading = MetricsConfig.model_validate(
        {"metric": "acc", "direction": "maximize", "container": "train", "format": "json", "stepKey": "epoch"}
    )
    second, said = pod(attempt=1, settings__metrics=reading), GateReport(CompletionMarker(20.0))
    points = [{"step": float(step), "value": 0.1, "time": 1.0} for step in range(1, 21)]

    async def scene(writing: Writing) -> None:
        log = writing.machine.log(second)
        log.write_text(cri("hello"))
        if killed:
            trial_record = started(second, said)
            task = writing.start(trial_record)
            await writing.until(
                lambda: writing.server.status["logCursor"]["podUid"] == second.uid, "the record is its own"
            )
            await kill(task)
        with log.open("a") as file:
            file.write("".join(cri(f'{{"acc": 0.1, "epoch": {step}}}') for step in (begins, begins + 1, begins + 2)))
        trial_record = started(second, said)
        await writing.whole_life(trial_record)

    stored = {"curve": {"points": points}, "lastStep": 20, "lastValue": 0.1, "gpuSeconds": 40.0}
    status = write(scene, **stored, logCursor=log_cursor("before", step=20.0)).parsed
    assert (status.lost_work.steps, status.lost_work.count) == (lost, int(lost > 0))
    assert [loss.resumed_from for loss in status.lost_work.recent] == ([20.0 - lost] if lost else [])
    assert status.last_step == max(20.0, begins + 2.0)


@pytest.mark.parametrize(("begins", "saved", "lost"), [(-1, None, 0.0), (-1, 20.0, 20.0), (0, 20.0, 20.0)])
def test_a_script_never_loses_more_steps_than_it_had(
    write: Callable[..., TrialServer], begins: int, saved: float | None, lost: float
) -> None:
    """Some print an evaluation before the first step as step -1. One such line once ended the whole agent."""
    reading = TEXT.model_copy(update={"format": "json"})
    one = pod(attempt=1, settings__metrics=reading)

    async def scene(writing: Writing) -> None:
        writing.machine.log(one).write_text(cri(f'{{"acc": 0.1, "epoch": {begins}}}') + cri('{"acc": 0.2, "epoch": 1}'))
        await writing.whole_life(started(one, GateReport(None if saved is None else CompletionMarker(saved))))

    stored = {"lastStep": saved, "lastValue": 0.1, "gpuSeconds": 40.0} if saved is not None else {}
    status = write(scene, **stored, logCursor=log_cursor("before", step=saved)).parsed
    assert status.lost_work.steps == lost
    assert [(loss.resumed_from, loss.steps) for loss in status.lost_work.recent] == ([(0.0, lost)] if lost else [])


def test_a_pod_that_never_passed_its_gate_writes_nothing(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        await writing.whole_life(TrialRecord(pod(attempt=1, gate__passed=False), "n"))

    assert write(scene, lastStep=7).patches == 0


def test_the_gpu_seconds_of_a_silent_holder_are_fresh(write: Callable[..., TrialServer]) -> None:
    """Round robin and budgets go by them; a trial may print nothing for minutes."""

    async def scene(writing: Writing) -> None:
        trial_record = started(pod())
        trial_record.follow(RUNNING, ("A",), time.time())
        task = writing.start(trial_record, holder_report_seconds=0.02)
        await writing.until(lambda: writing.server.patches >= 3, "three patches")
        await kill(task)

    assert write(scene).parsed.gpu_seconds > 0.0


def test_writes_of_the_operator_cost_only_another_read(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        trial_record, server = started(pod()), writing.server
        task = writing.start(trial_record)
        for number in range(1, 6):
            trial_record.suspended(SuspensionCost("freeze", float(number), 0.5))
            await writing.until(lambda n=number: server.parsed.suspensions.count == n, f"suspension {number}")
            server.operator_writes(phase="Running", rank=number)
        end(trial_record)
        await asyncio.wait_for(task, 300)

    server = write(scene)
    assert server.conflicts >= 4
    assert (server.parsed.suspensions.count, server.parsed.rank) == (5, 5)


def test_a_writer_sends_nothing_before_the_operator_has_listed_its_node(write: Callable[..., TrialServer]) -> None:
    """The admission policy would refuse it."""

    async def scene(writing: Writing) -> None:
        server, reads, get = writing.server, 0, writing.server.get

        async def counted(*rest: object) -> dict[str, object]:
            nonlocal reads
            reads += 1
            return await get(*rest)

        server.get = counted  # type: ignore[method-assign]
        writing.machine.log(pod()).write_text(cri('{"acc": 0.5}'))
        task = writing.start(started(pod()))
        await writing.until(lambda: reads == 2, "the status is read again")
        assert (server.written, server.refused) == ([], 0)
        server.operator_writes(nodes=["n"], phase="Running")
        await writing.until(lambda: server.status.get("lastValue") == 0.5, "the value")
        await kill(task)

    server = write(scene, nodes=[])
    assert (server.refused, server.conflicts) == (0, 0)


def test_without_an_operator_the_metrics_are_read_all_the_same(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podium_agent.report.trial_writer, "LISTED_SECONDS", 0.0)

    async def scene(writing: Writing) -> None:
        server, trial_record = writing.server, started(pod())
        writing.machine.log(pod()).write_text(cri('{"acc": 0.5}'))
        task = writing.start(trial_record)
        await writing.until(lambda: server.refused and trial_record.metrics.curve.accepted, "the value is read")
        server.operator_writes(nodes=["n"])
        await writing.until(lambda: server.status.get("lastValue") == 0.5, "the value is written")
        await kill(task)

    write(scene, nodes=[])


@pytest.mark.parametrize(("attempt", "written"), [(0, True), (1, False)])
def test_a_pod_that_is_in_the_status_waits_for_no_operator(
    write: Callable[..., TrialServer], attempt: int, written: bool
) -> None:
    """A later pod may have taken the place of this node in the list, and the record is complete or gone."""

    async def scene(writing: Writing) -> None:
        await writing.whole_life(started(pod()))

    cursor = log_cursor(pod().uid if written else "another")
    server = write(scene, nodes=["m"], attempt=attempt, logCursor=cursor)
    assert bool(server.written) is written


def test_a_lost_answer_counts_nothing_twice(write: Callable[..., TrialServer]) -> None:
    """The answer to the first patch is lost: the next one is refused, and the record turns out to be this pod's."""

    async def scene(writing: Writing) -> None:
        writing.server.answers_lost = 1
        trial_record = started(pod(attempt=1), GateReport(None))
        trial_record.follow(RUNNING, ("A",), 100.0)
        trial_record.suspended(SuspensionCost("freeze", 110.0, 0.5))
        trial_record.follow(SUSPENDED, ("A",), 110.0)
        await writing.whole_life(trial_record)

    status = write(scene, lastStep=4, gpuSeconds=8.0).parsed
    assert (status.suspensions.count, status.lost_work.count, len(status.allocations)) == (1, 1, 1)
    assert status.gpu_seconds == 18.0


def test_a_new_trial_of_the_same_name_gets_nothing_of_this_one(write: Callable[..., TrialServer]) -> None:
    async def scene(writing: Writing) -> None:
        trial_record, server = started(pod()), writing.server
        task = writing.start(trial_record)
        trial_record.suspended(SuspensionCost("freeze", 1.0, 0.5))
        await writing.until(lambda: server.patches == 1, "a patch")
        server.key, server.status, server.version = server.key._replace(uid="another"), {}, server.version + 7
        trial_record.suspended(SuspensionCost("freeze", 2.0, 0.5))
        await asyncio.wait_for(task, 300)

    assert write(scene).status == {}


ANNOUNCING = ["noise", "epoch=3", "noise", "noise", "acc=0.3", "epoch=4", "epoch=5\racc=0.5\repoch=6", "x", "acc=0.6"]


@pytest.mark.parametrize("dies_after", range(1, len(ANNOUNCING) + 1))
def test_an_announced_step_is_not_lost_with_the_agent(write: Callable[..., TrialServer], dies_after: int) -> None:
    """Step and value on different lines, and the agent dies in between: no step is lost, no line is counted twice."""
    one = pod(settings__metrics=TEXT)

    async def scene(writing: Writing) -> None:
        log = writing.machine.log(one)
        log.write_text("".join(cri(text) for text in ANNOUNCING[:dies_after]))
        trial_record = started(one)
        trial_record.follow(RUNNING, ("A",), time.time())
        task = writing.start(trial_record, holder_report_seconds=0.001)
        await writing.until(lambda: trial_record.metrics.curve.lines == dies_after, "the lines so far")
        before = writing.server.patches
        await writing.until(lambda: writing.server.patches > before, "a patch of them")
        await kill(task)
        with log.open("a") as file:
            file.writelines(cri(text) for text in ANNOUNCING[dies_after:])
        await writing.whole_life(started(one))

    status = write(scene).parsed
    assert [(point.step, point.value) for point in status.curve.points] == [(3, 0.3), (5, 0.5), (6, 0.6)]
    assert status.log_cursor is not None
    assert (status.log_cursor.lines, status.log_cursor.step_pending) == (len(ANNOUNCING), False)


def test_the_writer_runs_by_the_clock_however_long_a_pass_takes(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 0.04 s; five looks 0.1 s apart are over in 0.4 s, with as long a pause after each in 0.56 s."""
    looks: list[float] = []

    async def slow(_: CheckpointWatch) -> None:
        looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.04)

    async def scene(writing: Writing) -> None:
        monkeypatch.setattr(CheckpointWatch, "look", slow)
        writer = writing.start(started(pod()), log_seconds=0.1)
        await writing.until(
            lambda: any(after - before < 0.48 for before, after in zip(looks, looks[4:], strict=False)), "by the clock"
        )
        await kill(writer)

    write(scene)


def test_a_trial_that_ends_during_a_stall_gets_time_for_its_last_lines(
    write: Callable[..., TrialServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer hears of the end after its look was due and before it looks: containerd may still be copying then."""
    every, ended, closed = 0.4, list[float](), list[float]()

    async def scene(writing: Writing) -> None:
        loop, trial_record = asyncio.get_running_loop(), started(pod())
        trial_record.follow(RUNNING, ("G",), time.time())

        def ends() -> None:
            ended.append(loop.time())
            end(trial_record)

        async def stalls(_: CheckpointWatch) -> None:
            if not ended:  # of what is due together the loop calls first what was due first
                loop.call_at(loop.time() + every - 0.01, time.sleep, 0.01 + 0.9 * every)
                loop.call_at(loop.time() + every, ends)

        monkeypatch.setattr(CheckpointWatch, "look", stalls)
        await asyncio.wait_for(writing.start(trial_record, log_seconds=every), 300)
        closed.append(loop.time())

    write(scene)
    assert closed[0] - ended[0] >= every


def test_an_allocation_opened_for_the_end_is_written_before_the_pod_is_gone(write: Callable[..., TrialServer]) -> None:
    """Suspended, deleted and thawed for its SIGTERM: while its hold stands as closed, the next attempt would begin."""

    async def scene(writing: Writing) -> None:
        trial_record = started(pod())
        trial_record.follow(SUSPENDED, ("G",), time.time())
        writer = writing.start(trial_record, trial_report_seconds=60)
        await writing.until(lambda: writing.server.patches == 1, "its record")
        trial_record.life.ending = True
        trial_record.follow(RUNNING, ("G",), time.time())
        await writing.until(lambda: "end" not in writing.server.status["allocations"][-1], "the open hold")
        await kill(writer)

    since = datetime.fromtimestamp(time.time() - 60, UTC)
    allocations = [{"gpus": ["G"], "node": "n", "start": since.isoformat(), "end": since.isoformat()}]
    assert len(write(scene, allocations=allocations).status["allocations"]) == 2


@pytest.mark.parametrize(("up", "node", "counted"), [(300.0, "n", 40), (900.0, "n", 600), (300.0, "another", 600)])
def test_the_time_in_which_its_node_was_down_is_not_counted(
    write: Callable[..., TrialServer], up: float, node: str, counted: int
) -> None:
    """The allocation began 600 s ago, and 40 s of it were reported. The pod is still there after the reboot."""
    since = datetime.fromtimestamp(time.time() - 600, UTC)

    async def scene(writing: Writing) -> None:
        (writing.machine.settings().proc / "uptime").write_text(f"{up} 1.0\n")
        await writing.whole_life(started(pod()))

    server = write(
        scene,
        allocations=[{"gpus": ["G"], "node": node, "start": since.isoformat()}],
        logCursor=log_cursor(pod().uid, step=7.0),
        gpuSeconds=40.0,
    )
    (allocation,) = server.parsed.allocations
    assert allocation.end is not None
    assert (allocation.end - since).total_seconds() == pytest.approx(counted, abs=5.0)
    assert server.parsed.gpu_seconds == pytest.approx(counted, abs=5.0)
    assert server.parsed.log_cursor is not None
    assert server.parsed.log_cursor.complete


@pytest.mark.parametrize("whose", ["its own", "a later pod's"])
def test_the_allocation_of_a_deleted_pod_is_closed_as_reported(write: Callable[..., TrialServer], whose: str) -> None:
    """No agent was there when it ended. The cursor stays: the next attempt counts from it what was lost."""
    mine = whose == "its own"
    since = datetime.fromtimestamp(time.time() - 600, UTC)

    async def scene(writing: Writing) -> None:
        trial_record = started(pod(containers__names=(), settings__metrics=None))
        trial_record.life.orphaned = True
        await writing.whole_life(trial_record)

    reader = log_cursor(pod().uid if mine else "later", step=7.0)
    server = write(
        scene, allocations=[{"gpus": ["G"], "node": "n", "start": since.isoformat()}], logCursor=reader, gpuSeconds=40.0
    )
    assert (server.patches > 0) is mine
    end = server.parsed.allocations[-1].end
    assert (None if end is None else round((end - since).total_seconds())) == (40 if mine else None)
    assert server.parsed.log_cursor is not None
    assert (server.parsed.log_cursor.container, server.parsed.log_cursor.step) == ("train", 7.0)
