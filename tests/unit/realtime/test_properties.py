"""Whatever the tasks and the policy: precedence, places, order and bookkeeping hold in the simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import CASES, DIAMOND, LONG, Case, play, searching, task_sets

from podium_realtime.model.task import PeriodicTask, identical
from podium_realtime.record.invariants import violations
from podium_realtime.record.run import Run
from podium_realtime.scheduling.work import JobEnd, Outcome

SECONDS = 0.15
relaxed = searching(15, LONG // len(CASES))  # so many sets over all cases


@pytest.mark.parametrize("case", CASES, ids=str)
@relaxed
@given(tasks=task_sets(), seed=st.integers(0, 9), patience=st.sampled_from([0.0, 0.3, 1.0]))
def test_every_run_is_sound(case: Case, tasks: tuple[PeriodicTask, ...], seed: int, patience: float) -> None:
    run = play(case, tasks, SECONDS, seed, patience)
    assert violations(run, case.pool, case.policy, case.shared_queue) == []


@pytest.mark.parametrize("case", CASES, ids=str)
@relaxed
@given(tasks=task_sets())
def test_every_release_ends_once_and_nothing_is_invented(case: Case, tasks: tuple[PeriodicTask, ...]) -> None:
    run = play(case, tasks, SECONDS)
    for task in tasks:
        numbers = sorted(end.job.number for end in run.ends if end.job.task.name == task.name)
        assert numbers == list(range(len(numbers)))
        due = (SECONDS - task.offset) / task.period
        assert due - 0.001 <= len(numbers) <= due + 1.001


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_seed_same_run(case: Case) -> None:
    tasks = identical(6, DIAMOND, 60.0)
    assert play(case, tasks, SECONDS, seed=3) == play(case, tasks, SECONDS, seed=3)
    assert play(case, tasks, SECONDS, seed=3).spans != play(case, tasks, SECONDS, seed=4).spans


@pytest.mark.parametrize("fault", ["early", "crowded", "twice", "order", "late"])
def test_the_invariants_see_faults(fault: str) -> None:
    """An instrument that cannot show a fault proves nothing."""
    case = CASES[0]
    run = play(case, identical(12, DIAMOND, 60.0, spread=False), SECONDS)
    assert violations(run, case.pool, case.policy, False) == []
    assert violations(_broken(run, fault), case.pool, case.policy, False)


def _broken(run: Run, fault: str) -> Run:
    spans = list(run.spans)
    if fault == "early":
        spans = [replace(s, began=0.0) if s.work.stages[0].index == 3 else s for s in spans]
    elif fault == "crowded":
        spans = [replace(s, work=replace(s.work, context=0)) for s in spans]
    elif fault == "twice":
        spans.append(spans[0])
    elif fault == "order":
        numbers = sorted(s.work.number for s in spans)
        mirror = dict(zip(numbers, reversed(numbers), strict=True))
        spans = [replace(s, work=replace(s.work, number=mirror[s.work.number])) for s in spans]
    ends = run.ends
    if fault == "late":
        ends = tuple(_relabelled(end) for end in ends)
    return Run(run.seconds, ends, tuple(spans))


def _relabelled(end: JobEnd) -> JobEnd:
    return replace(end, outcome=Outcome.LATE) if end.outcome is Outcome.MET else end
