"""Online rules: feasible and within their proven ratio on every stream (random, traps, an adversary), refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.online.adversary import TRAPS, answer, slow_machines, typical
from podium_optimisers.online.bound import lower_bound
from podium_optimisers.online.rules import RULES, Rule, run
from podium_optimisers.online.schedule import OnlineSchedule, violations
from podium_optimisers.online.stream import Stream, Task
from podium_optimisers.queueing.checks import InputError

RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
SECONDS = st.one_of(st.sampled_from([0.1, 1.0, 1.0, 4.0, 64.0]), st.floats(0.01, 100.0))


@st.composite
def streams(draw: st.DrawFn, most: int = 14) -> Stream:
    """Any machines (also one side alone), ties, tasks of one side only, all at once or spread out."""
    cpus, gpus = draw(st.sampled_from([(1, 1), (2, 1), (5, 1), (1, 4), (3, 2), (9, 2), (2, 0), (0, 3)]))
    tasks = []
    for number in range(draw(st.integers(0, most))):
        cpu, gpu = draw(SECONDS), draw(SECONDS)
        only = draw(st.sampled_from(["both", "both", "both", "cpu", "gpu"]))
        if only == "cpu" and cpus:
            gpu = math.inf
        if only == "gpu" and gpus:
            cpu = math.inf
        tasks.append(Task(f"t{number}", cpu, gpu, draw(st.sampled_from([0.0, 0.0, 1.0, 2.5, 30.0]))))
    return Stream.of(tasks, cpus, gpus)


def assert_sound(schedule: OnlineSchedule, rule: Rule) -> None:
    assert list(violations(schedule)) == []
    assert schedule.makespan >= schedule.lower_bound * (1.0 - 1e-9)
    assert schedule.ratio <= rule.proven(schedule.stream) * (1.0 + 1e-9)


@RULE
@given(streams())
@settings(deadline=None, max_examples=50)
def test_feasible_and_within_the_proven_ratio(rule: Rule, stream: Stream) -> None:
    assert_sound(run(stream, rule), rule)


@given(streams())
@settings(deadline=None, max_examples=50)
def test_qa_is_within_the_sharper_ratio_of_independent_tasks(stream: Stream) -> None:
    """s + 2 (2 on one side alone): our proof in docs/optimisers-online.md; 2 s + 1 is that of task graphs."""
    assert run(stream, RULES["qa"]).ratio <= (stream.spread + 2.0) * (1.0 + 1e-9)


@RULE
@pytest.mark.parametrize("machines", [(1, 1), (4, 4), (16, 2), (64, 4), (2, 8)])
@pytest.mark.parametrize("trap", TRAPS)
def test_traps_do_not_break_the_proofs(rule: Rule, machines: tuple[int, int], trap: str) -> None:
    assert_sound(run(TRAPS[trap](*machines), rule), rule)


@RULE
@pytest.mark.parametrize("machines", [(1, 1), (8, 2), (2, 8)])
def test_an_adversary_that_watches_does_not_break_the_proofs(rule: Rule, machines: tuple[int, int]) -> None:
    stream = answer(rule, *machines, steps=6, rng=np.random.default_rng(4))
    assert_sound(run(stream, rule), rule)
    begun = Stream(stream.tasks[:1], *machines)
    assert run(stream, rule).ratio >= run(begun, rule).ratio  # it did find something that hurts


def test_the_traps_bite() -> None:
    # each ratio is about the one it was made for, so a rule that ignored its threshold would be seen
    spread = math.sqrt(16 / 2)
    assert run(slow_machines(16, 2), RULES["graham"]).ratio > 100 * RULES["qa"].proven(slow_machines(16, 2))
    assert run(slow_machines(16, 2), RULES["qa"]).ratio < 2.0
    assert run(TRAPS["just_below"](16, 2), RULES["qa"]).ratio == pytest.approx(spread, rel=1e-3)
    assert run(TRAPS["just_below"](16, 2), RULES["er_ls"]).ratio == pytest.approx(1.0)
    assert run(TRAPS["at_threshold"](64, 4), RULES["qa"]).ratio > 0.9 * (math.sqrt(64 / 4) + 2.0)
    assert run(TRAPS["tempted"](64, 4), RULES["list"]).ratio > 1.2


@given(streams(most=5))
@settings(deadline=None, max_examples=60)
def test_the_bound_is_below_every_schedule(stream: Stream) -> None:
    """All assignments, on each machine in order of release (optimal there for the last end)."""
    seconds = np.column_stack([np.tile(stream.cpu, (stream.cpus, 1)).T, np.tile(stream.gpu, (stream.gpus, 1)).T])
    best = 0.0 if not stream.tasks else math.inf
    for machines in itertools.product(range(seconds.shape[1]), repeat=len(stream.tasks)):
        free = [0.0] * seconds.shape[1]
        for number, machine in enumerate(machines):
            free[machine] = max(free[machine], stream.tasks[number].release) + seconds[number, machine]
        best = min(best, max(free))
        if len(stream.tasks) == 0:
            break
    assert lower_bound(stream) <= best * (1.0 + 1e-9)
    longest = max((task.release + min(task.cpu, task.gpu) for task in stream.tasks), default=0.0)
    assert lower_bound(stream) >= longest * (1.0 - 1e-12) or not (stream.cpus and stream.gpus)


@pytest.mark.parametrize(
    ("tasks", "machines", "want"),
    [
        ([], (1, 1), 0.0),
        ([Task("a", 4.0, 4.0)] * 1, (1, 1), 4.0),
        # 3 equal tasks on one CPU and one GPU: 1.5 times their time, cut into pieces
        ([Task(f"{i}", 2.0, 2.0) for i in range(3)], (1, 1), 3.0),
        # too long for the CPU at that length: the GPU must take it, although the area has room
        ([Task("a", 100.0, 5.0), Task("b", 100.0, 5.0)], (30, 1), 10.0),
        # nothing before 10 helps those that come at 10
        ([Task("early", 1.0, 1.0), *(Task(f"{i}", 2.0, 2.0, 10.0) for i in range(4))], (1, 1), 14.0),
        ([Task("a", 3.0, math.inf), Task("b", 3.0, math.inf)], (1, 5), 6.0),
        ([Task("a", 3.0, 1.0), Task("b", 3.0, 1.0)], (2, 0), 3.0),
    ],
)
def test_the_bound_by_hand(tasks: list[Task], machines: tuple[int, int], want: float) -> None:
    assert lower_bound(Stream.of(tasks, *machines)) == pytest.approx(want, rel=1e-6)


@RULE
@given(streams(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_determinism_and_order_of_the_input(rule: Rule, stream: Stream, random: object) -> None:
    """Rules look at tasks in order of release: with distinct releases the order they are given in is nothing."""
    distinct = [Task(t.name, t.cpu, t.gpu, t.release + 0.001 * i) for i, t in enumerate(stream.tasks)]
    shuffled = list(distinct)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = run(Stream.of(distinct, stream.cpus, stream.gpus), rule)
    second = run(Stream.of(shuffled, stream.cpus, stream.gpus), rule)
    assert (first.machine == second.machine).all()
    assert (first.ends == second.ends).all()


@given(streams(), st.sampled_from([0.125, 8.0]))
@settings(deadline=None, max_examples=50)
def test_the_unit_of_time_is_nothing(stream: Stream, factor: float) -> None:
    scaled = [Task(t.name, t.cpu * factor, t.gpu * factor, t.release * factor) for t in stream.tasks]
    for rule in RULES.values():
        ends = run(Stream.of(scaled, stream.cpus, stream.gpus), rule).ends
        assert ends == pytest.approx(run(stream, rule).ends * factor)


def test_violations_are_seen() -> None:
    stream = Stream.of([Task("a", 2.0, 1.0), Task("b", 2.0, 1.0, 3.0)], 1, 1)

    def faults(machine: list[int], starts: list[float], ends: list[float]) -> list[str]:
        schedule = OnlineSchedule(stream, np.array(machine), np.array(starts), np.array(ends))
        return [text.split(":")[0] if ":" in text else text for text in violations(schedule)]

    assert faults([0, 1], [0.0, 3.0], [2.0, 4.0]) == []
    assert faults([0, 1], [0.0, 2.0], [2.0, 3.0]) == ["b"]  # before its release
    assert faults([0, 1], [0.0, 3.0], [1.0, 4.0]) == ["a"]  # too short
    assert faults([2, 1], [0.0, 3.0], [2.0, 4.0]) == ["a", "a"]  # no such machine (and a GPU's time)
    assert faults([0, 0], [2.0, 3.0], [4.0, 5.0]) == ["a and b overlap on machine 0"]


@pytest.mark.parametrize(
    ("tasks", "machines", "code", "said"),
    [
        ([Task("a", -1.0, 1.0)], (1, 1), "TooSmall", "a.cpu: -1 "),
        ([Task("a", 1.0, 0.0)], (1, 1), "TooSmall", "a.gpu: 0 "),
        ([Task("a", 1.0, math.nan)], (1, 1), "NotANumber", "a.gpu"),
        ([Task("a", -math.inf, 1.0)], (1, 1), "NotFinite", "a.cpu"),
        ([Task("a", 1.0, 1.0, math.inf)], (1, 1), "NotFinite", "a.release"),
        ([Task("a", 1.0, 1.0, -1.0)], (1, 1), "TooSmall", "a.release"),
        ([Task("a", 1.0, 1.0)] * 2, (1, 1), "NameReserved", "a.name"),
        ([Task("a", math.inf, math.inf)], (1, 1), "NoFittingMachine", "a.cpu, gpu"),
        ([Task("a", math.inf, 1.0)], (3, 0), "NoFittingMachine", "a.cpu, gpu"),
        ([Task("a", 1.0, math.inf)], (0, 3), "NoFittingMachine", "a.cpu, gpu"),
        ([], (0, 0), "NoMachines", "cpus, gpus"),
        ([], (-1, 1), "TooSmall", "cpus"),
    ],
)
def test_wrong_input_is_refused_by_task_and_field(
    tasks: list[Task], machines: tuple[int, int], code: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        Stream.of(tasks, *machines)
    assert caught.value.code == code
    assert str(caught.value).startswith(said)


def test_a_seed_gives_the_same_stream() -> None:
    first, second = (typical(np.random.default_rng(3), 20, 4, 2, 0.5) for _ in range(2))
    assert first == second
    assert first != typical(np.random.default_rng(4), 20, 4, 2, 0.5)
