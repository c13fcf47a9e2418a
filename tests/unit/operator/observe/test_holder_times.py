"""Tenure: a job's time on a GPU continues from the end of a trial to the next, and ends with another job."""

from __future__ import annotations

from datetime import UTC, datetime

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.tenure import MOST_BEFORE
from podium_core.schema.base import ObjectMeta
from podium_core.schema.gpunode import GPUNode, GpuNodeStatus, GpuStatus, Holder
from podium_operator.observe.holder_times import Tenures

GPU = ("node-1", "GPU-1")
JOBS = {name: JobKey("default", name[0]) for name in ("a-0", "a-1", "a-2", "b-0")}


def node(trial: str | None) -> GPUNode:
    """Return a node whose GPU has this holder."""
    since = datetime(2026, 1, 1, tzinfo=UTC)
    holder = None if trial is None else Holder(namespace="default", trial=trial, uid=trial, since=since)
    status = GpuNodeStatus(gpus=[GpuStatus(uuid=GPU[1], index=0, holder=holder)])
    return GPUNode(metadata=ObjectMeta(name=GPU[0]), status=status)


def key(trial: str) -> TrialKey:
    return TrialKey("default", trial, trial)


def job_of(trial: TrialKey) -> JobKey | None:
    return JOBS.get(trial.name)


def starts(*holders: tuple[str | None, float], unfinished: str = "") -> list[float | None]:
    """Return when the tenure began, after each holder, which got the GPU at the time given (None: it has no holder)."""
    tenures, found = Tenures(), []
    for trial, at in holders:
        known = tenures.update([node(trial)], {GPU: at} if trial else {}, job_of, at).get(GPU)
        found.append(None if known is None else known.start({key(unfinished)}))
    return found


def test_it_continues_after_the_end_of_a_trial_with_the_next_one_of_its_job() -> None:
    assert starts(("a-0", 10.0), (None, 48.0), ("a-1", 50.0), ("a-2", 90.0)) == [10.0, None, 10.0, 10.0]


def test_it_starts_again_with_a_trial_that_took_the_gpu_from_one_of_its_job() -> None:
    assert starts(("a-0", 10.0), ("a-1", 50.0), ("a-2", 90.0), unfinished="a-0") == [10.0, 50.0, 50.0]
    assert starts(("a-0", 10.0), ("a-1", 50.0), ("a-2", 90.0), unfinished="a-1") == [10.0, 10.0, 90.0]
    assert starts(("a-0", 10.0), ("a-1", 50.0), ("a-0", 90.0), unfinished="a-1") == [10.0, 10.0, 90.0]


def test_it_starts_again_after_a_trial_of_another_job() -> None:
    assert starts(("a-0", 10.0), ("b-0", 40.0), ("a-1", 70.0)) == [10.0, 40.0, 70.0]


def test_it_starts_again_after_a_long_time_without_a_holder_and_for_a_trial_that_has_the_gpu_again() -> None:
    assert starts(("a-0", 10.0), (None, 20.0), (None, 40.0), ("a-1", 50.0)) == [10.0, None, None, 50.0]
    assert starts(("a-0", 10.0), (None, 20.0), ("a-0", 25.0)) == [10.0, None, 25.0]


def test_a_better_estimate_of_the_first_holder_counts() -> None:
    assert starts(("a-0", 12.0), ("a-0", 10.0), ("a-1", 50.0)) == [12.0, 10.0, 10.0]


def test_a_trial_that_is_not_known_yet_has_none() -> None:
    assert starts(("unknown", 10.0), ("a-0", 20.0)) == [None, 20.0]


def test_a_gpu_that_is_gone_is_forgotten() -> None:
    tenures = Tenures()
    tenures.update([node("a-0")], {GPU: 10.0}, job_of, 10.0)
    assert tenures.update([], {}, job_of, 20.0) == {}
    assert tenures.update([node("a-1")], {GPU: 50.0}, job_of, 50.0)[GPU].before == ()


def test_the_trials_that_are_remembered_are_limited() -> None:
    tenures = Tenures()
    for number in range(100):
        tenures.update([node(f"c-{number}")], {GPU: float(number)}, lambda _: JobKey("default", "c"), float(number))
    (tenure,) = tenures.update([node("c-99")], {GPU: 99.0}, lambda _: JobKey("default", "c"), 99.0).values()
    assert len(tenure.before) == MOST_BEFORE
    assert tenure.start(()) == 99.0 - MOST_BEFORE
