"""Curve tables are caches only: after many cycles they equal new tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.curves.aligned_curves import AlignedCurves
from podium_core.curves.alignment import PER_DOUBLING, gains, running_best
from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.curves.non_finite import diverged
from podium_core.curves.prediction.power_law import predict
from podium_core.curves.prediction.running_means import RunningMeans
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point, Snapshot, TrialView
from podium_core.planning.eta import estimate
from podium_core.planning.planner import plan
from podium_core.policies.envelope import Envelope
from podium_core.testing.builders import change_job, make_gpu, make_job, make_snapshot, make_trial

VALUES = st.one_of(st.floats(-1, 1), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308]))
PHASES = st.sampled_from([TrialPhase.RUNNING, TrialPhase.SUSPENDED, TrialPhase.SUCCEEDED, TrialPhase.FAILED])
ARRAYS = (
    "ranked_rows",
    "points",
    "first",
    "best",
    "worst",
    "last",
    "step",
    "seconds",
    "last_report",
    "done",
    "complete",
    "running",
)


@st.composite
def cycles(draw: st.DrawFn) -> list[list[tuple[int, list[float], TrialPhase, float]]]:
    """Trials by cycle: curves grow, are thinned or restart; trials are added, end and disappear."""
    curves: dict[int, list[float]] = {}
    found = []
    for _ in range(draw(st.integers(1, 5))):
        for number in draw(st.lists(st.integers(0, 5), max_size=4)):
            old = curves.get(number, [])
            kept = draw(st.sampled_from([old, old, old, old[::2], []]))
            curves[number] = [*kept, *draw(st.lists(VALUES, max_size=3))]
        for number in draw(st.lists(st.sampled_from(range(6)), max_size=1)):
            curves.pop(number, None)
        found.append([(n, list(c), draw(PHASES), draw(st.floats(0, 50))) for n, c in curves.items()])
    return found


@given(cycles(), st.booleans(), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_a_kept_table_equals_a_new_one(
    history: list[list[tuple[int, list[float], TrialPhase, float]]], maximize: bool, every: int
) -> None:
    job = make_job(maximize=maximize, max_steps=8.0)
    kept = CurveTable(maximize)
    for cycle in history:
        trials = tuple(make_trial(n, values=c, phase=p, gpu_seconds=s) for n, c, p, s in cycle)
        snapshot, asked = make_snapshot(jobs=[job], trials=trials), trials[::every]
        new = CurveTable(maximize)
        for one in (kept, new):
            one.update(job, asked, snapshot)
        assert kept.keys == new.keys
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(kept, name), getattr(new, name), err_msg=name)
        table = kept.cached("table", partial(AlignedCurves, len(kept), 8.0))
        fresh = AlignedCurves(len(new), 8.0)
        for one, of in ((table, kept), (fresh, new)):
            one.refresh(of)
        for name in ("best", "gain", "column"):
            np.testing.assert_array_equal(getattr(table, name), getattr(fresh, name), err_msg=name)
        for column in set(fresh.column.tolist()) - {-1}:
            assert table.columns.leader_gain[column] == fresh.columns.leader_gain[column]
            assert table.columns.gain_ratio[column] == fresh.columns.gain_ratio[column]


@given(cycles(), st.booleans(), st.uuids())
@settings(max_examples=60, deadline=None)
def test_a_ranking_by_a_kept_table_is_that_by_a_new_one(
    history: list[list[tuple[int, list[float], TrialPhase, float]]], maximize: bool, uid: object
) -> None:
    """Also where a cycle changes no curve, or none that reaches a column: the last results still hold."""
    job = make_job(policy="envelope", max_steps=16.0, maximize=maximize)
    for cycle, said in enumerate([said for said in history for _ in range(2)]):
        trials = [make_trial(n, values=c, phase=phase, gpu_seconds=s + cycle) for n, c, phase, s in said]
        snapshot = make_snapshot(jobs=[job], trials=trials, gpus=[make_gpu("gpu-0")])
        kept, new = (replace(job, uid=name) for name in (f"{uid}", f"{uid} at {cycle}"))
        assert Envelope().rank(kept, trials, snapshot) == Envelope().rank(new, trials, snapshot)


def test_the_tables_of_all_jobs_are_kept() -> None:
    jobs = [make_job(f"search-{number}") for number in range(100)]
    snapshot = make_snapshot(jobs=jobs)
    first = [curves_of_job(job, (), snapshot) for job in jobs]
    assert all(curves_of_job(job, (), snapshot) is kept for job, kept in zip(jobs, first, strict=True))


class Walked(tuple[TrialView, ...]):
    """Trials that count how often a caller iterates over all of them."""

    walks: ClassVar[int] = 0

    def __iter__(self) -> Iterator[TrialView]:
        Walked.walks += 1
        return super().__iter__()


LOOKS: dict[str, Callable[[Snapshot], object]] = {
    "plan": plan,
    "boards": lambda snapshot: [curves_of_job(job, (), snapshot) for job in snapshot.jobs],
    "times left": lambda snapshot: [estimate(job, snapshot) for job in snapshot.jobs],
    "of finished jobs": lambda snapshot: [estimate(change_job(job, finished=True), snapshot) for job in snapshot.jobs],
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_table_of_one_job_iterates_over_its_own_trials_only(look: Callable[[Snapshot], object]) -> None:
    """Forty trials of few or many jobs: jobs times all trials would dominate a cycle."""
    found = []
    for jobs in (2, 20):
        names = [f"search-{number}" for number in range(jobs)]
        trials = [
            make_trial(number, job=names[number % jobs], phase=TrialPhase.SUSPENDED, values=[0.1, 0.2], gpus=["gpu-0"])
            for number in range(40)
        ]
        gpu = make_gpu(slots=40, trials=[trial.key for trial in trials])
        snapshot = make_snapshot(jobs=[make_job(name) for name in names], gpus=[gpu])
        look(replace(snapshot, trials=Walked(trials)))
        Walked.walks = 0
        look(replace(snapshot, trials=Walked(trials)))
        found.append(Walked.walks)
    assert found[0] == found[1]


def test_thinning_can_change_a_gain_without_changing_the_last_value() -> None:
    """The last value stays, the one a doubling before it is dropped: the scales of its column differ."""
    job, kept = make_job(max_steps=8.0), CurveTable(True)
    whole = tuple(Point(step, value, step) for step, value in ((4.0, 0.1), (6.0, 0.8), (8.0, 0.9)))
    table = AlignedCurves(0, 8.0)
    for points in (whole, whole[1:]):
        trials = [replace(make_trial(0), curve=points)]
        kept.update(job, trials, make_snapshot(jobs=[job], trials=trials))
        table = kept.cached("table", partial(AlignedCurves, 1, 8.0))
        table.refresh(kept)
    fresh = AlignedCurves(1, 8.0)
    fresh.refresh(kept)
    assert table.columns.leader_gain[-1] == fresh.columns.leader_gain[-1]
    assert table.columns.gain_ratio[-1] == fresh.columns.gain_ratio[-1]


@given(cycles(), st.booleans(), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_kept_medians_of_running_means_equal_their_definition(
    history: list[list[tuple[int, list[float], TrialPhase, float]]], maximize: bool, peers: int
) -> None:
    job, kept = make_job(maximize=maximize), CurveTable(maximize)
    for cycle in history:
        trials = tuple(make_trial(n, values=c, phase=p, gpu_seconds=s) for n, c, p, s in cycle)
        kept.update(job, trials, make_snapshot(jobs=[job], trials=trials))
        judged = np.flatnonzero(kept.step > 0.0)
        means = kept.cached("means", partial(RunningMeans, len(kept)))
        found = means.medians(kept, judged, peers)
        np.testing.assert_array_equal(found, RunningMeans(len(kept)).medians(kept, judged, peers))
        for row, values in enumerate(found.tolist()):
            there = int(kept.step[row])  # steps are 1, 2, 3, ...
            shown = [c for other, c in enumerate(kept.curves) if other != row and c and there and len(c) >= there]
            if len(shown) < max(peers, 1):
                assert values == -math.inf
                continue
            sign = 1.0 if maximize else -1.0
            others = [sum(-math.inf if diverged(p.value) else sign * p.value / 4 for p in c[:there]) for c in shown]
            expected = median(mean / there / 2 for mean in others) * 8
            assert values == expected or math.isclose(values, expected, rel_tol=1e-9, abs_tol=1e-12)


def test_rows_are_computed_again_for_changed_curves_only() -> None:
    job = make_job()
    seen: list[int] = []

    def count(curve: tuple[Point, ...]) -> float:
        seen.append(len(curve))
        return float(len(curve))

    curves = CurveTable(True)
    trials = [make_trial(i, values=[0.1] * (i + 1)) for i in range(3)]
    for _ in range(2):
        curves.update(job, trials, make_snapshot(jobs=[job], trials=trials))
        assert curves.per_curve("count", 1, count)[:, 0].tolist() == [1.0, 2.0, 3.0]
    trials[1] = replace(trials[1], curve=(*trials[1].curve, Point(9.0, 0.5, 9.0)))
    curves.update(job, trials, make_snapshot(jobs=[job], trials=trials))
    assert curves.per_curve("count", 1, count)[:, 0].tolist() == [1.0, 3.0, 3.0]
    assert seen == [1, 2, 3, 3]


def curve(*values: float, start: int = 1) -> list[Point]:
    return [Point(float(s), v, float(s)) for s, v in enumerate(values, start)]


RUNNING = [
    ("between two values by the logarithm of the step", curve(0.0, 1.0), [1.0, math.sqrt(2.0), 2.0], [0.0, 0.5, 1.0]),
    (
        "nothing before the first and after the last",
        curve(0.3, 0.4, start=2),
        [1.0, 2.0, 3.0, 4.0],
        [None, 0.3, 0.4, None],
    ),
    ("worse values are not seen", curve(0.5, 0.1, 0.6), [1.0, 2.0, 3.0], [0.5, 0.5, 0.6]),
    ("a value that is not finite does not count", curve(math.nan, 0.2), [1.0, 2.0], [-math.inf, 0.2]),
    ("nothing", [], [1.0], [None]),
]


@pytest.mark.parametrize(("points", "grid", "expected"), [r[1:] for r in RUNNING], ids=[r[0] for r in RUNNING])
def test_running_best(points: list[Point], grid: list[float], expected: list[float | None]) -> None:
    wanted = [math.nan if v is None else v for v in expected]
    np.testing.assert_allclose(running_best(points, 1.0, np.array(grid)), wanted)


def test_a_gain_is_that_of_the_last_doubling_and_scaled_up_where_less_is_known() -> None:
    steady = np.arange(20.0)  # one more a rung
    found = gains(steady)
    assert found[0] == 0.0
    assert found[1:].tolist() == [float(PER_DOUBLING)] * 19


@pytest.mark.parametrize("exponent", [0.2, 0.5, 1.0])
def test_a_power_law_is_extrapolated_exactly(exponent: float) -> None:
    points = [Point(float(t), 0.9 - 0.5 * t**-exponent, float(t)) for t in range(1, 21)]
    found = predict(points, 1.0, 100.0)
    assert found is not None
    best = found.finals[np.argmax(found.weights)]
    assert best == pytest.approx(0.9 - 0.5 * 100.0**-exponent, abs=1e-6)
    assert predict(points[:2], 1.0, 100.0) is None
