"""Starvation guard of `envelope`: which trial is served, on which GPUs, and the bound of every wait."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, JobView, Point, TrialView
from podium_core.planning.planner import plan
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE, MIN_JOB_TIME_SLICE
from podium_core.policies.starvation_guard import concurrent_trials, seconds_between_values, starved_rows
from podium_core.testing.builders import (
    change_gpu,
    change_job,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob, Timing
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

NOW = 1e6
MIN_SHARE, GAP = 0.1, 10.0
REQUEUE = 20.0


def curve(start: float, slope: float, gap: float = GAP, points: int = 200) -> RecordedTrial:
    return RecordedTrial(
        "t", {}, tuple(gap * (i + 1) for i in range(points)), tuple(start + slope * i for i in range(points))
    )


def search(name: str, trials: int, **more: Any) -> SimJob:
    """Two good trials; the others are hopeless and soon known to be."""
    curves = (curve(0.5, 0.01), curve(0.501, 0.01), *[curve(0.1 + 0.001 * n, 0.0001) for n in range(trials - 2)])
    settings = {"minShare": MIN_SHARE, "warmup": 0.01}
    view = make_job(
        name, policy="envelope", max_trials=trials, parallel=None, max_steps=2000.0, settings=settings, **more
    )
    return SimJob(view, curves, Method(suspend=0.0, resume=0.0))


def longest_gaps(outcome: Outcome) -> dict[TrialKey, float]:
    """Return each trial's longest time between two values, the time before the first included."""
    last = {trial.trial: 0.0 for trial in outcome.trials}
    gaps = dict(last)
    for value in outcome.values:
        gaps[value.trial] = max(gaps[value.trial], value.time - last[value.trial])
        last[value.trial] = value.time
    return gaps


# jobs, trials of each, GPUs of a trial, places (of one job; of six trials two GPUs have two each); on four GPUs
SEARCHES = [
    ("one job", 1, 6, 1, 2),
    ("trials of two GPUs", 1, 4, 2, 2),
    ("two jobs", 2, 4, 1, 2),
    ("two jobs with more trials", 2, 8, 1, 2),
]


@pytest.mark.parametrize(
    ("jobs", "trials", "width", "at_a_time"), [row[1:] for row in SEARCHES], ids=[row[0] for row in SEARCHES]
)
def test_no_trial_waits_longer_than_the_bound(jobs: int, trials: int, width: int, at_a_time: int) -> None:
    of = tuple(search(f"job-{n}", trials, gpus_per_trial=width) for n in range(jobs))
    outcome = simulate(Scenario((NodeSpec("a", 4),), of, Timing(progress=0.0, cycle=2.0)), checked=True)
    assert outcome.broken == ()
    waiting = trials - at_a_time
    start = Timing().place + Timing().gate + Timing().load
    least = MIN_JOB_TIME_SLICE if jobs > 1 else 0.0
    # costs before any was measured
    overdue_after = waiting * (max(GAP, least) + 0.4 + Timing().report) / (MIN_SHARE * at_a_time)
    turns = waiting * (MIN_JOB_TIME_SLICE if jobs > 1 else 4.0)
    gaps = longest_gaps(outcome)
    assert max(gaps.values()) <= overdue_after * (1 + MIN_SHARE * at_a_time) + turns + start


FAST = 10.0
KNOWN_LATE = Timing().report + 5.0  # seconds, until the planner knows of a value: its report, and a cycle
# minShare, seconds between two values of each loser, share of that before the first, seconds of a suspension and of a
# resumption, jobs
SPEEDS = [
    ("all alike", 0.1, FAST, 1.0, 0.0, 1),
    ("losers ten times slower", 0.1, 100.0, 1.0, 0.0, 1),
    ("losers ten times slower, half of the time for them", 0.5, 100.0, 1.0, 0.0, 1),
    ("and a value at their very beginning", 0.5, 100.0, 0.1, 0.0, 1),
    ("losers ten times faster", 0.1, 1.0, 1.0, 0.0, 1),
    ("turns longer than from value to value", 0.5, FAST, 1.0, 0.5, 1),
    ("turns between jobs that are longer", 0.5, FAST, 1.0, 0.0, 2),
]


