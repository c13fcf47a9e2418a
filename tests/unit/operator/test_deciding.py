"""A policy that fails on one job's trials stops no other job."""

from __future__ import annotations

from typing import Any

import pytest

from podium.domain.actions import CreateTrial
from podium.policies.slaq import Slaq
from podium.testing.builders import make_gpu, make_job, make_snapshot, make_trial
from podium_operator.deciding import decide


def test_the_others_are_planned_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def rank(*_: Any) -> Any:
        raise ZeroDivisionError

    jobs = [make_job("broken", policy="slaq"), make_job("other"), make_job("broken-too", policy="slaq")]
    trials = [make_trial(0, job="broken"), make_trial(0, job="broken-too")]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=[make_gpu(shares=4)])
    assert decide(snapshot)[2] == 0
    monkeypatch.setattr(Slaq, "rank", rank)
    planned_for, plan, left_out = decide(snapshot)
    assert (left_out, [job.key.name for job in planned_for.jobs]) == (2, ["other"])
    assert planned_for.trials == snapshot.trials, "what they hold is not free"
    assert {action.job.name for action in plan.actions if isinstance(action, CreateTrial)} == {"other"}
    assert not [action for action in plan.actions if "broken" in str(action)]
    assert caplog.text.count("is left as it is: policy slaq could not rank its trials") == 2
    assert "ZeroDivisionError" in caplog.text
