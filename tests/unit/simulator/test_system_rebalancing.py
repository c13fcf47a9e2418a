"""Rebalancing in the simulated system.

The planner moves a trial; a move costs a checkpoint, an end, a start and a load; and the search ends sooner.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium_core.domain.rebalancing import RebalancingRules
from podium_core.testing.builders import make_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

NODES = (NodeSpec("a", 1), NodeSpec("b", 1))
STEP = 10.0


def curve(steps: int) -> RecordedTrial:
    return RecordedTrial("t", {}, tuple(STEP * (i + 1) for i in range(steps)), tuple(float(i) for i in range(steps)))


def search(**more: object) -> Scenario:
    """Six trials, placed alternately: those on one node end early, those on the other train 400 s each."""
    curves = tuple(curve(40 if number % 2 == 0 else 2) for number in range(6))
    view = make_job(
        policy="round_robin",
        settings={"quantum": 20.0},
        max_trials=6,
        parallel=6,
        max_steps=400.0,
        checkpointable=True,
        **more,  # type: ignore[arg-type]
    )
    job = SimJob(view, curves, Method(), checkpoints=True)
    return Scenario(NODES, (job,), Timing(progress=0.0), rebalancing=RebalancingRules(min_stay=30.0))


def nodes_of(outcome: Outcome, number: int) -> list[str]:
    """Return the nodes of a trial in order."""
    found: list[str] = []
    for span in outcome.spans:
        node = span.gpu.partition("-")[0]
        if span.number == number and found[-1:] != [node]:
            found.append(node)
    return found


def test_a_trial_moves_to_the_free_gpu_and_the_search_ends_sooner() -> None:
    scenario = search()
    levelled, left = simulate(scenario, checked=True), simulate(replace(scenario, rebalancing=None), checked=True)
    assert levelled.broken == left.broken == ()
    assert [trial.attempts for trial in left.trials] == [1] * 6
    moved = [trial.number for trial in levelled.trials if trial.attempts == 2]
    assert [nodes_of(levelled, number) for number in moved] == [["a", "b"]] * 2, "another one when the first is over"
    assert sum(trial.lost_seconds for trial in levelled.trials) == 0.0
    assert [trial.evaluations for trial in levelled.trials] == [trial.evaluations for trial in left.trials]
    # 1,200 s of training on one GPU: a third of it goes to the other, and half of what is left when that is over
    assert (left.makespan, levelled.makespan) == pytest.approx((1230.0, 647.0), abs=3.0)


def test_a_trial_without_checkpoints_does_not_move() -> None:
    """On nodes without live migration (with it: `test_system_migration`)."""
    outcome = simulate(search(checkpoint_scope="nowhere"), checked=True)
    assert [trial.attempts for trial in outcome.trials] == [1] * 6
