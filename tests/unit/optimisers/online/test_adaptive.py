"""Adaptive reallocation: the ratio of 4 on every stream, machines that go and come, what it is worth, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.online.adaptive import MachineChange, run_adaptive
from podium_optimisers.online.adversary import TRAPS, typical
from podium_optimisers.online.balance import balanced
from podium_optimisers.online.schedule import violations
from podium_optimisers.online.stream import Stream, Task
from podium_optimisers.queueing.checks import InputError

PROVEN = 4.0 * (1.0 + 2e-6)
SECONDS = st.one_of(st.sampled_from([0.1, 1.0, 1.0, 4.0, 64.0]), st.floats(0.01, 100.0))


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    cpus, gpus = draw(st.sampled_from([(1, 1), (5, 1), (1, 4), (3, 2), (9, 2), (2, 0), (0, 3)]))
    tasks = []
    for number in range(draw(st.integers(0, 14))):
        cpu, gpu = draw(SECONDS), draw(SECONDS)
        only = draw(st.sampled_from(["both", "both", "both", "cpu", "gpu"]))
        if only == "cpu" and cpus:
            gpu = math.inf
        if only == "gpu" and gpus:
            cpu = math.inf
        tasks.append(Task(f"t{number}", cpu, gpu, draw(st.sampled_from([0.0, 0.0, 1.0, 2.5, 30.0]))))
    return Stream.of(tasks, cpus, gpus)


@given(streams(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=50)
def test_feasible_and_within_the_proven_ratio(stream: Stream, reallocate: bool, longest_first: bool) -> None:
    found = run_adaptive(stream, reallocate=reallocate, longest_first=longest_first)
    assert list(violations(found.schedule)) == []
    proven = PROVEN if reallocate else stream.spread + 2.0
    assert found.schedule.ratio <= proven * (1.0 + 1e-9)
    assert (found.restarts, found.wasted) == (0, 0.0)
    assert reallocate or found.moves == 0


@pytest.mark.parametrize("machines", [(1, 1), (16, 2), (64, 4), (2, 8)])
@pytest.mark.parametrize("trap", TRAPS)
def test_traps_do_not_break_the_proof(machines: tuple[int, int], trap: str) -> None:
    found = run_adaptive(TRAPS[trap](*machines))
    assert list(violations(found.schedule)) == []
    assert found.schedule.ratio <= PROVEN


@st.composite
def outages(draw: st.DrawFn) -> tuple[Stream, list[MachineChange]]:
    """Machines that go at any time, also several times, and come back in the end."""
    stream = draw(streams())
    changes = []
    for machine in range(stream.cpus + stream.gpus):
        times = sorted(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 3.5, 40.0]), unique=True, max_size=4)))
        times = times[: len(times) // 2 * 2]
        changes += [MachineChange(time, machine, bool(number % 2)) for number, time in enumerate(times)]
    return stream, changes


@given(outages(), st.booleans())
@settings(deadline=None, max_examples=50)
def test_nothing_runs_on_a_machine_that_is_gone_and_nothing_is_lost(
    outage: tuple[Stream, list[MachineChange]], reallocate: bool
) -> None:
    stream, changes = outage
    found = run_adaptive(stream, changes, reallocate=reallocate)
    schedule = found.schedule
    assert list(violations(schedule)) == []
    for gone, back in zip(changes[::2], changes[1::2], strict=True):
        assert (gone.machine, gone.up, back.up) == (back.machine, False, True)
        mine = schedule.machine == gone.machine
        assert not (mine & (schedule.starts < back.time) & (schedule.ends > gone.time)).any()
    assert found.restarts > 0 or found.wasted == 0.0


def test_a_task_on_a_lost_gpu_starts_again_on_another() -> None:
    stream = Stream.of([Task("a", math.inf, 10.0)], 0, 2)
    found = run_adaptive(stream, [MachineChange(4.0, 0, up=False)])
    assert (found.schedule.machine.tolist(), found.schedule.makespan) == ([1], 14.0)
    assert (found.restarts, found.wasted) == (1, 4.0)


def test_a_task_that_comes_back_to_its_own_machine_runs_in_full() -> None:
    stream = Stream.of([Task("a", math.inf, 10.0)], 0, 1)
    found = run_adaptive(stream, [MachineChange(4.0, 0, up=False), MachineChange(5.0, 0, up=True)])
    assert found.schedule.ends.tolist() == [15.0]


def test_waiting_tasks_flee_from_a_side_that_is_gone() -> None:
    stream = Stream.of([Task(f"t{i}", 8.0, 1.0) for i in range(4)], 4, 1)
    gone = [MachineChange(0.5, 4, up=False)]
    found = run_adaptive(stream, [*gone, MachineChange(100.0, 4, up=True)])
    stayed = run_adaptive(stream, [*gone, MachineChange(100.0, 4, up=True)], reallocate=False)
    assert found.schedule.makespan == 8.5
    assert found.moves >= 1
    assert stayed.schedule.makespan > 100.0


@pytest.mark.parametrize(("longest_first", "ends"), [(True, 2.0), (False, 3.0)])
@pytest.mark.parametrize("reallocate", [True, False])
def test_the_order_is_a_choice_of_its_own(reallocate: bool, longest_first: bool, ends: float) -> None:
    stream = Stream.of([Task("a", 1.0, math.inf), Task("b", 1.0, math.inf), Task("c", 2.0, math.inf)], 2, 0)
    found = run_adaptive(stream, reallocate=reallocate, longest_first=longest_first)
    assert found.schedule.makespan == ends


def test_reallocation_pays_where_the_load_is_high() -> None:
    ratios = []
    for seed in range(5):
        stream = typical(np.random.default_rng(seed), 120, 16, 2, 1.0)
        ratios.append([run_adaptive(stream, reallocate=on).schedule.ratio for on in (True, False)])
    assert np.mean(ratios, axis=0)[0] < 0.8 * np.mean(ratios, axis=0)[1]


@given(streams())
@settings(deadline=None, max_examples=50)
def test_balanced_sides_end_by_twice_the_bound(stream: Stream) -> None:
    at_once = Stream.of([Task(t.name, t.cpu, t.gpu) for t in stream.tasks], stream.cpus, stream.gpus)
    sides = balanced(at_once.cpu, at_once.gpu, at_once.cpus, at_once.gpus)
    assert not (sides & np.isinf(at_once.gpu)).any()
    assert not (~sides & np.isinf(at_once.cpu)).any()
    assert run_adaptive(at_once).schedule.ratio <= 2.0 * (1.0 + 2e-6)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (MachineChange(1.0, 2, up=False), "UnknownMachine", "machine 2.machine"),
        (MachineChange(math.nan, 0, up=False), "NotANumber", "machine 0.time"),
        (MachineChange(-1.0, 0, up=False), "TooSmall", "machine 0.time"),
        (MachineChange(0.0, 1, up=False), "TaskNeverRuns", "a.machine"),
    ],
)
def test_wrong_changes_are_refused_by_machine_and_field(change: MachineChange, code: str, said: str) -> None:
    stream = Stream.of([Task("a", math.inf, 1.0)], 1, 1)
    with pytest.raises(InputError) as caught:
        run_adaptive(stream, [change])
    assert caught.value.code == code
    assert str(caught.value).startswith(said)
