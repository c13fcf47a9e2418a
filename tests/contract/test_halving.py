"""Successive halving in a simulated system whose steps are shorter than the delay of the planner's information."""

from __future__ import annotations

from collections import Counter

import pytest
from policy_variants import Settings

from podium_core.domain.phase import TrialPhase
from podium_core.testing.builders import make_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

FAST_STEP, SLOW_STEP = 0.25, 10.0  # seconds
STEPS = 1024  # of a complete trial; with eta 4 the rungs are at 16, 64 and 256
DELAYED = Timing(report=5.0, holder_report=5.0)
FAST: list[tuple[str, Settings, float]] = [
    # 11 of hyperband's 32 trials start at the second rung or above
    ("asha", {}, 0.4),
    ("asha", {"onCut": "stop"}, 0.4),
    ("hyperband", {"mode": "async"}, 0.65),
    ("hyperband", {}, 0.65),
]


def search(name: str, settings: Settings, trials: int, steps: int, step: float) -> Outcome:
    """Simulate a search on four GPUs with a slot for every trial, where the best trials are not the first."""
    curves = []
    for number in range(trials):
        level = (number * 13 % trials) / trials
        values = tuple(level - 1.0 / done for done in range(1, steps + 1))
        curves.append(RecordedTrial(f"t{number}", {}, tuple(step * done for done in range(1, steps + 1)), values))
    job = make_job(policy=name, settings=settings, max_trials=trials, parallel=None, max_steps=curves[0].length)
    nodes = tuple(NodeSpec(f"n{i}", 2, 8) for i in range(2))
    return simulate(Scenario(nodes, (SimJob(job, tuple(curves), Method()),), DELAYED, seed=1), checked=True)


@pytest.mark.parametrize(("name", "settings", "max_fraction"), FAST, ids=str)
def test_only_some_trials_continue_beyond_the_first_rung(name: str, settings: Settings, max_fraction: float) -> None:
    outcome = search(name, settings, trials=32, steps=STEPS, step=FAST_STEP)
    assert outcome.broken == ()
    beyond = Counter(value.trial for value in outcome.values if value.step >= FAST_STEP * STEPS / 16)
    assert len(beyond) <= max_fraction * len(outcome.trials)
    assert any(trial.phase is TrialPhase.SUCCEEDED for trial in outcome.trials)


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_small_search_completes_at_least_one_trial(name: str) -> None:
    settings: Settings = {"eta": 3, "rungs": 4}
    if name == "hyperband":
        settings["mode"] = "async"
    outcome = search(name, settings, trials=8, steps=81, step=SLOW_STEP)
    assert outcome.broken == ()
    assert TrialPhase.SUCCEEDED in {trial.phase for trial in outcome.trials}
