"""The driver ended a process of a trial: the pod shows it before the trial's end is written, and not for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from agent_builders import TrialServer, cri, pod
from agent_writing import Writing, started

from podium_agent.metrics import Metrics
from podium_agent.observe.pod_records import PodRecord
from podium_agent.report.trial_record import DRIVER_ERROR_SECONDS, TrialRecord
from podium_agent.schedule.executor import Executor, ExecutorHooks
from podium_cluster.client import ApiError
from podium_core.attempts.local_scheduler import Suspend
from podium_core.attempts.local_trial import LocalPod, LocalTrial, TrialSuspension
from podium_core.schema.gpunode import SlotState
from podium_suspension.base import SuspensionOutcome

SHOWN = {"DisruptionTarget": ("True", "GPUDriverError")}


def follow(server: TrialServer, errors: list[ApiError]) -> list[str]:
    """Return what the writer does, as it does it: True or False for the condition, `end` for the trial's end."""
    acts: list[str] = []
    write = server.write

    async def patch(resource: Any, name: str, namespace: str, body: dict[str, Any], **_: Any) -> None:
        for condition in body["status"]["conditions"]:
            if condition["type"] == "DisruptionTarget":
                assert (body["metadata"]["uid"], condition["reason"]) == (pod().uid, "GPUDriverError")
                if errors:
                    raise errors.pop()
                acts.append(condition["status"])

    def written(status: dict[str, Any]) -> None:
        acts.append("end" if "end" in status["allocations"][-1] else "open") if status.get("allocations") else None
        write(status)

    server.strategic_patch, server.write = patch, written  # type: ignore[method-assign]
    return acts


@pytest.mark.parametrize(
    ("message", "errors", "acts"),
    [
        ("the driver killed it", [], ["True", "end"]),
        ("the driver killed it", [ApiError(503, "ServiceUnavailable", "")], ["True", "end"]),
        ("the driver killed it", [ApiError(404, "NotFound", "")], ["end"]),
        ("the driver killed it", [ApiError(403, "Forbidden", "")], ["end"]),
        ("", [], ["end"]),
    ],
)
def test_the_pod_shows_the_disruption_before_the_end_of_the_trial_is_written(
    write: Callable[..., TrialServer],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    errors: list[ApiError],
    acts: list[str],
) -> None:
    monkeypatch.setattr("podium_agent.report.pod_condition_writer.LONGEST_PAUSE", 0.0)
    done: list[str] = []

    async def scene(writing: Writing) -> None:
        done.extend([""])
        recorded = follow(writing.server, errors)
        writing.machine.log(pod()).write_text(cri('{"acc": 0.9}'))
        trial_record = started(pod())
        if message:
            trial_record.note_driver_error(message, time.monotonic())
        await writing.whole_life(trial_record)
        done[:] = recorded

    since = "2026-01-01T00:00:00Z"
    write(
        scene,
        allocations=[{"gpus": ["G"], "node": "n", "start": since}],
        logCursor={"podUid": pod().uid, "container": "train", "file": "", "fingerprint": "", "offset": 0, "lines": 0},
    )
    assert [act for act in done if act != "open"][: len(acts)] == acts


def test_a_suspension_in_which_a_process_ends_is_noted() -> None:
    record, trial_record = PodRecord(pod()), TrialRecord(pod(), "n")
    ends: list[tuple[int, ...]] = [(), (7,)]

    async def suspend(*_: object) -> SuspensionOutcome:
        return SuspensionOutcome(True, 0.1, "Checkpointed", ended=ends.pop(0))

    hooks = ExecutorHooks(lambda _: trial_record, lambda: None)
    parts: Any = SimpleNamespace(suspend=suspend, gates=None, admissions=None, memory=None)
    executor = Executor(parts, parts, parts, Metrics(), 1.0, hooks)
    trial = LocalTrial(
        record.pod.key,
        LocalPod("a-0", record.pod.uid),
        ("G",),
        SlotState.RUNNING,
        0.0,
        suspension=TrialSuspension("cuda-checkpoint"),
    )

    asyncio.run(executor._suspend(record, Suspend(trial, "Preempted")))
    assert not trial_record.driver_error.message
    asyncio.run(executor._suspend(record, Suspend(trial, "Preempted")))
    assert "ended process 7" in trial_record.driver_error.message


def test_a_trial_that_goes_on_is_not_disrupted_for_ever() -> None:
    trial_record = TrialRecord(pod(), "n")
    trial_record.note_driver_error("the driver ended a worker", 1000.0)
    assert trial_record.driver_disruption(1000.0 + DRIVER_ERROR_SECONDS)
    trial_record.life.ended = True
    assert trial_record.driver_disruption(5000.0), "its pod ended in that time"
    trial_record.life.ended = False
    assert not trial_record.driver_disruption(1001.0 + DRIVER_ERROR_SECONDS)


@pytest.mark.parametrize(("conditions", "acts"), [(SHOWN, ["False"]), ({}, [])])
def test_the_next_agent_takes_the_condition_of_a_trial_that_goes_on_back(
    write: Callable[..., TrialServer], conditions: Mapping[str, tuple[str, str]], acts: list[str]
) -> None:
    done: list[str] = []

    async def scene(writing: Writing) -> None:
        recorded = follow(writing.server, [])
        task = writing.start(started(pod(status__conditions=conditions)))
        await writing.until(lambda: writing.server.patches > 0, "the first report")
        task.cancel()
        done.extend(recorded)

    write(scene)
    assert [act for act in done if act in ("True", "False")] == acts