def led(slow: float, first: float, points: int = 600) -> tuple[RecordedTrial, ...]:
    """One leader, and five losers that are much slower or faster."""
    steps = tuple(float(n) for n in range(1, points + 1))
    behind = tuple(n - 1.0 + first for n in steps)
    good = RecordedTrial("t", {}, tuple(FAST * n for n in steps), tuple(0.01 * n for n in steps), steps)
    bad = RecordedTrial("t", {}, tuple(slow * n for n in behind), tuple(1e-4 * n for n in steps), behind)
    return good, *([bad] * 5)


@pytest.mark.parametrize(
    ("share", "slow", "first", "pause", "jobs"), [row[1:] for row in SPEEDS], ids=[row[0] for row in SPEEDS]
)
def test_the_guard_takes_at_most_its_share_whatever_the_speeds(
    share: float, slow: float, first: float, pause: float, jobs: int
) -> None:
    """From the second value of all losers of a job until its leader's end."""
    settings = {"minShare": share, "warmup": 0.001}
    of = {"policy": "envelope", "max_trials": 6, "parallel": None, "max_steps": 600.0, "target": 5.9999}
    views = [make_job(f"job-{n}", settings=settings, **of) for n in range(jobs)]
    searches = tuple(SimJob(view, led(slow, first), Method(suspend=pause, resume=pause)) for view in views)
    scenario = Scenario((NodeSpec("a", 1, 6 * jobs),), searches, Timing(progress=0.0, cycle=5.0))
    outcome = simulate(scenario, checked=True)
    assert outcome.broken == ()
    turn = max(MIN_JOB_TIME_SLICE if jobs > 1 else 2.0, 2.0 * pause / MAX_SWITCH_SHARE)
    once = max(slow, turn) + KNOWN_LATE + max(0.4, 2.0 * pause)
    end = min(job.ended for job in outcome.jobs)
    for part in outcome.by_job().values():
        times = [[v.time for v in part.values if v.trial == one.trial and v.time <= end] for one in part.trials]
        losers = [times[place] for place, one in enumerate(part.trials) if one.number]
        looked = max(shown[1] for shown in losers)
        late = [span for span in part.spans if looked <= span.start < end]
        taken, due = (sum(span.seconds for span in spans) for spans in ([s for s in late if s.number], late))
        assert taken <= share * due + once
        assert taken > 0.5 * (share * due - 5 * once), "nor much less"
        overdue_after = (6 - 1 / jobs) * once / (share / jobs)
        waits = [b - a for shown in losers for a, b in pairwise([*shown[1:], end])]
        assert max(waits) <= overdue_after * (1 + share / jobs) + 5 * (2.0 + turn) * jobs


def scene(**of_last: Any) -> tuple[JobView, list[TrialView], list[GpuView]]:
    """Four trials on one GPU; the first holds it, the last has waited longest, the one before it almost as long."""
    heard = (NOW - 1.0, NOW - 9e3, NOW - 9.5e3, NOW - 1e4)
    trials = []
    for number in range(4):
        phase = TrialPhase.SUSPENDED if number else TrialPhase.RUNNING
        trial = make_trial(number, gpus=["gpu-0"], phase=phase, gpu_seconds=4.0)
        points = tuple(Point(k + 1.0, 0.1 * k, heard[number] - 3 + k) for k in range(4))
        trials.append(change_trial(trial, created=0.0, curve=points))
    trials[3] = change_trial(trials[3], **of_last)
    keys = tuple(trial.key for trial in trials)
    gpu = make_gpu("gpu-0", holder=keys[0], holder_since=0.0, trials=keys, run_queue=keys, slots=8)
    return make_job(policy="envelope", max_steps=64.0, max_trials=4), trials, [gpu]


def rows_due(job: JobView, trials: list[TrialView], gpus: list[GpuView]) -> tuple[int, ...]:
    snapshot = make_snapshot(now=NOW, jobs=[job], trials=trials, gpus=gpus, costs=Costs(0.0, 0.0, REQUEUE))
    seen = curves_of_job(job, trials, snapshot)
    return starved_rows(seen, np.ones(len(trials), dtype=bool), job, snapshot, MIN_SHARE, 2.0)


def row_due(job: JobView, trials: list[TrialView], gpus: list[GpuView]) -> int | None:
    found = rows_due(job, trials, gpus)
    assert len(found) <= 1
    return found[0] if found else None


