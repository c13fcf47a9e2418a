"""Adaptive reallocation: the ratio of 4 on every stream, failing machines, the gain, invalid input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.online.adaptive import MachineChange, dual_hp_sides, run_adaptive
from podium_optimisers.online.adversary import HARD_STREAMS, random_stream
from podium_optimisers.online.schedule import violations
from podium_optimisers.online.stream import Stream, Task
from podium_optimisers.validation import InputError

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
def test_schedules_are_feasible_and_within_the_proven_ratio(
    stream: Stream, reallocate: bool, longest_first: bool
) -> None:
    result = run_adaptive(stream, reallocate=reallocate, longest_first=longest_first)
    assert list(violations(result.schedule)) == []
    proven = PROVEN if reallocate else stream.sqrt_side_ratio + 2.0
    assert result.schedule.ratio <= proven * (1.0 + 1e-9)
    assert (result.restarts, result.lost_work) == (0, 0.0)
    assert reallocate or result.moves == 0


@pytest.mark.parametrize("machines", [(1, 1), (16, 2), (64, 4), (2, 8)])
@pytest.mark.parametrize("name", HARD_STREAMS)
def test_hard_streams_do_not_break_the_proof(machines: tuple[int, int], name: str) -> None:
    result = run_adaptive(HARD_STREAMS[name](*machines))
    assert list(violations(result.schedule)) == []
    assert result.schedule.ratio <= PROVEN


@st.composite
def outages(draw: st.DrawFn) -> tuple[Stream, list[MachineChange]]:
    """Return a stream with machines that fail at any time, also repeatedly, and return in the end."""
    stream = draw(streams())
    changes = []
    for machine in range(stream.cpus + stream.gpus):
        times = sorted(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 3.5, 40.0]), unique=True, max_size=4)))
        times = times[: len(times) // 2 * 2]
        changes += [MachineChange(time, machine, bool(number % 2)) for number, time in enumerate(times)]
    return stream, changes


@given(outages(), st.booleans())
@settings(deadline=None, max_examples=50)
def test_no_task_runs_on_a_failed_machine_and_no_task_is_lost(
    outage: tuple[Stream, list[MachineChange]], reallocate: bool
) -> None:
    stream, changes = outage
    result = run_adaptive(stream, changes, reallocate=reallocate)
    schedule = result.schedule
    assert list(violations(schedule)) == []
    for gone, back in zip(changes[::2], changes[1::2], strict=True):
        assert (gone.machine, gone.up, back.up) == (back.machine, False, True)
        mine = schedule.machine == gone.machine
        assert not (mine & (schedule.starts < back.time) & (schedule.ends > gone.time)).any()
    assert result.restarts > 0 or result.lost_work == 0.0


def test_a_task_on_a_lost_gpu_starts_again_on_another() -> None:
    stream = Stream.of([Task("a", math.inf, 10.0)], 0, 2)
    result = run_adaptive(stream, [MachineChange(4.0, 0, up=False)])
    assert (result.schedule.machine.tolist(), result.schedule.makespan) == ([1], 14.0)
    assert (result.restarts, result.lost_work) == (1, 4.0)


def test_a_task_that_returns_to_its_machine_runs_in_full() -> None:
    stream = Stream.of([Task("a", math.inf, 10.0)], 0, 1)
    result = run_adaptive(stream, [MachineChange(4.0, 0, up=False), MachineChange(5.0, 0, up=True)])
    assert result.schedule.ends.tolist() == [15.0]


def test_waiting_tasks_move_away_from_a_failed_side() -> None:
    stream = Stream.of([Task(f"t{i}", 8.0, 1.0) for i in range(4)], 4, 1)
    gone = [MachineChange(0.5, 4, up=False)]
    result = run_adaptive(stream, [*gone, MachineChange(100.0, 4, up=True)])
    stayed = run_adaptive(stream, [*gone, MachineChange(100.0, 4, up=True)], reallocate=False)
    assert result.schedule.makespan == 8.5
    assert result.moves >= 1
    assert stayed.schedule.makespan > 100.0


@pytest.mark.parametrize(("longest_first", "ends"), [(True, 2.0), (False, 3.0)])
@pytest.mark.parametrize("reallocate", [True, False])
def test_longest_first_is_independent_of_reallocation(reallocate: bool, longest_first: bool, ends: float) -> None:
    stream = Stream.of([Task("a", 1.0, math.inf), Task("b", 1.0, math.inf), Task("c", 2.0, math.inf)], 2, 0)
    result = run_adaptive(stream, reallocate=reallocate, longest_first=longest_first)
    assert result.schedule.makespan == ends


def test_reallocation_lowers_the_makespan_at_high_load() -> None:
    ratios = []
    for seed in range(5):
        stream = random_stream(np.random.default_rng(seed), 120, 16, 2, 1.0)
        ratios.append([run_adaptive(stream, reallocate=on).schedule.ratio for on in (True, False)])
    assert np.mean(ratios, axis=0)[0] < 0.8 * np.mean(ratios, axis=0)[1]


@given(streams())
@settings(deadline=None, max_examples=50)
def test_dual_hp_sides_end_by_twice_the_bound(stream: Stream) -> None:
    at_once = Stream.of([Task(t.name, t.cpu, t.gpu) for t in stream.tasks], stream.cpus, stream.gpus)
    sides = dual_hp_sides(at_once.cpu, at_once.gpu, at_once.cpus, at_once.gpus)
    assert not (sides & np.isinf(at_once.gpu)).any()
    assert not (~sides & np.isinf(at_once.cpu)).any()
    assert run_adaptive(at_once).schedule.ratio <= 2.0 * (1.0 + 2e-6)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (MachineChange(1.0, 2, up=False), "UnknownMachine", "machine 2.machine"),
        (MachineChange(math.nan, 0, up=False), "NotANumber", "machine 0.time"),
        (MachineChange(-1.0, 0, up=False), "TooSmall", "machine 0.time"),
        (MachineChange(0.0, 1, up=False), "TaskNeverRuns", "a.machine"),
    ],
)
def test_invalid_changes_are_refused_with_machine_and_field(change: MachineChange, code: str, message: str) -> None:
    stream = Stream.of([Task("a", math.inf, 1.0)], 1, 1)
    with pytest.raises(InputError) as caught:
        run_adaptive(stream, [change])
    assert caught.value.code == code
    assert str(caught.value).startswith(message)
