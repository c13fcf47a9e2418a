"""Property tests: under every policy and task set, simulated runs satisfy the invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realtime_builders import (
    CASES,
    DIAMOND,
    RANDOM_SETS,
    PolicyCase,
    hypothesis_settings,
    simulate_case,
    task_sets,
)

from podium_realtime.model.task import PeriodicTask, identical_tasks
from podium_realtime.results.invariants import violations
from podium_realtime.results.trace import ScheduleTrace
from podium_realtime.scheduling.jobs import JobOutcome, JobResult

SECONDS = 0.15
random_sets = hypothesis_settings(15, RANDOM_SETS // len(CASES))  # the long search divides its sets by the cases


@pytest.mark.parametrize("case", CASES, ids=str)
@random_sets
@given(tasks=task_sets(), seed=st.integers(0, 9), patience=st.sampled_from([0.0, 0.3, 1.0]))
def test_every_run_satisfies_the_invariants(
    case: PolicyCase, tasks: tuple[PeriodicTask, ...], seed: int, patience: float
) -> None:
    trace = simulate_case(case, tasks, SECONDS, seed, patience)
    assert violations(trace, case.pool, case.policy, case.shared_queue) == []


@pytest.mark.parametrize("case", CASES, ids=str)
@random_sets
@given(tasks=task_sets())
def test_every_release_has_exactly_one_result(case: PolicyCase, tasks: tuple[PeriodicTask, ...]) -> None:
    trace = simulate_case(case, tasks, SECONDS)
    for task in tasks:
        numbers = sorted(result.job.number for result in trace.jobs if result.job.task.name == task.name)
        assert numbers == list(range(len(numbers)))
        expected = (SECONDS - task.offset) / task.period
        assert expected - 0.001 <= len(numbers) <= expected + 1.001


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_run_depends_on_the_seed_alone(case: PolicyCase) -> None:
    tasks = identical_tasks(6, DIAMOND, 60.0)
    first, repeated = (simulate_case(case, tasks, SECONDS, seed=3) for _ in range(2))
    assert first == repeated
    assert first.executions != simulate_case(case, tasks, SECONDS, seed=4).executions


@pytest.mark.parametrize("fault", ["early", "crowded", "twice", "order", "late"])
def test_the_invariants_detect_faults(fault: str) -> None:
    case = CASES[0]
    trace = simulate_case(case, identical_tasks(12, DIAMOND, 60.0, spread=False), SECONDS)
    assert violations(trace, case.pool, case.policy, False) == []
    assert violations(_with_fault(trace, fault), case.pool, case.policy, False)


def _with_fault(trace: ScheduleTrace, fault: str) -> ScheduleTrace:
    """Return the trace with one kind of fault."""
    executions = list(trace.executions)
    if fault == "early":
        executions = [replace(e, started=0.0) if e.batch.stages[0].index == 3 else e for e in executions]
    elif fault == "crowded":
        executions = [replace(e, batch=replace(e.batch, context=0)) for e in executions]
    elif fault == "twice":
        executions.append(executions[0])
    elif fault == "order":
        numbers = sorted(e.batch.number for e in executions)
        mirrored = dict(zip(numbers, reversed(numbers), strict=True))
        executions = [replace(e, batch=replace(e.batch, number=mirrored[e.batch.number])) for e in executions]
    jobs = trace.jobs
    if fault == "late":
        jobs = tuple(_met_as_late(result) for result in jobs)
    return ScheduleTrace(trace.seconds, jobs, tuple(executions))


def _met_as_late(result: JobResult) -> JobResult:
    return replace(result, outcome=JobOutcome.LATE) if result.outcome is JobOutcome.MET else result