# GPU seconds of the four trials of `scene`, with their four values each; seconds after which the last is overdue: those
# between two values of the three slowest, over MIN_SHARE
OVERDUE_AFTER = [
    ("one speed", (4.0, 4.0, 4.0, 4.0), 30.0),
    ("a slow one", (4.0, 4.0, 40.0, 4.0), 120.0),
    ("a fast one", (0.4, 4.0, 4.0, 4.0), 30.0),
    ("a fast one more", (0.4, 0.4, 4.0, 4.0), 21.0),
]


@pytest.mark.parametrize(
    ("seconds", "after"), [row[1:] for row in OVERDUE_AFTER], ids=[row[0] for row in OVERDUE_AFTER]
)
def test_a_trial_starves_after_the_time_that_serving_the_slowest_takes(
    seconds: tuple[float, ...], after: float
) -> None:
    job, trials, gpus = scene()
    for waited, row in ((after - 0.01, None), (after + 0.01, 3)):
        heard = (NOW, NOW, NOW, NOW - waited)
        shown = [
            change_trial(trial, gpu_seconds=spent, curve=tuple(replace(p, time=at + p.step - 4.0) for p in trial.curve))
            for trial, spent, at in zip(trials, seconds, heard, strict=True)
        ]
        assert row_due(job, shown, gpus) == row


def test_a_time_slice_may_be_longer_than_an_evaluation() -> None:
    """One trial keeps a GPU for 40 s whatever it reports; the others report one value per second."""
    job, trials, gpus = scene()
    trials[2] = change_trial(trials[2], switch_seconds=40.0 * MAX_SWITCH_SHARE)
    for waited, row in ((419.99, None), (420.01, 3)):
        heard = (NOW, NOW, NOW, NOW - waited)
        shown = [
            replace(trial, curve=tuple(replace(p, time=at + p.step - 4.0) for p in trial.curve))
            for trial, at in zip(trials, heard, strict=True)
        ]
        assert row_due(job, shown, gpus) == row
    requeued = change_job(job, suspendable=False, checkpointable=True)
    assert row_due(requeued, shown, gpus) is None, "turns of ten requeues"


def points(*steps: float) -> tuple[Point, ...]:
    return tuple(Point(step, 0.5, step) for step in steps)


MANY = thin(points(*range(1, 5001)), Grid(True))
# GPU seconds and curve of two trials, seconds between two values of each
PACES: list[
    tuple[str, tuple[float, tuple[Point, ...]], tuple[float, tuple[Point, ...]], tuple[float, float] | None]
] = [
    ("their own", (20.0, points(1, 2)), (300.0, points(10, 20, 30)), (10.0, 100.0)),
    ("without a value", (20.0, points(1, 2)), (0.0, ()), (10.0, 10.0)),
    ("long without a value", (20.0, points(1, 2)), (70.0, ()), (10.0, 70.0)),
    ("with one early value", (20.0, points(1, 2)), (1.0, points(0.1)), (10.0, 10.0)),
    ("a value before the first step", (20.0, points(1, 2)), (200.0, points(0, 10, 20)), (10.0, 100.0)),
    ("only that", (20.0, points(1, 2)), (1.0, points(0)), (10.0, 10.0)),
    ("thinned", (20.0, points(1, 2)), (5e4, MANY), (10.0, 10.0)),
    ("one value of all", (20.0, points(1)), (0.0, ()), (20.0, 20.0)),
    ("no value", (20.0, ()), (0.0, ()), None),
]


@pytest.mark.parametrize(("one", "other", "each"), [row[1:] for row in PACES], ids=[row[0] for row in PACES])
@pytest.mark.parametrize("width", [1, 2])
def test_seconds_between_values(
    one: tuple[float, tuple[Point, ...]],
    other: tuple[float, tuple[Point, ...]],
    each: tuple[float, float] | None,
    width: int,
) -> None:
    trials = [make_trial(n, gpu_seconds=width * spent, curve=shown) for n, (spent, shown) in enumerate((one, other))]
    job = make_job(policy="envelope", gpus_per_trial=width)
    seen = curves_of_job(job, trials, make_snapshot(now=NOW, jobs=[job], trials=trials))
    found = seconds_between_values(seen, np.ones(2, dtype=bool), width)
    assert (None if found is None else found.tolist()) == (None if each is None else pytest.approx(each))


