"""Nodes that drain in the simulated system, and live trials that are carried to another one: by hand.

A trial is placed at 1, at its gate at 2, trains from 4 on; a value each 10 s. A suspension takes 4 s, a resumption 3 s;
a trial that is carried stands still for 20 s: 10 until its image is pushed, 10 until it is restored.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from simulated import AT_ONCE, curve

from podium_core.domain.migration import MigrationFacts, MigrationPhase, MigrationStep, next_step
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.testing.builders import make_job
from podium_simulator.system import migration
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.faults import RandomFaults
from podium_simulator.system.inputs.scenario import (
    Drain,
    Method,
    NodeSpec,
    Scenario,
    SimJob,
    SimulationError,
    Timing,
)
from podium_simulator.system.results.outcome import TRAINING, Outcome

TWO = (NodeSpec("a", 1), NodeSpec("b", 1))
THREE = (*TWO, NodeSpec("c", 1))
CARRIED = Method("container-checkpoint", 4.0, 3.0, keeps_memory=False, migrates=True, migration_seconds=20.0)
ALIVE = {"migratable": True, "memory": 1, "moves_memory": True}
NEVER = math.inf


def job(*lengths: int, method: Method = CARRIED, checkpoints: bool = False, **more: Any) -> SimJob:
    """Return a job whose trials have these numbers of values; the first is placed on a."""
    curves = tuple(curve(*(0.1,) * n) for n in lengths)
    given = {"policy": "fifo", "max_trials": len(curves), "max_steps": max(c.length for c in curves), **more}
    return SimJob(make_job(**given), curves, method, checkpoints)


def spans(outcome: Outcome, number: int = 0) -> list[tuple[str, str, float, float]]:
    return [(s.gpu[0], s.use, s.start, s.end) for s in outcome.spans if s.number == number]


def test_a_trial_migrates_without_losing_a_step() -> None:
    """a drains at 30: suspended until 34, its image pushed at 44, placed on b at 45, at its gate there at 46."""
    outcome = simulate(Scenario(TWO, (job(5, **ALIVE),), AT_ONCE, drains=(Drain("a", 30.0),)), checked=True)
    assert spans(outcome) == [
        ("a", "starting", 2.0, 4.0),
        ("a", TRAINING, 4.0, 30.0),
        ("a", "suspending", 30.0, 34.0),
        ("b", "restoring", 46.0, 56.0),
        ("b", "resuming", 56.0, 59.0),
        ("b", TRAINING, 59.0, 83.0),
    ]
    (trial,) = outcome.trials
    assert (trial.migrations, trial.suspensions, trial.checkpoints, trial.attempts, trial.lost_seconds) == (
        1,
        1,
        0,
        2,
        0.0,
    )
    assert [value.time for value in outcome.values] == [14.0, 24.0, 63.0, 73.0, 83.0]
    assert outcome.broken == ()


KEPT = Method(suspend=4.0, resume=3.0)
SAVES: dict[str, Any] = {"checkpointable": True, "checkpoint_scope": "anywhere"}
SAVED = [("a", TRAINING, 4.0, 30.0), ("a", "saving", 30.0, 31.0), ("b", "starting", 33.0, 35.0)]
LEFT = [
    ("can neither save nor be carried: it stays, and finishes", KEPT, {}, [("a", TRAINING, 4.0, 54.0)], 54.0),
    ("app-checkpoint: it continues in a new pod", KEPT, SAVES, [*SAVED, ("b", TRAINING, 35.0, 59.0)], 59.0),
    ("saves, where it could be carried as well", CARRIED, ALIVE | SAVES, [*SAVED, ("b", TRAINING, 35.0, 59.0)], 59.0),
    (
        "has its saves on that node: it stays",
        KEPT,
        SAVES | {"checkpoint_scope": "node"},
        [("a", TRAINING, 4.0, 54.0)],
        54.0,
    ),
    ("is frozen, so its agent refuses to carry it", KEPT, ALIVE, [("a", TRAINING, 4.0, 54.0)], 54.0),
]


@pytest.mark.parametrize(("method", "more", "used", "end"), [row[1:] for row in LEFT], ids=[row[0] for row in LEFT])
def test_a_trial_on_a_node_that_drains(
    method: Method, more: dict[str, Any], used: list[tuple[str, str, float, float]], end: float
) -> None:
    outcome = simulate(Scenario(TWO, (job(5, method=method, **more),), AT_ONCE, drains=(Drain("a", 30.0),)))
    assert (spans(outcome)[1:], outcome.makespan) == (used, end)
    assert outcome.trials[0].lost_seconds == 0.0


# four trials of 20 s, and shares for two on each of a and b: when and where each begins
DRAINED = [
    ("never", (), ["a 2", "b 2", "a 24", "b 24"]),
    ("before the first comes", (Drain("a", 0.0),), ["b 2", "b 24", "b 46", "b 68"]),
    ("until it is needed", (Drain("a", 0.0, 10.0),), ["b 2", "a 12", "b 24", "a 34"]),
    ("from when the others are at their gates: those move", (Drain("a", 10.0),), ["a 2", "b 2", "b 24", "b 46"]),
    ("twice, one in the other", (Drain("a", 0.0, 40.0), Drain("a", 5.0, 10.0)), ["b 2", "b 24", "a 42", "b 46"]),
]


@pytest.mark.parametrize(("drains", "begins"), [row[1:] for row in DRAINED], ids=[row[0] for row in DRAINED])
def test_a_node_takes_no_trials_while_it_drains(drains: tuple[Drain, ...], begins: list[str]) -> None:
    nodes = NodeSpec("a", 1, slots=2), NodeSpec("b", 1, slots=2)
    outcome = simulate(Scenario(nodes, (job(2, 2, 2, 2, method=KEPT),), AT_ONCE, drains=drains), checked=True)
    found = sorted((span.start, span.gpu[0]) for span in outcome.spans if span.use == "starting")
    assert ([f"{gpu} {start:g}" for start, gpu in found], outcome.broken) == (begins, ())


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make nodes, by number, fail at a time; they are back 100 s later."""

    def of(**at: float) -> None:
        lives = [at.get(name, NEVER) for name in "abc"]
        monkeypatch.setattr(RandomFaults, "node_lifetime", lambda self: lives.pop(0) if lives else NEVER)
        monkeypatch.setattr(RandomFaults, "node_downtime", lambda self, evict: 100.0)

    return of


