"""What the operator reads from the log of a trial without a GPU once its pod has ended: objective and other metrics."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from operator_builders import ended, make_cluster_state, make_job, make_pod, make_trial

import podium_operator.observe.final_log_read
from podium_cluster.client import Api
from podium_core.logs.line_reader import line_reader
from podium_core.schema.trial import TrialStatus
from podium_operator.observe.final_log_read import FinalLogReader

DONE = {"phase": "Succeeded", "gated": False, "main": ended(0)}


class Server:
    """The two calls that are made: reading the log, and applying the status."""

    def __init__(self, log: str) -> None:
        self._log = log
        self.written: list[dict[str, Any]] = []
        self.over = asyncio.Event()

    async def logs(self, *_: Any, **__: Any) -> str:
        return self._log

    async def apply_status(self, _: Any, manifest: dict[str, Any], **__: Any) -> None:
        self.written.append(manifest["status"])
        self.over.set()


def status_after(log: str, **job: Any) -> tuple[dict[str, Any], TrialStatus]:
    """Return the status as it was written, and as it is parsed again."""

    async def read() -> dict[str, Any]:
        server = Server(log)
        words = FinalLogReader(cast(Api, server))
        words.read(
            make_cluster_state(make_job(gpus={"perTrial": 0}, **job), make_trial(phase="Running"), make_pod(**DONE))
        )
        await asyncio.wait_for(server.over.wait(), 300)
        return server.written[0]

    written = asyncio.run(read())
    return written, TrialStatus.model_validate(written)


@pytest.mark.parametrize(
    ("metrics", "log"),
    [
        ({}, '{"step": 1, "acc": 0.5, "loss": 3}\nhello\n{"step": 2, "acc": 0.75, "loss": 2}\n{"loss": NaN}\n'),
        ({"format": "text"}, "step=1 acc=0.5 loss=3\nstep=2\nacc=0.75\nloss=2\nloss=nan\n"),
        (
            {"format": "huggingface"},
            "{'step': 1, 'acc': 0.5}\n{'step': 1, 'loss': 3}\n{'step': 2, 'acc': 0.75, 'loss': 2}\n{'loss': nan}",
        ),
    ],
)
def test_the_objective_and_additional_metrics(metrics: dict[str, str], log: str) -> None:
    objective = {"metric": "acc", "direction": "maximize", "additionalMetrics": ["loss", "f1"]}
    written, status = status_after(log, objective=objective, metrics=metrics)
    assert [(point.step, point.value) for point in status.curve.points] == [(1, 0.5), (2, 0.75)]
    assert written["additionalMetrics"] == [
        {"metric": "loss", "step": 2.0, "latest": "nan", "min": 2.0, "minStep": 2.0, "max": 3.0, "maxStep": 1.0}
    ]


def test_a_line_on_which_the_parser_fails_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def reader(metrics: Any) -> Any:
        parse = line_reader(metrics)

        def read(line: str) -> Any:
            if "bad" in line:
                raise ZeroDivisionError
            return parse(line)

        return read

    monkeypatch.setattr(podium_operator.observe.final_log_read, "line_reader", reader)
    _, status = status_after('{"step": 1, "acc": 0.5}\nbad\n{"step": 2, "acc": 0.75}\n')
    assert [point.value for point in status.curve.points] == [0.5, 0.75]


def test_without_additional_metrics_the_field_is_not_written() -> None:
    written, status = status_after('{"step": 1, "acc": 0.5, "loss": 3}')
    assert (status.last_value, "additionalMetrics" in written) == (0.5, False)