def test_ended_trials_do_not_count_for_unstarted_ones() -> None:
    shown = [(20.0, points(1, 2)), (2e4, points(1, 2)), (0.0, ())]
    trials = [make_trial(n, gpu_seconds=spent, curve=curve) for n, (spent, curve) in enumerate(shown)]
    job = make_job(policy="envelope")
    seen = curves_of_job(job, trials, make_snapshot(now=NOW, jobs=[job], trials=trials))
    found = seconds_between_values(seen, np.array([True, False, True]), 1)
    assert found is not None
    assert found[2] == 10.0


UNSERVABLE = [
    ("suspended by its owner", {"suspend": True}),
    ("asked to end", {"terminating": True}),
    ("to be stopped", {"stopped": True}),
    ("without a pod", {"pod": None}),
    ("whose pod is not there yet", {"phase": TrialPhase.PENDING, "gpus": ()}),
]


@pytest.mark.parametrize("of_last", [row[1] for row in UNSERVABLE], ids=[row[0] for row in UNSERVABLE])
def test_a_trial_that_cannot_be_served_blocks_no_other(of_last: dict[str, Any]) -> None:
    assert row_due(*scene()) == 3
    assert row_due(*scene(**of_last)) == 2


@pytest.mark.parametrize("share", [0.0, MIN_SHARE], ids=["no floor", "floor"])
def test_no_trial_waits_longer_for_a_slot_than_the_bound(share: float) -> None:
    """Ten trials release three slots on one GPU to each other: at most nine have none, seven have no pod."""
    one = search("job", 10, checkpointable=True, checkpoint_scope="anywhere")
    view = replace(one.view, settings={**one.view.settings, "minShare": share})
    there = replace(one, view=view, method=Method(suspend=0.0, resume=0.0, checkpoints=True))
    outcome = simulate(Scenario((NodeSpec("a", 1, 3),), (there,), Timing(progress=0.0, cycle=2.0)), checked=True)
    assert outcome.broken == ()
    overdue_after = (2 * GAP + 7 * (GAP + REQUEUE)) / MIN_SHARE
    longest = max(longest_gaps(outcome).values())
    assert (longest <= overdue_after * (1.0 + MIN_SHARE) + 9 * 2.0) == (share > 0.0)


def test_a_trial_without_a_slot_gets_one_besides_the_trial_that_is_served() -> None:
    """Where trials give places to each other. A requeue of it counts as turn: three trials wait, one of them for that,
    so it is overdue after (1 + 1 + 1 + 20) s / 0.1 instead of 30 s.
    """
    job, trials, gpus = scene(pod=None, gpus=(), phase=TrialPhase.REQUEUED)
    giving = change_job(job, checkpointable=True, checkpoint_scope="anywhere")
    assert rows_due(job, trials, gpus) == (2,)
    assert rows_due(giving, trials, gpus) == (3, 2)
    for kept in ({"retry_at": NOW + 1.0}, {"suspend": True}, {"stopped": True}):
        assert rows_due(giving, [*trials[:3], change_trial(trials[3], **kept)], gpus) == (2,)
    for waited, rows in ((229.99, ()), (230.01, (3,))):
        heard = (NOW, NOW, NOW, NOW - waited)
        shown = [
            replace(trial, curve=tuple(replace(p, time=at + p.step - 4.0) for p in trial.curve))
            for trial, at in zip(trials, heard, strict=True)
        ]
        assert rows_due(giving, shown, gpus) == rows


@pytest.mark.parametrize("of_gpu", [{"reserved_for": ""}, {"exclusive_pod": "urgent"}], ids=["lost", "exclusive"])
def test_a_trial_whose_gpu_is_unavailable_blocks_no_other(of_gpu: dict[str, Any]) -> None:
    job, trials, (gpu,) = scene(gpus=("gpu-1",))
    there = change_gpu(gpu, uuid="gpu-1", holder=None, trials=(trials[3].key,), run_queue=())
    assert row_due(job, trials, [gpu, there]) == 3
    assert row_due(job, trials, [gpu, change_gpu(there, **of_gpu)]) == 2


BEHIND = [
    ("a pinned trial", {"pinned": True}, {}),
    ("one that can neither be frozen nor save", {}, {"suspendable": False, "checkpointable": False}),
]


