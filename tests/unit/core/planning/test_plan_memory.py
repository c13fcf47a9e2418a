"""A plan is freed as soon as it is unreferenced.

The operator and the simulator make thousands of plans. Memory that only the garbage collector frees costs a tenth of
their time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.planner import plan
from podium_core.policies.registry import NAMES
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What other tests left in this process is set apart: to look through it takes seconds."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.usefixtures("no_collector")
def test_a_plan_leaves_no_reference_cycles(policy: str) -> None:
    """One has only just started, and better ones wait: why they do is a sentence that is created when it is read."""
    trials = [
        make_trial(
            i,
            values=[0.1 * i * k for k in range(1, 8)],
            phase=TrialPhase.SUSPENDED if i else TrialPhase.RUNNING,
            gpus=["gpu-0"],
            gpu_seconds=7.0,
        )
        for i in range(4)
    ]
    keys = [trial.key for trial in trials]
    gpu = make_gpu("gpu-0", slots=4, holder=keys[0], holder_since=1e4, trials=keys, run_queue=keys)
    job = make_job(policy=policy, max_trials=4, parallel=4, max_steps=40.0)
    snapshot = make_snapshot(now=1e4, jobs=[job], trials=trials, gpus=[gpu])
    assert made_and_read(snapshot)
    gc.collect()
    made_and_read(snapshot)
    assert gc.collect() == 0


def made_and_read(snapshot: Snapshot) -> str:
    return repr(plan(snapshot).ranks)
