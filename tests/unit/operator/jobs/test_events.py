"""Which Events are recorded, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from operator_builders import make_job, make_trial, moment

from podium_cluster.client import Api
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_operator.jobs.events import EventRecorder


class Wire:
    """Records the Events that are created."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    async def create(self, _: Resource, body: Mapping[str, Any], **__: Any) -> None:
        self.recorded.append((body["reason"], body["type"], body["message"]))


def phases(resource: Resource, stored: str, phase: str, reason: str = "R") -> list[tuple[str, str]]:
    wire = Wire()
    item = make_job() if resource is JOBS else make_trial()
    status = {"phase": phase, "reason": reason, "message": "because"}
    asyncio.run(EventRecorder(cast(Api, wire)).phase_changed(resource, item, stored, status))
    return [(said, kind) for said, kind, _ in wire.recorded]


CASES: list[tuple[Resource, str, str, str, list[tuple[str, str]]]] = [
    (JOBS, "Pending", "Running", "R", [("Started", "Normal")]),
    (JOBS, "Running", "Succeeded", "TargetReached", [("TargetReached", "Normal")]),
    (JOBS, "Running", "Failed", "TooManyFailedTrials", [("TooManyFailedTrials", "Warning")]),
    (TRIALS, "Gated", "Running", "R", [("TrialRunning", "Normal")]),
    (TRIALS, "Suspended", "Running", "R", []),
    (TRIALS, "Running", "Suspended", "R", []),
    (TRIALS, "Running", "Failed", "OOMKilled", [("TrialFailed", "Warning")]),
    (TRIALS, "Running", "Requeued", "PodDisrupted", [("TrialRequeued", "Warning")]),
    (TRIALS, "Running", "Requeued", "Preempted", [("TrialRequeued", "Normal")]),
]


@pytest.mark.parametrize(("resource", "stored", "phase", "reason", "recorded"), CASES)
def test_phase_changes_are_recorded_as_events(
    resource: Resource, stored: str, phase: str, reason: str, recorded: list[tuple[str, str]]
) -> None:
    assert phases(resource, stored, phase, reason) == recorded


def loss(*attempts: int) -> dict[str, Any]:
    one = {"at": moment(), "step": 12, "resumedFrom": 10, "steps": 2, "gpuSeconds": 3.25}
    return {"count": len(attempts), "steps": 2 * len(attempts), "recent": [one | {"attempt": n} for n in attempts]}


def test_lost_work_is_recorded_once_with_its_amount() -> None:
    wire = Wire()
    events = EventRecorder(cast(Api, wire))
    for losses in ({}, loss(1), loss(1), loss(1, 3)):
        asyncio.run(events.work_lost(make_trial(lostWork=losses)))
    text = "continues from step 10, the one before reached step 12: 2 steps and 3.2 GPU-seconds are lost."
    assert wire.recorded == [("WorkLost", "Warning", f"Attempt {attempt} {text}") for attempt in (1, 3)]


def test_work_lost_before_this_operator_started_is_not_recorded_again() -> None:
    wire = Wire()
    events = EventRecorder(cast(Api, wire))
    for losses in (loss(1), loss(1)):
        asyncio.run(events.work_lost(make_trial(lostWork=losses)))
    assert wire.recorded == []


def test_a_new_leader_is_recorded() -> None:
    wire = Wire()
    events = EventRecorder(cast(Api, wire))
    for trial, value in (("a", 0.5), ("a", 0.6), ("b", 0.7)):
        asyncio.run(events.leader_changed(make_job(), {"best": {"trial": trial, "value": value, "step": 3}}))
    assert [text for _, _, text in wire.recorded] == [
        "Trial a leads with 0.5 at step 3.",
        "Trial b leads with 0.7 at step 3.",
    ]
