"""Which trials get a prediction, and that it is one of their final value."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from podium_core.curves.prediction.final_value import predictions
from podium_core.domain.phase import TrialPhase
from podium_core.testing.builders import make_job, make_snapshot, make_trial

P = TrialPhase
CURVE = [0.1, 0.3, 0.4, 0.45]


@pytest.mark.parametrize(
    ("name", "job", "trial", "given"),
    [
        ("one that runs", {}, {"values": CURVE}, True),
        ("one that waits", {}, {"values": CURVE, "phase": P.SUSPENDED}, True),
        ("whatever the policy", {"policy": "fifo"}, {"values": CURVE}, True),
        ("nothing shown", {}, {}, False),
        ("nothing finite", {}, {"values": [float("nan")] * 3}, False),
        ("it has ended", {}, {"values": CURVE, "phase": P.SUCCEEDED}, False),
        ("no trial knows how long a trial is", {"max_steps": None}, {"values": CURVE}, False),
        ("the job is over", {"finished": True}, {"values": CURVE}, False),
        ("too large to be migrated on", {}, {"values": [0.0, 1.7e308]}, False),
    ],
)
def test_which_trials_get_a_prediction(
    name: str, job: dict[str, object], trial: dict[str, object], given: bool
) -> None:
    search = make_job(**{"policy": "hermes", "max_steps": 8.0} | job)  # type: ignore[arg-type]
    one = make_trial(0, **{"phase": P.RUNNING, "gpus": ["gpu-0"]} | trial)  # type: ignore[arg-type]
    found = predictions(search, make_snapshot(jobs=[search], trials=[one]))
    assert list(found) == ([one.key] if given else [])
    json.dumps([asdict(f) for f in found.values()], allow_nan=False)


@pytest.mark.parametrize("maximize", [True, False])
def test_the_prediction_is_at_least_the_best_value_and_narrows(maximize: bool) -> None:
    sign = 1.0 if maximize else -1.0
    values = [sign * (0.9 - 0.6 * t**-0.7) for t in range(1, 13)]
    job = make_job(maximize=maximize, max_steps=16.0)
    widths = []
    for shown in (3, 6, 12):
        trial = make_trial(0, values=values[:shown], phase=P.RUNNING, gpus=["gpu-0"])
        found = predictions(job, make_snapshot(jobs=[job], trials=[trial]))[trial.key]
        assert found.low <= found.median <= found.high
        assert sign * (found.low if maximize else found.high) >= sign * values[shown - 1] - 1e-9
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