def phases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the steps of the state table."""
    found: list[str] = []

    def spy(phase: MigrationPhase, facts: MigrationFacts) -> MigrationStep | None:
        moved = next_step(phase, facts)
        if moved is not None:
            found.append(f"{moved.phase} {moved.code}".strip())
        return moved

    monkeypatch.setattr(migration, "next_step", spy)
    return found


THERE = ["ImagePushed", "PodCreated", "Restored"]
# the trial trains for 60 s: from 4 to 30 on a, from 59 on on b
BACK = [
    ("nothing happens", {}, (), TWO, THERE, 0.0, 93.0),
    (
        "the drain is cancelled: it continues there",
        {},
        (Drain("a", 30.0, 40.0),),
        TWO,
        ["Failed DrainCancelled"],
        0.0,
        77.0,
    ),
    (
        "its target drains: it continues there, and migrates when there is another",
        {},
        (Drain("a", 30.0), Drain("b", 40.0, 50.0)),
        TWO,
        ["Failed TargetUnavailable", *THERE],
        0.0,
        # back at 43; asked again at 50, when b takes trials again: 4 s + 10 s, then 2 s, 10 s, 3 s; 27 s are left
        50.0 + 4.0 + 10.0 + 2.0 + 10.0 + 3.0 + 27.0,
    ),
    (
        "its node dies before the image is made: it restarts",
        {"a": 40.0},
        (),
        TWO,
        ["Failed PodDeleted"],
        26.0,
        100.0 + 2.0 + 2.0 + 60.0,
    ),
    ("its node dies once it is", {"a": 45.0}, (), TWO, THERE, 0.0, 93.0),
    (
        "its target dies before it is restored: it restarts",
        {"b": 50.0},
        (),
        THREE,
        ["ImagePushed", "PodCreated", "Failed RestoreFailed"],
        26.0,
        110.0 + 2.0 + 2.0 + 60.0,
    ),
    (
        "its target dies when it has shown a value there",
        {"b": 70.0},
        (),
        THREE,
        THERE,
        26.0 + 11.0,
        130.0 + 2.0 + 2.0 + 60.0,
    ),
]


@pytest.mark.parametrize(
    ("dead", "drains", "nodes", "steps", "lost", "end"), [row[1:] for row in BACK], ids=[row[0] for row in BACK]
)
def test_failed_migrations(
    dead: dict[str, float],
    drains: tuple[Drain, ...],
    nodes: tuple[NodeSpec, ...],
    steps: list[str],
    lost: float,
    end: float,
    dies: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dies(**dead)
    found = phases(monkeypatch)
    outcome = simulate(Scenario(nodes, (job(6, **ALIVE),), AT_ONCE, drains=drains or (Drain("a", 30.0),)), checked=True)
    (trial,) = outcome.trials
    assert (found, trial.lost_seconds, outcome.makespan) == (steps, lost, end)
    assert outcome.gpu_seconds(TRAINING) == pytest.approx(60.0 + lost)
    assert (outcome.broken, trial.phase) == ((), TrialPhase.SUCCEEDED)


def test_a_fault_during_a_migration_costs_the_unsaved_work(dies: Any) -> None:
    """With a checkpoint at each value the new attempt starts at 20 s of training: 6 s are repeated, and 40 remain."""
    dies(b=50.0)
    outcome = simulate(Scenario(THREE, (job(6, checkpoints=True, **ALIVE),), AT_ONCE, drains=(Drain("a", 30.0),)))
    assert outcome.trials[0].lost_seconds == 6.0


WAITS = ["ImagePushed", "ImagePushed TargetDraining"]
IMAGES = [
    ("until it takes trials again", 200.0, [*WAITS, "ImagePushed", "PodCreated", "Restored"], 0.0, 255.0),
    (
        "for half an hour: then it restarts elsewhere",
        NEVER,
        [*WAITS, "Failed TargetUnavailable"],
        23.0,
        46.0 + 1800.0 + 5.0 + 2.0 + 60.0,
    ),
]


@pytest.mark.parametrize(("until", "steps", "lost", "end"), [row[1:] for row in IMAGES], ids=[row[0] for row in IMAGES])
def test_an_image_without_a_pod_waits_for_a_draining_target(
    until: float, steps: list[str], lost: float, end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses take 5 s: the pod is lost at 46, between its image (44) and its new pod, as b drains."""
    found, lives = phases(monkeypatch), [46.0]
    monkeypatch.setattr(RandomFaults, "pod_lifetime", lambda self: lives.pop() if lives else NEVER)
    timing, drains = replace(AT_ONCE, notice=5.0), (Drain("a", 30.0), Drain("b", 46.0, until))
    outcome = simulate(Scenario(THREE, (job(6, **ALIVE),), timing, drains=drains), checked=True)
    assert (found, outcome.trials[0].lost_seconds, outcome.makespan) == (steps, lost, end)
    assert outcome.broken == ()


