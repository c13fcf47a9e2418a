"""Population-based training: how many trials a job still has, for its end, its pods and its estimated time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import P, of, sound

from podium_core.domain.actions import CreateTrial, EndJob
from podium_core.domain.population import Lineage, Population
from podium_core.domain.snapshot import JobView, Point, TrialView
from podium_core.planning.completion import close
from podium_core.planning.eta import estimate, pace, remaining
from podium_core.planning.slots.pod_quota import pod_quotas
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

FROM_TWO = Lineage("job-0", "uid-job-0", 1, 2.0, "job-1")


def a_job(**fields: int | float | None) -> JobView:
    given = {"max_steps": 10.0, "max_trials": 12, "population": Population(4, 2.0, 0.25), "parallel": None} | fields
    return make_job(**given)  # type: ignore[arg-type]


def a_child(number: int = 4, phase: P = P.SUCCEEDED) -> TrialView:
    return make_trial(number, phase=phase, lineage=FROM_TWO)


def test_a_job_does_not_end_before_all_founders_exist() -> None:
    """Two founders and two children have ended, and two founders are to come."""
    done = [make_trial(n, values=[0.5], phase=P.SUCCEEDED) for n in (0, 1)]
    snapshot = make_snapshot(jobs=[a_job()], trials=[*done, a_child(4), a_child(5)], gpus=[make_gpu(slots=8)])
    made = sound(snapshot)
    assert of(made, EndJob) == []
    assert [a.number for a in of(made, CreateTrial) if isinstance(a, CreateTrial)] == [2, 3]


@pytest.mark.parametrize(("founders", "living", "pods"), [(0, 0, 2), (1, 1, 2), (2, 2, 2), (2, 1, 1)])
def test_a_population_has_no_more_pods_than_members(founders: int, living: int, pods: int) -> None:
    """The other search gets the remaining GPUs."""
    job = make_job("a", max_trials=20, parallel=None, population=Population(2, 2.0, 0.5))
    other = make_job("b", max_trials=20, parallel=None)
    phases = [P.RUNNING] * living + [P.SUCCEEDED] * (founders - living)
    trials = [make_trial(n, job="a", phase=phase) for n, phase in enumerate(phases)]
    snapshot = make_snapshot(jobs=[job, other], trials=trials, gpus=[make_gpu(f"gpu-{n}", slots=1) for n in range(8)])
    quotas = pod_quotas(snapshot, close(snapshot))
    assert (quotas[job.key].pods, quotas[other.key].pods) == (pods, 8 - pods)


def test_the_pace_of_a_child_counts_only_its_own_steps() -> None:
    job, child = a_job(), change_trial(a_child(phase=P.RUNNING), gpu_seconds=6.0, curve=(Point(5.0, 0.1, 1.0),))
    assert pace(job, child) == pytest.approx(2.0)
    assert remaining(job, child, lambda: None) == pytest.approx(10.0)
    assert remaining(job, a_child(phase=P.RUNNING), lambda: 2.0) == pytest.approx(16.0), "it begins at step 2"


def test_the_time_left_is_that_of_the_living_trials_and_the_founders_to_come() -> None:
    """Each step takes 2 s: 10 s of the child, 16 s of a founder, and 20 s of each of two that are to come."""
    child = change_trial(a_child(phase=P.RUNNING), gpu_seconds=6.0, curve=(Point(5.0, 0.1, 1.0),))
    ended = make_trial(1, values=[0.1] * 2, phase=P.EARLY_STOPPED, gpu_seconds=4.0)
    founder = make_trial(0, values=[0.1] * 2, phase=P.RUNNING, gpu_seconds=4.0)
    snapshot = make_snapshot(jobs=[a_job()], trials=[founder, ended, child], gpus=[make_gpu()])
    assert estimate(snapshot.jobs[0], snapshot).seconds == pytest.approx(10.0 + 16.0 + 2 * 20.0)
    plain = replace(snapshot.jobs[0], population=None)
    assert estimate(plain, snapshot).seconds > 100.0  # type: ignore[operator]
