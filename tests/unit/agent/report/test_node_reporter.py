"""What the agent tells of its node, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agent_builders import Machine

from podium_agent.metrics import Metrics
from podium_agent.observe.gpu_health import Reading
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_reporter import (
    NodeReporter,
    StatusSources,
)
from podium_agent.schedule.node_reconciler import NodeReconciler, View
from podium_cluster.client import Api
from podium_core.schema.base import Condition
from podium_suspension.methods import SuspensionMethods


def test_no_status_is_written_before_the_first_observation(tmp_path: Path) -> None:
    """The status of the previous agent stays: while the kubelet is away, only it says where the trials are.

    A driver that has not answered yet does not mean that the node has no GPUs.
    """
    written: list[dict[str, Any]] = []

    async def main() -> None:
        reported = asyncio.Event()

        async def apply_status(_: object, manifest: dict[str, Any], *, manager: str) -> None:
            written.append(manifest)
            reported.set()

        node_reconciler = SimpleNamespace(observed=asyncio.Event(), view=View(), subscribe=lambda _: None)
        heard: list[Any] = []
        telemetry = SimpleNamespace(subscribe=heard.append, reading=Reading(), asked=asyncio.Event())
        reporter = NodeReporter(
            Machine(tmp_path).settings(),
            cast(Api, SimpleNamespace(apply_status=apply_status)),
            Metrics(),
            StatusSources(
                cast(Telemetry, telemetry),
                cast(NodeReconciler, node_reconciler),
                cast(SuspensionMethods, SimpleNamespace(names=("freeze",))),
            ),
            "0",
        )
        task = asyncio.ensure_future(reporter.run())
        (wake,) = heard
        wake()
        for event in (node_reconciler.observed, telemetry.asked):
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert written == []
            event.set()
        await reported.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 300))
    assert len(written) == 1


def test_a_condition_that_becomes_false_is_recorded_as_one_event(tmp_path: Path) -> None:
    events: list[tuple[str, str]] = []
    status = ["True"]

    async def main() -> None:
        async def apply_status(_: object, manifest: dict[str, Any], *, manager: str) -> dict[str, Any]:
            return {"metadata": {"name": "node-1", "uid": "u"}, "status": manifest["status"]}

        async def create(_: object, manifest: dict[str, Any], *, manager: str) -> None:
            assert manifest["involvedObject"]["uid"] == "u"
            events.append((manifest["type"], manifest["reason"]))

        def usable() -> Condition:
            return Condition(type="Usable", status=status[0], reason="OtherDevicePlugin", message="another plugin")

        node_reconciler = SimpleNamespace(view=View(), subscribe=lambda _: None)
        reporter = NodeReporter(
            Machine(tmp_path).settings(),
            cast(Api, SimpleNamespace(apply_status=apply_status, create=create)),
            Metrics(),
            StatusSources(
                cast(Telemetry, SimpleNamespace(subscribe=lambda _: None, reading=Reading())),
                cast(NodeReconciler, node_reconciler),
                cast(SuspensionMethods, SimpleNamespace(names=("freeze",))),
                usable=usable,
            ),
            "0",
        )
        for status[0] in ("True", "False", "False", "True", "False"):
            await reporter._write(reporter.now())

    asyncio.run(asyncio.wait_for(main(), 60))
    assert events == [("Warning", "OtherDevicePlugin")] * 2
