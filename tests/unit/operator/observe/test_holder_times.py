"""Tenure: a job's time on a GPU continues from the end of a trial to the next, and ends with another job."""

from __future__ import annotations

from datetime import UTC, datetime

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.schema.base import ObjectMeta
from podium_core.schema.gpunode import GPUNode, GpuNodeStatus, GpuStatus, Holder, SlotState, TrialOnGpu
from podium_operator.observe.holder_times import JobTimes

GPU = ("node-1", "GPU-1")
JOBS = {name: JobKey("default", name[0]) for name in ("a-0", "a-1", "a-2", "b-0")}


def node(trial: str | None, *waiting: str) -> GPUNode:
    """Return a node whose GPU has this holder, and other trials that wait there."""
    since, named = datetime(2026, 1, 1, tzinfo=UTC), {"namespace": "default"}
    holder = None if trial is None else Holder(**named, trial=trial, uid=trial, since=since)
    suspended = {**named, "state": SlotState.SUSPENDED, "since": since}
    trials = [TrialOnGpu.model_validate({**suspended, "trial": t, "uid": t, "pod": t, "podUID": t}) for t in waiting]
    status = GpuNodeStatus(gpus=[GpuStatus(uuid=GPU[1], index=0, holder=holder, trials=trials)])
    return GPUNode(metadata=ObjectMeta(name=GPU[0]), status=status)


def seen(*holders: tuple[str | None, float]) -> list[float | None]:
    """Return the start of the tenure after each holder, which got the GPU at the time given."""
    times = JobTimes()
    return [times.update([node(trial)], {GPU: at} if trial else {}, job_of).get(GPU) for trial, at in holders]


def job_of(trial: TrialKey) -> JobKey | None:
    return JOBS.get(trial.name)


def test_it_continues_after_the_end_of_a_trial_with_the_next_one_of_its_job() -> None:
    assert seen(("a-0", 10.0), (None, 0.0), ("a-1", 50.0), ("a-2", 90.0)) == [10.0, None, 10.0, 10.0]


def test_it_starts_again_with_a_trial_that_took_the_gpu_from_one_that_waits() -> None:
    times = JobTimes()
    assert times.update([node("a-0", "a-1")], {GPU: 10.0}, job_of) == {GPU: 10.0}
    assert times.update([node("a-1", "a-0")], {GPU: 50.0}, job_of) == {GPU: 50.0}
    assert times.update([node("a-1")], {GPU: 50.0}, job_of) == {GPU: 10.0}, "the first one has ended, as is known now"


def test_it_starts_again_after_a_trial_of_another_job() -> None:
    assert seen(("a-0", 10.0), ("b-0", 40.0), ("a-1", 70.0)) == [10.0, 40.0, 70.0]


def test_a_better_estimate_of_the_first_holder_counts() -> None:
    assert seen(("a-0", 12.0), ("a-0", 10.0), ("a-1", 50.0)) == [12.0, 10.0, 10.0]


def test_a_trial_that_is_not_known_yet_has_none() -> None:
    assert seen(("unknown", 10.0), ("a-0", 20.0)) == [None, 20.0]


def test_a_gpu_that_is_gone_is_forgotten() -> None:
    times = JobTimes()
    times.update([node("a-0")], {GPU: 10.0}, job_of)
    assert times.update([], {}, job_of) == {}
    assert times.update([node("a-1")], {GPU: 50.0}, job_of) == {GPU: 50.0}
