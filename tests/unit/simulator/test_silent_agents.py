"""Silent agents in the simulated system, and telemetry that is as old as the last report: cases by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import simulated
from simulated import AT_ONCE, curve

from podium_core.domain.snapshot import Snapshot
from podium_core.planning.planner import Decision, decide
from podium_simulator.system import operator
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.faults import RandomFaults
from podium_simulator.system.inputs.scenario import (
    Faults,
    NodeSpec,
    Scenario,
    SimJob,
    SimulationError,
    Timing,
)
from podium_simulator.system.results.outcome import TRAINING, Outcome

ONE, TWO = (NodeSpec("a", 1),), (NodeSpec("a", 1), NodeSpec("b", 1))
NEVER = math.inf


def job(*values: tuple[float, ...], **more: Any) -> SimJob:
    return simulated.job(*[curve(*each) for each in values], **more)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The first node's agent is silent from a time on and for a duration; the others never are."""

    def of(at: float, lasts: float) -> None:
        ats = [at]
        monkeypatch.setattr(RandomFaults, "seconds_until_silence", lambda self: ats.pop() if ats else NEVER)
        monkeypatch.setattr(RandomFaults, "silence_duration", lambda self: lasts)

    return of


def starts(outcome: Outcome) -> list[tuple[int, float]]:
    return [(span.number, span.start) for span in outcome.spans if span.use == "starting"]


# alone: the first trial starts at 2, trains from 4 and is over at 24; then the second one, until 46
SILENCES = [
    ("never", 500.0, 1.0, [(0, 2.0), (1, 24.0)], 46.0),
    ("while one runs, which continues", 8.0, 10.0, [(0, 2.0), (1, 24.0)], 46.0),
    ("as one ends, and none starts until it is heard again", 20.0, 20.0, [(0, 2.0), (1, 40.0)], 62.0),
    ("from the beginning, with pods at their gates", 0.5, 30.0, [(0, 30.5), (1, 52.5)], 74.5),
    ("as the last one ends, which is waited for as long as it is silent", 40.0, 20.0, [(0, 2.0), (1, 24.0)], 60.5),
    ("and not for ever", 40.0, 200.0, [(0, 2.0), (1, 24.0)], 91.0),
]


@pytest.mark.parametrize(("at", "lasts", "begin", "end"), [row[1:] for row in SILENCES], ids=[r[0] for r in SILENCES])
def test_a_silent_agent(at: float, lasts: float, begin: list[tuple[int, float]], end: float, silence: Any) -> None:
    silence(at, lasts)
    outcome = simulate(Scenario(ONE, (job((0.1, 0.2), (0.3, 0.4)),), AT_ONCE), checked=True)
    assert (starts(outcome), outcome.makespan, outcome.broken) == (begin, end, ())
    assert outcome.gpu_seconds(TRAINING) == 40.0
    assert sum(trial.lost_seconds for trial in outcome.trials) == 0.0


def test_values_are_known_when_the_agent_is_heard_again(silence: Any) -> None:
    """The target is reached at 14; the agent is silent from 10 to 30."""
    silence(10.0, 20.0)
    outcome = simulate(Scenario(ONE, (job((0.9, *[0.95] * 9), target=0.8),), AT_ONCE))
    assert (outcome.makespan, outcome.jobs[0].reason) == (30.0, "TargetReached")


def test_a_run_queue_waits_for_a_silent_agent(silence: Any) -> None:
    """The second trial's time slice is ordered at 12, and a suspension takes 4 s; the agent is silent from 10 s on."""
    of = job((0.1,) * 30, (0.1,) * 30, policy="round_robin")
    begins = []
    for lasts in (0.0, 100.0):
        silence(10.0, lasts)
        begins.append(starts(simulate(Scenario(ONE, (of,), AT_ONCE), checked=True))[1][1])
    assert begins == [16.0, 114.0]


def test_the_operator_trusts_a_silent_agent_for_45_seconds(silence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, str]] = []

    def spy(snapshot: Snapshot) -> Decision:
        seen.append((snapshot.now, snapshot.gpus[0].health))
        return decide(snapshot)

    monkeypatch.setattr(operator, "decide", spy)
    silence(10.0, 70.0)
    simulate(Scenario(ONE, (job((0.1,) * 20),), replace(AT_ONCE, cycle=1.0)))
    unknown = [now for now, health in seen if health == "Unknown"]
    assert (min(unknown), max(unknown)) == (55.0, 80.0)


def where(outcome: Outcome, name: str) -> str:
    return next(span.gpu for span in outcome.spans if span.trial.name.startswith(name))


# the first job's trial works on a from 2 to 24; the second job's pod is placed at 30 or 90, where a is idle again
PLACED = [
    ("as of now: both are idle, and a comes first", {}, None, 29.0, "a-gpu0"),
    ("as of the report at 30", {"telemetry": 10.0}, None, 29.0, "a-gpu0"),
    ("as of the report at 20, when a held its GPU", {"telemetry": 20.0}, None, 29.0, "b-gpu0"),
    ("as of the last report, when a held its GPU", {}, (20.0, 20.0), 29.0, "b-gpu0"),
    ("as of the last report, when a was idle", {}, (26.0, 20.0), 29.0, "a-gpu0"),
    ("nothing is known of a for a minute, so b", {}, (26.0, 100.0), 89.0, "b-gpu0"),
    ("it is heard again", {}, (20.0, 65.0), 89.0, "a-gpu0"),
]


@pytest.mark.parametrize(
    ("timing", "silent", "created", "gpu"), [row[1:] for row in PLACED], ids=[row[0] for row in PLACED]
)
def test_placement_uses_the_last_report(
    timing: dict[str, float], silent: tuple[float, float] | None, created: float, gpu: str, silence: Any
) -> None:
    if silent is not None:
        silence(*silent)
    jobs = job((0.1, 0.2), name="first"), job((0.1, 0.2), name="second", created=created)
    outcome = simulate(Scenario(TWO, jobs, replace(AT_ONCE, **timing)))
    assert (where(outcome, "first"), where(outcome, "second")) == ("a-gpu0", gpu)


def test_an_unknown_node_is_better_than_none(silence: Any) -> None:
    """b has one slot; the third pod is placed on a after a minute of silence, and waits at its gate."""
    nodes = NodeSpec("a", 1), NodeSpec("b", 1, slots=1)
    silence(0.5, 200.0)
    jobs = job((0.1,) * 20, name="first"), job((0.1, 0.2), (0.1, 0.2), name="second", created=89.0)
    outcome = simulate(Scenario(nodes, jobs, AT_ONCE), checked=True)
    late = [span.start for span in outcome.spans if span.trial.name.startswith("second") and span.gpu == "a-gpu0"]
    assert late
    assert min(late) >= 200.5


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"timing": Timing(telemetry=-1.0)}, "timing.telemetry: -1 s"),
        ({"faults": Faults(silence=0.0)}, "faults.silence, faults.silent: each 0 s for 300 s"),
        (
            {"faults": Faults(silence=9.0, silent=-1.0)},
            "each 9 s for -1 s is not possible; give more than 0, and 0 or more",
        ),
    ],
)
def test_every_error_has_a_cure(made: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        Scenario(ONE, (job((0.1,)),), **made)
