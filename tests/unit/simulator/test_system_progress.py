"""News of progress waits for other news in the simulated system (`Timing.progress`).

It waits at most one time slice, and not where a value may end something.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from podium_core.domain.snapshot import Costs, Snapshot
from podium_core.planning.planner import Decision, decide
from podium_core.policies.registry import NAMES, create
from podium_core.testing.builders import make_job
from podium_simulator.system import operator
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

EXACT = Timing(progress=0.0)
CUTTERS = [name for name in NAMES if create(name, {}).cuts]


def search(policy: str, timing: Timing, trials: int = 6, gap: float = 7.0, **more: Any) -> Scenario:
    """Trials of 40 values on two GPUs; 1 s + 1 s per switch: a time slice of 20 s, once that is known."""
    curves = tuple(
        RecordedTrial(f"t{n}", {}, tuple(gap * (i + 1) for i in range(40)), tuple(n * i / 40.0 for i in range(40)))
        for n in range(trials)
    )
    given = {"max_trials": trials, "parallel": None, "max_steps": 40.0 * gap, **more}
    view = make_job(policy=policy, **given)
    return Scenario((NodeSpec("a", 2),), (SimJob(view, curves, Method(suspend=1.0, resume=1.0)),), timing)


def planned(monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> tuple[Outcome, list[Snapshot]]:
    seen: list[Snapshot] = []

    def spy(snapshot: Snapshot) -> Decision:
        seen.append(snapshot)
        return decide(snapshot)

    monkeypatch.setattr(operator, "decide", spy)
    return simulate(scenario, checked=True), seen


def test_a_value_waits_for_other_news_and_at_most_one_time_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One running trial, no other events: one plan per time slice, not one per value, and all values in the end."""
    _, each = planned(monkeypatch, search("fifo", EXACT, trials=1, gap=2.5))
    outcome, seen = planned(monkeypatch, search("fifo", Timing(), trials=1, gap=2.5))
    assert outcome.broken == ()
    known = [len(snapshot.trials[0].curve) for snapshot in seen if snapshot.trials]
    assert sorted(known) == known
    assert known[-1] == 40
    steps = [after - before for before, after in pairwise(known)]
    assert create("fifo", {}).time_slice(Costs()) == 4.0
    assert max(steps) == 2, "the one that begins the wait, and what comes in 4 s"
    assert len(seen) < 0.7 * len(each)


@pytest.mark.parametrize("policy", ["envelope", "hermes", "slaq"])
def test_a_search_is_much_the_same(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    exact, each = planned(monkeypatch, search(policy, EXACT))
    outcome, seen = planned(monkeypatch, search(policy, Timing()))
    assert outcome.broken == ()
    assert outcome.makespan == pytest.approx(exact.makespan, rel=0.05)
    assert [trial.evaluations for trial in outcome.trials] == [trial.evaluations for trial in exact.trials]
    assert len(seen) < len(each)


@pytest.mark.parametrize("policy", CUTTERS)
def test_a_policy_that_gives_trials_up_sees_each_value_at_once(policy: str) -> None:
    assert simulate(search(policy, Timing())) == simulate(search(policy, EXACT))


AT_ONCE = [
    ("a budget", {"budget_gpu_seconds": 300.0}),
    ("no suspension", {"suspendable": False, "checkpointable": True}),
]


@pytest.mark.parametrize("more", [row[1] for row in AT_ONCE], ids=[row[0] for row in AT_ONCE])
def test_progress_does_not_wait_with(more: dict[str, Any]) -> None:
    assert simulate(search("envelope", Timing(), **more)) == simulate(search("envelope", EXACT, **more))


def test_a_target_is_known_at_once() -> None:
    """One trial, with no other events to wait for."""
    ends = [simulate(search("fifo", timing, trials=2, target=0.5)).makespan for timing in (Timing(), EXACT)]
    assert ends[0] == pytest.approx(ends[1], abs=0.01)
    assert replace(EXACT, progress=1.0) == Timing()
