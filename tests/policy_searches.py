"""Simulated searches in which policies differ: some with several GPUs and faults, some with one GPU for all."""

from __future__ import annotations

import math
from dataclasses import replace

from policy_variants import Settings

from podium_core.testing.builders import make_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.outcome import Outcome
from podium_simulator.system.scenario import Faults, Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.traces.trace import RecordedTrial

GAP = 6.0  # seconds of training between two values
TRIALS, COST, LATE = 6, 0.4, 2.0  # seconds of a hand-over; what the planner knows may be so old
ONE_GPU = Timing(report=0.5, holder_report=1.0, progress=0.0, cycle=0.5)


def curve(number: int, points: int, leader: int | None) -> RecordedTrial:
    """They cross, and go up and down: who learns slowly ends higher. The `leader` leads from the first value to the
    last, far ahead.
    """
    high, slow = (2.0, 1.0) if number == leader else (0.5 + 0.02 * (number % 6), 1.0 + 0.5 * (number % 6))
    steps = range(1, points + 1)
    values = tuple(high * (1.0 - 1.0 / (1.0 + step / slow)) + 0.02 * math.sin(7 * number + 3 * step) for step in steps)
    tries = {"lr": 10.0 ** -(number % 3), "depth": number // 3}
    return RecordedTrial(f"t{number}", tries, tuple(GAP * step for step in steps), values)


def search(
    name: str,
    settings: Settings,
    nodes: int = 2,
    trials: int = 9,
    points: int = 10,
    shares: int = 3,
    leader: int | None = None,
    **of: Faults,
) -> Scenario:
    curves = tuple(curve(number, points, leader) for number in range(trials))
    job = make_job(
        policy=name,
        settings=settings,
        max_trials=trials,
        parallel=None,
        max_steps=curves[0].length,
        checkpointable=True,
    )
    machines = tuple(NodeSpec(f"n{i}", 1, shares) for i in range(nodes))
    return Scenario(machines, (SimJob(job, curves, Method()),), Timing(), seed=1, longest=1e4, **of)


def alone(name: str, settings: Settings, points: int) -> Outcome:
    """Six trials on one GPU, all of them there; one is the best from the beginning."""
    return simulate(replace(search(name, settings, 1, TRIALS, points, TRIALS, leader=0), timing=ONE_GPU), checked=True)
