"""Several jobs on one simulated cluster: scores of each and of all, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_simulator.replay.samples import Sample, draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.arrivals import (
    Arrivals,
    SharedCluster,
    compare,
    draw_samples,
    scenario,
)
from podium_simulator.system.inputs.scenario import NodeSpec
from podium_simulator.system.results import comparison
from podium_simulator.system.results.comparison import ClusterSpec, best_so_far, search_result
from podium_simulator.system.results.fairness import jain_index, user_shares
from podium_simulator.system.results.outcome import TRAINING, JobEnd, Outcome, Span, TrialEnd, Value
from podium_simulator.traces.trace import RecordedTrial, bundled_trace

ANN, BEN = JobKey("ann", "job-1"), JobKey("ben", "job-2")
PLACE = ClusterSpec((NodeSpec("a", 1), NodeSpec("b", 1)))


def trial(job: JobKey) -> TrialKey:
    return TrialKey(job.namespace, f"{job.name}-0", job.name)


def ended(job: JobKey) -> TrialEnd:
    return TrialEnd(trial(job), job, 0, 1, TrialPhase.SUCCEEDED, 0.0, 0.0, 1, 0.0, 0.0, 0, 0, 1)


def span(job: JobKey, gpu: str, start: float, end: float, use: str = TRAINING) -> Span:
    return Span(gpu, trial(job), 0, start, end, use)


def of_two(*spans: Span, gpus: int = 2, ends: tuple[JobEnd, ...] = ()) -> Outcome:
    """Return an outcome in which Ann's job lasts from 0 to 100 s and Ben's from 20 to 60 s by default."""
    jobs = ends or (JobEnd(ANN, 0.0, 100.0, True, ""), JobEnd(BEN, 20.0, 60.0, True, ""))
    values = (
        Value(10.0, ANN, trial(ANN), 1.0, 0.9),
        Value(30.0, BEN, trial(BEN), 1.0, 0.1),
        Value(40.0, ANN, trial(ANN), 2.0, 0.8),
        Value(50.0, BEN, trial(BEN), 2.0, 0.5),
    )
    trials = tuple(ended(end.job) for end in jobs)
    return Outcome(jobs, trials, values, spans, (), tuple(f"g{n}" for n in range(gpus)), 0, 0, ())


def test_the_best_so_far_is_of_one_job_from_its_arrival() -> None:
    """Ann's 0.9 at 10 s does not count for Ben: his first value comes 10 s after his arrival."""
    apart = of_two().by_job()
    assert list(apart) == [ANN, BEN]
    assert best_so_far(apart[ANN], maximize=True) == ((10.0, 0.9),)
    assert best_so_far(apart[BEN], maximize=True) == ((10.0, 0.1), (30.0, 0.5))
    assert best_so_far(apart[BEN], maximize=False) == ((10.0, 0.1),)


def test_values_of_several_jobs_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="unpack"):
        best_so_far(of_two(), maximize=True)


def test_a_job_is_scored_from_its_arrival_on_its_own_gpu_time() -> None:
    """Ben: 40 s on one GPU, 10 of them loading; fifo would have taken 40 s."""
    of_ben = (span(BEN, "g1", 20.0, 30.0, "starting"), span(BEN, "g1", 30.0, 60.0))
    apart = of_two(span(ANN, "g0", 0.0, 100.0), *of_ben).by_job()
    pool = Sample("own", "own", 0, True, None, (RecordedTrial("t", {}, (10.0, 30.0), (0.1, 0.5)),))
    score = search_result("fifo", pool, apart[BEN], 40.0).score
    assert (score.best, score.near_best, score.end) == (0.5, 30.0, 40.0)
    assert (score.gpu_seconds, score.overhead) == (40.0, 0.25)
    assert score.regret == pytest.approx(30.0 / 40.0), "nothing better than an ordinary first value for 30 s of 40"


JAIN = [
    ([1.0, 1.0, 1.0], 1.0),
    ([4.0, 0.0, 0.0, 0.0], 0.25),
    ([1.0, 3.0], 0.8),  # 16 / (2 * 10)
    ([2.0], 1.0),
    ([0.0, 0.0], None),
    ([], None),
]


@pytest.mark.parametrize(("values", "index"), JAIN)
def test_jains_index(values: list[float], index: float | None) -> None:
    assert jain_index(values) == index


def test_shares_are_compared_with_an_equal_one_while_others_have_jobs() -> None:
    """Both have jobs from 20 to 60 s: 40 GPU-seconds each are an equal share of two GPUs.

    Ann holds g0 for all of it and g1 for 10 s, Ben g1 for the other 30 s.
    """
    ann, ben = user_shares(
        of_two(span(ANN, "g0", 0.0, 100.0), span(ANN, "g1", 10.0, 30.0), span(BEN, "g1", 30.0, 60.0))
    )
    assert (ann.user, ann.gpu_seconds, ann.share, ann.of_equal) == ("ann", 120.0, 0.8, 50.0 / 40.0)
    assert (ben.user, ben.gpu_seconds, ben.share, ben.of_equal) == ("ben", 30.0, 0.2, 30.0 / 40.0)


