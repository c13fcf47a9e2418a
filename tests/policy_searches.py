"""Simulated searches in which policies differ: on several GPUs with faults, or on one GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from policy_variants import Settings

from podium_core.testing.builders import make_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Faults, Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

GAP = 6.0  # seconds of training between two values
TRIALS = 6
COST, DELAY = 0.4, 2.0  # seconds: of a switch; largest age of the planner's information
ONE_GPU = Timing(report=0.5, holder_report=1.0, progress=0.0, cycle=0.5)


def curve(number: int, points: int, leader: int | None) -> RecordedTrial:
    """Return a noisy curve that crosses the others: slow learners end higher.

    The `leader` is far ahead from the first value to the last.
    """
    high, slow = (2.0, 1.0) if number == leader else (0.5 + 0.02 * (number % 6), 1.0 + 0.5 * (number % 6))
    steps = range(1, points + 1)
    values = tuple(high * (1.0 - 1.0 / (1.0 + step / slow)) + 0.02 * math.sin(7 * number + 3 * step) for step in steps)
    tries = {"lr": 10.0 ** -(number % 3), "depth": number // 3}
    return RecordedTrial(f"t{number}", tries, tuple(GAP * step for step in steps), values)


def search_scenario(
    name: str,
    settings: Settings,
    nodes: int = 2,
    trials: int = 9,
    points: int = 10,
    shares: int = 3,
    leader: int | None = None,
    **of: Faults,
) -> Scenario:
    """Return a search of `trials` trials with `points` values each, on nodes with one GPU."""
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


def single_gpu_search(name: str, settings: Settings, points: int) -> Outcome:
    """Simulate six trials that all have a slot on one GPU; one of them is the best from the start."""
    return simulate(
        replace(search_scenario(name, settings, 1, TRIALS, points, TRIALS, leader=0), timing=ONE_GPU), checked=True
    )
