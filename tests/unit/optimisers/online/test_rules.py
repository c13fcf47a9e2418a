"""Online rules: feasible and within their proven ratio on random, hard and adversarial streams."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.online.adversary import HARD_STREAMS, adaptive_adversary, random_stream, slow_machines
from podium_optimisers.online.bound import lower_bound
from podium_optimisers.online.rules import RULES, OnlineRule, run_rule
from podium_optimisers.online.schedule import OnlineSchedule, violations
from podium_optimisers.online.stream import Stream, Task
from podium_optimisers.validation import InputError

RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
SECONDS = st.one_of(st.sampled_from([0.1, 1.0, 1.0, 4.0, 64.0]), st.floats(0.01, 100.0))


@st.composite
def streams(draw: st.DrawFn, most: int = 14) -> Stream:
    """Return a random stream: also one-sided machines, ties, one-sided tasks, equal or spread releases."""
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


def assert_sound(schedule: OnlineSchedule, rule: OnlineRule) -> None:
    assert list(violations(schedule)) == []
    assert schedule.makespan >= schedule.lower_bound * (1.0 - 1e-9)
    assert schedule.ratio <= rule.competitive_ratio(schedule.stream) * (1.0 + 1e-9)


@RULE
@given(streams())
@settings(deadline=None, max_examples=50)
def test_schedules_are_feasible_and_within_the_proven_ratio(rule: OnlineRule, stream: Stream) -> None:
    assert_sound(run_rule(stream, rule), rule)


@given(streams())
@settings(deadline=None, max_examples=50)
def test_qa_is_within_the_sharper_ratio_of_independent_tasks(stream: Stream) -> None:
    """The ratio is s + 2 (proof in docs/explanation/optimisers/online.md); 2 s + 1 is the ratio for task graphs."""
    assert run_rule(stream, RULES["qa"]).ratio <= (stream.sqrt_side_ratio + 2.0) * (1.0 + 1e-9)


@RULE
@pytest.mark.parametrize("machines", [(1, 1), (4, 4), (16, 2), (64, 4), (2, 8)])
@pytest.mark.parametrize("name", HARD_STREAMS)
def test_hard_streams_do_not_break_the_proofs(rule: OnlineRule, machines: tuple[int, int], name: str) -> None:
    assert_sound(run_rule(HARD_STREAMS[name](*machines), rule), rule)


@RULE
@pytest.mark.parametrize("machines", [(1, 1), (8, 2), (2, 8)])
def test_an_adaptive_adversary_does_not_break_the_proofs(rule: OnlineRule, machines: tuple[int, int]) -> None:
    stream = adaptive_adversary(rule, *machines, steps=6, rng=np.random.default_rng(4))
    assert_sound(run_rule(stream, rule), rule)
    first_task_only = Stream(stream.tasks[:1], *machines)
    assert run_rule(stream, rule).ratio >= run_rule(first_task_only, rule).ratio  # the adversary made the ratio worse


def test_each_hard_stream_defeats_its_rule() -> None:
    # each ratio is near the expected one, so an error in a rule's threshold would show
    spread = math.sqrt(16 / 2)
    assert run_rule(slow_machines(16, 2), RULES["graham"]).ratio > 100 * RULES["qa"].competitive_ratio(
        slow_machines(16, 2)
    )
    assert run_rule(slow_machines(16, 2), RULES["qa"]).ratio < 2.0
    assert run_rule(HARD_STREAMS["just_below"](16, 2), RULES["qa"]).ratio == pytest.approx(spread, rel=1e-3)
    assert run_rule(HARD_STREAMS["just_below"](16, 2), RULES["er_ls"]).ratio == pytest.approx(1.0)
    assert run_rule(HARD_STREAMS["at_threshold"](64, 4), RULES["qa"]).ratio > 0.9 * (math.sqrt(64 / 4) + 2.0)
    assert run_rule(HARD_STREAMS["tempted"](64, 4), RULES["list"]).ratio > 1.2


@given(streams(most=5))
@settings(deadline=None, max_examples=60)
def test_the_lower_bound_is_below_every_schedule(stream: Stream) -> None:
    """Compare with all assignments; on each machine the order of release is optimal for the makespan."""
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
        # the tasks are too long for the CPUs at that length, so the GPU must take both
        ([Task("a", 100.0, 5.0), Task("b", 100.0, 5.0)], (30, 1), 10.0),
        # time before 10 does not help the tasks released at 10
        ([Task("early", 1.0, 1.0), *(Task(f"{i}", 2.0, 2.0, 10.0) for i in range(4))], (1, 1), 14.0),
        ([Task("a", 3.0, math.inf), Task("b", 3.0, math.inf)], (1, 5), 6.0),
        ([Task("a", 3.0, 1.0), Task("b", 3.0, 1.0)], (2, 0), 3.0),
    ],
)
def test_the_lower_bound_of_hand_made_streams(tasks: list[Task], machines: tuple[int, int], want: float) -> None:
    assert lower_bound(Stream.of(tasks, *machines)) == pytest.approx(want, rel=1e-6)


@RULE
@given(streams(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_rules_are_deterministic_and_ignore_the_input_order(rule: OnlineRule, stream: Stream, random: object) -> None:
    """Rules handle tasks in order of release, so with distinct releases the input order does not matter."""
    distinct = [Task(t.name, t.cpu, t.gpu, t.release + 0.001 * i) for i, t in enumerate(stream.tasks)]
    shuffled = list(distinct)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = run_rule(Stream.of(distinct, stream.cpus, stream.gpus), rule)
    second = run_rule(Stream.of(shuffled, stream.cpus, stream.gpus), rule)
    assert (first.machine == second.machine).all()
    assert (first.ends == second.ends).all()


@given(streams(), st.sampled_from([0.125, 8.0]))
@settings(deadline=None, max_examples=50)
def test_the_unit_of_time_does_not_matter(stream: Stream, factor: float) -> None:
    scaled = [Task(t.name, t.cpu * factor, t.gpu * factor, t.release * factor) for t in stream.tasks]
    for rule in RULES.values():
        ends = run_rule(Stream.of(scaled, stream.cpus, stream.gpus), rule).ends
        assert ends == pytest.approx(run_rule(stream, rule).ends * factor)


def test_violations_are_reported() -> None:
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
    ("tasks", "machines", "code", "message"),
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
def test_invalid_input_is_refused_with_item_and_field(
    tasks: list[Task], machines: tuple[int, int], code: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        Stream.of(tasks, *machines)
    assert caught.value.code == code
    assert str(caught.value).startswith(message)


def test_a_seed_gives_the_same_stream() -> None:
    first, second = (random_stream(np.random.default_rng(3), 20, 4, 2, 0.5) for _ in range(2))
    assert first == second
    assert first != random_stream(np.random.default_rng(4), 20, 4, 2, 0.5)