def test_jobs_of_one_user_do_not_compete_and_a_third_user_reduces_the_share() -> None:
    """One GPU. Ann twice from 0 to 60 s, Ben from 30 to 90 s, Cid from 60 to 90 s: Ann and Ben share 30 s of hers, Ben
    and Cid 30 s. Due: Ann 15 s, Ben 30 s, Cid 15 s.
    """
    again, cid = JobKey("ann", "job-4"), JobKey("cid", "job-3")
    ends = (
        JobEnd(ANN, 0.0, 60.0, True, ""),
        JobEnd(again, 0.0, 60.0, True, ""),
        JobEnd(BEN, 30.0, 90.0, True, ""),
        JobEnd(cid, 60.0, 90.0, True, ""),
    )
    spans = (span(ANN, "g0", 0.0, 40.0), span(BEN, "g0", 40.0, 70.0), span(cid, "g0", 70.0, 95.0))
    found = user_shares(of_two(*spans, gpus=1, ends=ends))
    assert [(user.user, user.gpu_seconds) for user in found] == [("ann", 40.0), ("ben", 30.0), ("cid", 25.0)]
    assert [user.of_equal for user in found] == [10.0 / 15.0, 30.0 / 30.0, 20.0 / 15.0]


def test_a_user_that_arrives_after_the_end_does_not_compete() -> None:
    ends = (JobEnd(ANN, 0.0, 50.0, True, ""), JobEnd(BEN, 50.0, 90.0, True, ""))
    found = user_shares(of_two(span(ANN, "g0", 0.0, 50.0), span(BEN, "g0", 50.0, 90.0), ends=ends))
    assert [(user.share, user.of_equal) for user in found] == [(50.0 / 90.0, None), (40.0 / 90.0, None)]


def test_users_alternate_and_names_sort_as_numbers_do() -> None:
    arrivals = Arrivals(jobs=12, every=30.0, users=3)
    keys = [arrivals.key("t", number) for number in range(12)]
    assert [key.namespace for key in keys[:4]] == ["user-1", "user-2", "user-3", "user-1"]
    assert sorted(key.name for key in keys) == [key.name for key in keys]
    found = scenario(draw_samples(bundled_trace(), 0, 2, arrivals), "fifo", SharedCluster(PLACE, arrivals), 0)
    assert [job.view.created for job in found.jobs] == [30.0 * number for number in range(12)]


def test_no_sample_is_drawn_twice_and_the_first_is_that_of_a_single_search() -> None:
    few, many = (draw_samples(bundled_trace(), 1, 6, Arrivals(jobs)) for jobs in (2, 5))
    assert few == many[:2]
    assert many[0] == draw_sample(bundled_trace(), 1, 6)
    assert len({tuple(trial.name for trial in pool.trials) for pool in many}) == 5
    rounds = [draw_samples(bundled_trace(), seed, 6, Arrivals(5)) for seed in range(3)]
    assert len({pool.seed for drawn in rounds for pool in drawn}) == 15


def test_one_job_scores_as_in_the_comparison_of_single_searches() -> None:
    found = compare(bundled_trace(), ["hermes"], SharedCluster(PLACE, Arrivals(1)), 2, 6)
    plain = comparison.compare(bundled_trace(), ["hermes"], PLACE, 2, 6)
    assert list(found.runs) == list(plain.runs) == ["fifo", "hermes"]
    for name, rounds in found.runs.items():
        assert [one.jobs[0].result.score for one in rounds] == [run.score for run in plain.runs[name]]
        assert [(one.jobs[0].slowdown, one.fairness) for one in rounds] == [(1.0, None)] * 2


def test_sharing_slows_jobs_down_and_shares_add_up() -> None:
    found = compare(bundled_trace(), ["envelope"], SharedCluster(PLACE, Arrivals(3, 300.0, 2)), 1, 6)
    for (one,) in found.runs.values():
        assert [job.arrived for job in one.jobs] == [0.0, 300.0, 600.0]
        assert [job.key.namespace for job in one.jobs] == ["user-1", "user-2", "user-1"]
        assert all(1.0 < job.slowdown < 4.0 for job in one.jobs), "three jobs, each has a third or more"
        of_jobs = sum(job.result.score.gpu_seconds for job in one.jobs)
        assert sum(user.gpu_seconds for user in one.users) == pytest.approx(of_jobs)
        assert sum(user.share for user in one.users) == pytest.approx(1.0)
        assert one.end == max(job.arrived + job.result.score.end for job in one.jobs)
        for job in one.jobs:
            assert job.result.score.best == job.result.improvements[-1][1]
            assert 0.0 < job.result.improvements[0][0] < job.result.score.end
    (fifo,) = found.runs["fifo"]
    assert [job.result.score.near_best is not None for job in fifo.jobs] == [True] * 3, (
        "no trial is given up: each reaches it"
    )
    for job, pool in zip(fifo.jobs, draw_samples(bundled_trace(), 0, 6, found.arrivals), strict=True):
        assert job.result.score.best == pool.best_of(pool.trials[pool.winner]), "its own best, not that of the others"


def test_jobs_that_arrive_far_apart_do_not_share() -> None:
    found = compare(bundled_trace(), ["fifo"], SharedCluster(PLACE, Arrivals(3, 200_000.0, 3)), 1, 3)
    (one,) = found.runs["fifo"]
    assert [job.slowdown for job in one.jobs] == pytest.approx([1.0] * 3)
    assert [user.of_equal for user in one.users] == [None] * 3
    assert one.fairness is None


def test_the_same_arrivals_end_the_same_way() -> None:
    arrivals = Arrivals(3, 60.0, 2)
    place = replace(PLACE, faults=replace(PLACE.faults, node=20_000.0))
    given = scenario(draw_samples(bundled_trace(), 2, 5, arrivals), "round_robin", SharedCluster(place, arrivals), 2)
    first = simulate(given, checked=True)
    assert first.broken == ()
    assert simulate(given) == replace(first, broken=())