def test_a_silent_agent_migrates_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """a drains at 30, and its agent is silent from 20 to 40: from then on all is as in the first test, 10 s later."""
    ats = [20.0]
    monkeypatch.setattr(RandomFaults, "seconds_until_silence", lambda self: ats.pop() if ats else NEVER)
    monkeypatch.setattr(RandomFaults, "silence_duration", lambda self: 20.0)
    outcome = simulate(Scenario(TWO, (job(5, **ALIVE),), AT_ONCE, drains=(Drain("a", 30.0),)), checked=True)
    used = [(gpu, use, start) for gpu, use, start, _ in spans(outcome) if use != TRAINING]
    assert used[1:3] == [("a", "suspending", 40.0), ("b", "restoring", 56.0)]
    assert outcome.trials[0].lost_seconds == 0.0


def test_a_trial_migrates_to_rebalance_the_gpus() -> None:
    """As with a checkpoint (`test_system_rebalancing`), for trials without one: those on one node end early."""
    lengths = [40 if number % 2 == 0 else 2 for number in range(6)]
    of = job(*lengths, policy="round_robin", settings={"quantum": 20.0}, parallel=6, **ALIVE)
    scenario = Scenario(TWO, (of,), Timing(progress=0.0), rebalancing=RebalancingRules(min_stay=30.0))
    levelled, left = simulate(scenario, checked=True), simulate(replace(scenario, rebalancing=None), checked=True)
    assert levelled.broken == left.broken == ()
    assert (sum(t.migrations for t in levelled.trials), sum(t.migrations for t in left.trials)) == (2, 0)
    assert sum(trial.lost_seconds for trial in levelled.trials) == 0.0
    assert [t.evaluations for t in levelled.trials] == [t.evaluations for t in left.trials]
    assert levelled.makespan < 0.7 * left.makespan


ERRORS = [
    ("unknown", Drain("z", 3.0), "drains: node 'z' is none of the nodes (a, b); name one of these"),
    (
        "before the beginning",
        Drain("a", -1.0),
        "drains: node a drains from -1 s until inf s, which is not a period; give a",
    ),
    ("over before it begins", Drain("a", 9.0, 9.0), "drains: node a drains from 9 s until 9 s, which is not a period"),
    ("never", Drain("a", NEVER), "drains: node a drains from inf s until inf s"),
    ("no number", Drain("a", math.nan), "drains: node a drains from nan s until inf s"),
]


@pytest.mark.parametrize(("drain", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_every_error_has_a_cure(drain: Drain, message: str) -> None:
    with pytest.raises(SimulationError) as error:
        Scenario(TWO, (job(1),), drains=(drain,))
    assert message in str(error.value)


def test_a_search_whose_last_node_drains_does_not_end() -> None:
    of = job(2, 2, 2, method=KEPT)
    with pytest.raises(SimulationError, match=r"has not ended .2 trials left.*is there one that does not drain"):
        simulate(Scenario((NodeSpec("a", 1, slots=2),), (of,), AT_ONCE, drains=(Drain("a", 5.0),)))
