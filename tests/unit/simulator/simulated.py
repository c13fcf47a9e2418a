"""Small searches on simulated nodes, for the tests of the simulated system."""

from __future__ import annotations

from typing import Any

from podium_core.testing.builders import make_job
from podium_simulator.system.inputs.scenario import Method, NodeSpec, SimJob, Timing
from podium_simulator.traces.trace import RecordedTrial

AT_ONCE = Timing(
    place=1.0,
    gate=1.0,
    record_start=2.0,
    processes_found=2.0,
    load=2.0,
    ended=0.0,
    log=0.5,
    notice=0.0,
    debounce=0.0,
    order=0.0,
    progress=0.0,
)
ONE_GPU = (NodeSpec("a", 1),)


def curve(*values: float, gap: float = 10.0) -> RecordedTrial:
    return RecordedTrial("t", {}, tuple(gap * (i + 1) for i in range(len(values))), values)


def job(*curves: RecordedTrial, policy: str = "fifo", name: str = "job", **more: Any) -> SimJob:
    given = {"max_trials": len(curves), "parallel": None, "max_steps": max(c.length for c in curves), **more}
    return SimJob(make_job(name, policy=policy, **given), curves, Method(suspend=4.0, resume=3.0))