@pytest.mark.parametrize(("of_holder", "of_job"), [row[1:] for row in BEHIND], ids=[row[0] for row in BEHIND])
def test_a_trial_behind_a_holder_that_cannot_be_preempted_blocks_no_other(
    of_holder: dict[str, Any], of_job: dict[str, Any]
) -> None:
    job, trials, (gpu,) = scene(gpus=("gpu-1",))
    other = make_job("other", **of_job)
    holder = change_trial(make_trial(0, job="other", gpus=["gpu-1"], phase=TrialPhase.RUNNING), **of_holder)
    there = change_gpu(gpu, uuid="gpu-1", holder=holder.key, trials=(holder.key, trials[3].key), run_queue=())
    snapshot = make_snapshot(now=NOW, jobs=[job, other], trials=[*trials, holder], gpus=[gpu, there])
    seen = curves_of_job(job, trials, snapshot)
    assert starved_rows(seen, np.ones(4, dtype=bool), job, snapshot, MIN_SHARE, 2.0) == (2,)


def test_before_any_value_no_trial_starves() -> None:
    """The duration of an evaluation is unknown: a first one may take minutes."""
    job, trials, gpus = scene()
    assert row_due(job, [replace(trial, curve=()) for trial in trials], gpus) is None
    slow = SimJob(search("job", 8).view, tuple(curve(0.5, 0.01, gap=300.0, points=4) for _ in range(8)), Method())
    outcome = simulate(Scenario((NodeSpec("a", 2),), (slow,), Timing(progress=0.0, cycle=2.0)))
    first = min(value.time for value in outcome.values)
    assert {span.number for span in outcome.spans if span.start < first - 1.0} == {0, 1}


def test_a_plan_serves_the_starved_trial() -> None:
    job, trials, gpus = scene(suspend=True)
    decided = plan(make_snapshot(now=NOW, jobs=[job], trials=trials, gpus=gpus, costs=Costs(0.0, 0.0)))
    reasons = {place.trial: place.reason for place in decided.ranks}
    assert [reasons[trial.key] for trial in trials] == [
        "GPUPreempted",
        "WaitingForHolder",
        "LongestWait",
        "TrialSuspended",
    ]


FOUR = [make_gpu(f"gpu-{n}") for n in range(4)]
COUNTS: list[tuple[str, dict[str, Any], list[dict[str, Any]], list[GpuView], float]] = [
    ("one GPU a trial", {}, [], FOUR, 4.0),
    ("two GPUs a trial", {"gpus_per_trial": 2}, [], FOUR, 2.0),
    ("another job", {}, [{}], FOUR, 2.0),
    ("another that is over", {}, [{"finished": True}], FOUR, 4.0),
    ("another that is suspended", {}, [{"suspended": True}], FOUR, 4.0),
    ("another without GPUs", {}, [{"gpus_per_trial": 0}], FOUR, 4.0),
    ("another of other products", {"products": ("A",)}, [{"products": ("B",)}], FOUR, 4.0),
    ("one GPU of its product", {"products": ("A",)}, [], [replace(FOUR[0], product=p) for p in "AB"], 1.0),
    ("one that is ill", {}, [], [FOUR[0], replace(FOUR[1], health="Unhealthy")], 1.0),
    ("leased for another namespace", {}, [], [FOUR[0], change_gpu(FOUR[1], reserved_for="elsewhere")], 1.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mine", "others", "gpus", "count"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS]
)
def test_the_number_of_concurrent_trials(
    mine: dict[str, Any], others: list[dict[str, Any]], gpus: list[GpuView], count: float
) -> None:
    job = make_job("mine", **mine)
    jobs = [job, *[make_job(f"other-{n}", **other) for n, other in enumerate(others)]]
    snapshot = make_snapshot(jobs=jobs, gpus=gpus)
    assert concurrent_trials(job, snapshot, set())[0] == count
    there = make_trial(0).key
    on_the_first = [replace(gpu, trials=(there,)) if gpu.uuid == "gpu-0" else gpu for gpu in gpus]
    fitting = len([gpu for gpu in gpus if fits(job, gpu)])
    assert concurrent_trials(job, replace(snapshot, gpus=tuple(on_the_first)), {there})[0] == count / fitting
