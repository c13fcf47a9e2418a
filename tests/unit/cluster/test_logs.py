"""Log records name what they are about, also in tasks that a block starts, and equal Events have one name."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

from podium_cluster import events
from podium_cluster.client import Api, ApiError
from podium_cluster.component import logs
from podium_cluster.resources import TRIALS, Resource

LOG = logging.getLogger("test")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the JSON formatter makes of each record."""
    found: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: found.append(logs.JsonFormatter().format(record)))
    monkeypatch.setattr(LOG, "handlers", [handler])
    monkeypatch.setattr(LOG, "propagate", False)
    monkeypatch.setattr(logs, "_process_fields", {})
    LOG.setLevel(logging.INFO)
    return found


def test_records_of_a_block_and_of_its_tasks_have_its_fields(lines: list[str]) -> None:
    async def act() -> None:
        await asyncio.sleep(0)
        LOG.info("in the task")

    async def main() -> None:
        with logs.about(namespace="lab", job="sweep", trial="sweep-3", gpu="GPU-1"):
            task = asyncio.create_task(act())
            with logs.about(node="n1", trial=""):
                LOG.info("inner")
        LOG.info("outside")
        await task

    asyncio.run(main())
    inner, outside, task = map(json.loads, lines)
    about = {"namespace": "lab", "job": "sweep", "trial": "sweep-3", "gpu": "GPU-1"}
    assert {name: inner.get(name) for name in logs.FIELDS} == {**about, "node": "n1", "pod": None}
    assert not set(outside) & set(logs.FIELDS)
    assert {name: task[name] for name in about} == about
    assert "node" not in task


def test_the_node_of_an_agent_is_in_every_record(lines: list[str]) -> None:
    logs.always_about(node="n1")
    LOG.info("one")
    with logs.about(node="n2"):
        LOG.info("two")
    assert [json.loads(line)["node"] for line in lines] == ["n1", "n2"]


def test_a_hostile_field_stays_in_its_field(lines: list[str]) -> None:
    with logs.about(trial='x", "level": "ERROR\n' + "y" * 5000):
        LOG.info("one")
    (line,) = lines
    assert "\n" not in line
    assert json.loads(line)["level"] == "INFO"
    assert len(json.loads(line)["trial"]) == logs.MAX_FIELD


def test_the_console_shows_the_fields_after_the_message() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "switched", None, None)
    with logs.about(trial="sweep-3"):
        assert logs.ConsoleFormatter("%(message)s").format(record) == "switched [trial=sweep-3]"
    assert logs.ConsoleFormatter("%(message)s").format(record) == "switched"


class Wire:
    """Answers like an API server: a second object of one name is a conflict."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def create(self, _: Resource, manifest: Mapping[str, Any], *, manager: str) -> None:
        name = manifest["metadata"]["name"]
        if name in self.names:
            raise ApiError(409, "AlreadyExists", name)
        self.names.append(name)


def test_equal_events_are_recorded_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    wire, now = Wire(), 1_200_000.0
    monkeypatch.setattr(events.clock, "now", lambda: now)

    def emit(message: str, occurrence: str = "", uid: str = "u") -> int:
        about = {"name": "n" * 253, "namespace": "lab", "uid": uid}
        text = events.EventText("TrialRequeued", message, "Normal", occurrence)
        asyncio.run(events.emit(cast(Api, wire), TRIALS, about, text, component="podium-operator"))
        return len(wire.names)

    assert [emit("a"), emit("a"), emit("b"), emit("a", "1"), emit("a", uid="v"), emit("a")] == [1, 1, 2, 3, 4, 4]
    now += events.SAME_SECONDS
    assert emit("a") == 5
    assert all(len(name) <= 253 for name in wire.names)
    assert caplog.records == []  # a repeated decision does not count as an error
