"""A recorded snapshot and its complete plan: any change of a decision or message shows as a diff.

`--update-golden` writes the plan again.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

import pytest

from podium_core.domain.actions import LazyRanks
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.planner import plan
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

GOLDEN = Path(__file__).parent / "plan.json"
P = TrialPhase


def recorded() -> Snapshot:
    """Return two nodes and two jobs: a switch, a warm-up, a retry, a suspended trial, a job that waits for slots."""
    digits = make_job("digits", created=1.0, max_trials=10, parallel=8)
    late = make_job("late", created=2.0, policy="fifo", max_trials=4, parallel=None, max_steps=None)
    trials = [
        make_trial(0, job="digits", gpus=["gpu-a"], phase=P.RUNNING, values=[0.2, 0.3, 0.35, 0.4], gpu_seconds=8.0),
        make_trial(1, job="digits", gpus=["gpu-a"], phase=P.SUSPENDED, values=[0.5, 0.8, 0.9], gpu_seconds=6.0),
        make_trial(2, job="digits", gpus=["gpu-a"], phase=P.SUSPENDED, values=[0.4, 0.5, 0.5], suspend=True),
        make_trial(3, job="digits", gpus=["gpu-b"], phase=P.RUNNING, values=[0.3, 0.6, 0.8, 0.9], gpu_seconds=8.0),
        make_trial(4, job="digits", gpus=["gpu-b"], phase=P.GATED),
        make_trial(5, job="digits", phase=P.REQUEUED, attempt=0, failures=1, retry_at=990.0),
        make_trial(6, job="digits", phase=P.SUCCEEDED, values=[0.3, 0.5, 0.7], gpu_seconds=60.0),
        make_trial(0, job="late"),
    ]
    keys = {t.key.name: t.key for t in trials}
    a0, a1, a2 = (keys[f"digits-{i}"] for i in (0, 1, 2))
    b3, b4 = keys["digits-3"], keys["digits-4"]
    gpus = [
        make_gpu(
            "gpu-a", node="node-a", slots=4, holder=a0, holder_since=980.0, trials=[a0, a1, a2], run_queue=[a0, a1]
        ),
        make_gpu("gpu-b", node="node-b", slots=3, holder=b3, holder_since=999.0, trials=[b3, b4], run_queue=[b3]),
    ]
    return make_snapshot(jobs=[digits, late], trials=trials, gpus=gpus, epochs={"node-a": 4, "node-b": 6})


def plain(value: object) -> object:
    """Return the value as plain JSON types."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, JobKey | TrialKey):
        return {"kind": type(value).__name__, **value._asdict()}
    if isinstance(value, tuple | LazyRanks):
        return [plain(item) for item in value]
    return value


def test_the_plan_equals_the_recorded_one(request: pytest.FixtureRequest) -> None:
    text = json.dumps(plain(plan(recorded())), indent=1) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "the plan changed: run with --update-golden and review the diff"
