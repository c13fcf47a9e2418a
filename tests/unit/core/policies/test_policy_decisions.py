"""Decisions of the published policies and of the envelope: which trials they prefer, which they give up, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist, median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.prediction.final_value import predictions
from podium_core.curves.prediction.multiples import undecided
from podium_core.curves.statistics import median_of_others, middle_values, normal_cdf
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, JobView, Point, Scalar, Snapshot, TrialView
from podium_core.policies.base import Admission, Ranked
from podium_core.policies.envelope import Envelope, option_value
from podium_core.policies.hyperband import Hyperband
from podium_core.policies.registry import create
from podium_core.policies.slaq import predicted_drop
from podium_core.testing.builders import change_job, change_trial, make_gpu, make_job, make_snapshot, make_trial

GO, WAIT, STOP = Admission.GO, Admission.WAIT, Admission.STOP


def scene(
    curves: list[list[float]], *, steps: float = 16.0, maximize: bool = True, now: float = 20.0, gpus: int = 1
) -> tuple[JobView, list[TrialView], Snapshot]:
    job = make_job(maximize=maximize, max_steps=steps, max_trials=len(curves))
    trials = [
        make_trial(
            i,
            values=c,
            gpu_seconds=len(c),
            phase=TrialPhase.SUSPENDED if c else TrialPhase.GATED,
            gpus=[f"gpu-{i % gpus}"],
        )
        for i, c in enumerate(curves)
    ]
    machines = [make_gpu(f"gpu-{i}") for i in range(gpus)]
    return job, trials, make_snapshot(now=now, jobs=[job], trials=trials, gpus=machines, costs=Costs(0.0, 0.0))


def ranked(
    name: str, curves: list[list[float]], settings: dict[str, Scalar] | None = None, **more: object
) -> dict[int, Ranked]:
    """Return the trials' numbers, best first."""
    job, trials, snapshot = scene(curves, **more)  # type: ignore[arg-type]
    numbers = {t.key: t.number for t in trials}
    return {numbers[r.trial]: r for r in create(name, settings or {}).rank(job, trials, snapshot)}


A, B, C, D = [0.1, 0.2, 0.3, 0.4], [0.4, 0.5, 0.6, 0.7], [0.3, 0.4, 0.5, 0.6], [0.2, 0.3, 0.4, 0.5]
CUTS = [
    # rungs of 16 steps at eta 4: 1 and 4
    ("asha: one in four continues", "asha", {"rungs": 2}, [A, B, C, D], {1: GO, 2: WAIT, 3: WAIT, 0: WAIT}),
    ("asha: three are too few", "asha", {"rungs": 2}, [A, B, C, []], {3: GO, 1: WAIT, 2: WAIT, 0: WAIT}),
    ("asha: the best, where no other can come", "asha", {"rungs": 2}, [A, B, C], {1: GO, 2: WAIT, 0: WAIT}),
    ("asha: on its way", "asha", {"rungs": 1}, [A[:2], B, C, D], {0: GO, 1: WAIT, 2: WAIT, 3: WAIT}),
    (
        "asha: beyond a rung, and not let",
        "asha",
        {"rungs": 2},
        [A[:2], B[:1], C[:1], D[:1]],
        {1: GO, 2: WAIT, 3: WAIT, 0: WAIT},
    ),
    (
        "asha: a promotion sticks",  # four, then a better one: all came in the order of their numbers
        "asha",
        {"rungs": 2},
        [B[:2], A[:1], C[:1], D[:1], [0.9]],
        {0: GO, 4: GO, 2: WAIT, 3: WAIT, 1: WAIT},
    ),
    (
        "asha: a diverged trial is not promoted",
        "asha",
        {"eta": 2, "rungs": 2},
        [[math.nan] * 4, [math.nan] * 4],
        {0: WAIT, 1: WAIT},
    ),
    (
        "asha: stop ends a trial that arrives after a better one",
        "asha",
        {"rungs": 2, "onCut": "stop"},
        [B, A],
        {0: GO, 1: STOP},
    ),
    ("asha: stop judges no trial again", "asha", {"rungs": 2, "onCut": "stop"}, [A, B], {0: GO, 1: GO}),
    ("median: three peers are too few", "median_stop", {}, [A, B, C, D], {0: GO, 1: GO, 2: GO, 3: GO}),
    ("median: the worse ones", "median_stop", {"peers": 3}, [A, B, C, D], {1: GO, 2: GO, 3: GO, 0: STOP}),
    (
        "median: suspended",
        "median_stop",
        {"peers": 3, "onCut": "suspend"},
        [A, B, C, D],
        {1: GO, 2: GO, 3: GO, 0: WAIT},
    ),
    ("median: within its grace", "median_stop", {"peers": 3, "grace": 0.5}, [A, B, C, D], {0: GO, 1: GO, 2: GO, 3: GO}),
]


@pytest.mark.parametrize(("name", "settings", "curves", "expected"), [r[1:] for r in CUTS], ids=[r[0] for r in CUTS])
def test_cuts(
    name: str, settings: dict[str, Scalar], curves: list[list[float]], expected: dict[int, Admission]
) -> None:
    assert {number: r.admission for number, r in ranked(name, curves, settings).items()} == expected


def test_hyperband_sizes_brackets_in_the_papers_proportion() -> None:
    """81 = 3^4 trials of the paper: eta^s / (s + 1) for s = 3, 2, 1, 0 at eta 3: 6.75, 3, 1.5, 1."""
    assert Hyperband(eta=3.0, rungs=3).brackets(49) == (27, 12, 6, 4)
    assert sum(Hyperband().brackets(64)) == 64


def test_hyperband_waits_for_its_bracket_in_sync_mode_only() -> None:
    """Eight trials, eta 2, one rung at step 8: brackets of 4 and 4; one trial of the first has not reached the rung."""
    long, short = [0.1 * k for k in range(1, 9)], [0.5]
    curves = [long, long, long, short, [], [], [], []]
    settings: dict[str, Scalar] = {"eta": 2, "rungs": 1}
    assert Hyperband(eta=2.0, rungs=1).brackets(8) == (4, 4)
    waits = ranked("hyperband", curves, settings)
    assert {n: waits[n].reason for n in range(4)} == {
        0: "RungIncomplete",
        1: "RungIncomplete",
        2: "RungIncomplete",
        3: "AdvancingToRung",
    }
    goes = ranked("hyperband", curves, {**settings, "mode": "async"})
    assert [goes[n].admission for n in range(3)] == [GO, WAIT, WAIT]


# eta 2, one rung at step 8, eight trials in brackets of 4 and 4: those of the first have come to the rung, or `on`
UP, ON = [0.1 * k for k in range(1, 9)], [0.5]
BRACKETS = [
    ("sync, suspend: a bracket that is not whole waits", "sync", "suspend", [UP, UP, UP, ON], [WAIT, WAIT, WAIT, GO]),
    ("sync, stop: and no trial of it ends", "sync", "stop", [UP, UP, UP, ON], [WAIT, WAIT, WAIT, GO]),
    ("sync, suspend: half of it continues", "sync", "suspend", [UP, UP, UP, UP], [GO, GO, WAIT, WAIT]),
    ("sync, stop: the others end", "sync", "stop", [UP, UP, UP, UP], [GO, GO, STOP, STOP]),
    ("async, suspend: a single trial is not half", "async", "suspend", [UP, ON, ON, ON], [WAIT, GO, GO, GO]),
    ("async, stop: the best of the arrivals continues", "async", "stop", [UP, ON, ON, ON], [GO, GO, GO, GO]),
    ("async, suspend: half of those that came", "async", "suspend", [UP, UP, UP, ON], [GO, WAIT, WAIT, GO]),
    ("async, stop: the others end on arrival", "async", "stop", [UP, UP, UP, ON], [GO, STOP, STOP, GO]),
]


@pytest.mark.parametrize(("mode", "cut", "curves", "expected"), [r[1:] for r in BRACKETS], ids=[r[0] for r in BRACKETS])
def test_hyperband_in_each_mode_and_with_each_cut(
    mode: str, cut: str, curves: list[list[float]], expected: list[Admission]
) -> None:
    settings: dict[str, Scalar] = {"eta": 2, "rungs": 1, "mode": mode, "onCut": cut}
    found = ranked("hyperband", [*curves, UP, UP, ON, []], settings)
    assert [found[n].admission for n in range(8)] == [*expected, GO, GO, GO, GO], (
        "no trial of the last bracket is given up"
    )


def test_pop_ends_the_hopeless_and_gives_gpus_to_the_promising() -> None:
    good = [0.9 - 0.5 * t**-0.5 for t in range(1, 9)]
    flat = [0.3] * 8
    found = ranked("pop", [flat, good, [0.2]], gpus=2)
    assert {n: r.reason for n, r in found.items()} == {1: "Promising", 2: "RoundRobin", 0: "Poor"}
    assert found[0].admission is STOP


PLACES: list[tuple[str, int, dict[str, Any], list[JobView]]] = [
    ("a GPU a trial", 2, {}, []),
    ("four GPUs a trial", 8, {"gpus_per_trial": 4}, []),
    ("GPUs of another product", 2, {"products": ("mine",)}, []),
    ("another search on the same GPUs", 4, {}, [make_job("other")]),
    ("another search on other GPUs", 2, {"products": ("mine",)}, [make_job("other", products=("another",))]),
]


@pytest.mark.parametrize(("gpus", "of_job", "others"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_pop_calls_no_more_trials_promising_than_can_run(
    gpus: int, of_job: dict[str, Any], others: list[JobView]
) -> None:
    """Eight equal trials of which two can run: two are promising."""
    curves = [
        [0.8 * (1 - math.exp(-0.3 * i)) + 0.004 * ((i * 7 + k * 3) % 5 - 2) for i in range(1, 11)] for k in range(8)
    ]
    job, trials, snapshot = scene(curves, steps=40.0, gpus=1)
    job = change_job(job, **of_job)
    mine = [make_gpu(f"gpu-{i}", product="mine") for i in range(gpus)]
    foreign = [make_gpu(f"other-{i}", product="another") for i in range(30 if job.gpus.products else 0)]
    found = create("pop", {}).rank(job, trials, replace(snapshot, jobs=(job, *others), gpus=(*mine, *foreign)))
    assert [r.reason for r in found] == ["Promising"] * 2 + ["RoundRobin"] * 6


@given(st.lists(st.sampled_from([-math.inf, 0.1, 0.2, 0.3, 0.5, 1.7e308, -1.7e308]), min_size=2, max_size=9))
def test_medians_without_one(values: list[float]) -> None:
    middle = middle_values(np.array(values))
    found = median_of_others(np.array(values), np.tile(middle, (len(values), 1)))
    assert found.tolist() == [halves_median(values[:i] + values[i + 1 :]) for i in range(len(values))]


def halves_median(values: list[float]) -> float:
    """Return the standard library's median of the halves, doubled: the sum of two huge values overflows."""
    return 2 * median(value / 2 for value in values)


def test_the_normal_distribution_is_that_of_the_standard_library() -> None:
    z = np.linspace(-6.0, 6.0, 241)
    np.testing.assert_allclose(normal_cdf(z), [NormalDist().cdf(x) for x in z], atol=1e-7)


def test_slaq_prefers_a_loss_that_still_falls() -> None:
    falling = [1.0 / k for k in range(1, 9)]
    settled = [1.0, 0.2, 0.11, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert list(ranked("slaq", [settled, falling], maximize=False)) == [1, 0]
    _, trials, _ = scene([falling], maximize=False)
    # the next value of 1/k is 1/9; the largest drop was a half
    assert predicted_drop(trials[0].curve, -1.0, 12) == pytest.approx((1 / 8 - 1 / 9) / 0.5, rel=0.15)


def test_best_so_far_warms_up_every_trial_first() -> None:
    assert list(ranked("best_so_far", [A, B, [], C])) == [2, 1, 3, 0]


# --- envelope


def test_envelope_compares_at_equal_training() -> None:
    """Trial 1 has less than trial 0 now, at a quarter of its training; at that step trial 0 had far less."""
    old = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.19, 0.20, 0.21]
    young = [0.15, 0.17, 0.19]
    assert list(ranked("best_so_far", [old, young])) == [0, 1]
    assert next(iter(ranked("envelope", [old, young, [0.02, 0.02, 0.02]], steps=64.0))) == 1


def test_envelope_judges_no_trial_while_all_still_gain() -> None:
    """Equal deficits: beside gains that dwarf them all trials are nearly equal; on flat curves one remains."""
    moving = [[k + d for k in range(8)] for d in (0.0, 0.1, 0.2)]
    flat = [[0.5 + 0.001 * k + d for k in range(8)] for d in (0.0, 0.1, 0.2)]
    spread = {
        name: max(s) - min(s)
        for name, s in (
            ("moving", [r.score for r in ranked("envelope", moving).values()]),
            ("flat", [r.score for r in ranked("envelope", flat).values()]),
        )
    }
    assert spread["moving"] < 0.2
    assert spread["flat"] > 1.0


def test_envelope_puts_off_diverged_trials() -> None:
    assert list(ranked("envelope", [[0.9, 0.9, math.nan], A, B]))[-1] == 0


def test_envelope_serves_starved_trials_one_at_a_time() -> None:
    curves = [B, A, C, D]
    assert [r.reason for r in ranked("envelope", curves).values()].count("LongestWait") == 0
    found = ranked("envelope", curves, now=1e6)
    assert [r.reason for r in found.values()].count("LongestWait") == 1
    assert next(iter(found.values())).reason == "LongestWait"
    without = ranked("envelope", curves, {"minShare": 0}, now=1e6)
    assert [r.reason for r in without.values()].count("LongestWait") == 0


def test_envelope_charges_the_cost_of_a_switch() -> None:
    """Freezing costs one second here, a requeue three; twelve of sixteen one-second steps remain."""
    job, trials, snapshot = scene([A, B, C, D])
    snapshot = replace(snapshot, costs=Costs(0.5, 0.5, 3.0))

    def score(freezes: bool) -> float:
        asked = change_job(job, suspendable=freezes, checkpointable=True, checkpoint_scope="anywhere")
        return next(one.score for one in Envelope().rank(asked, trials, snapshot) if one.trial == trials[1].key)

    assert score(True) - score(False) == pytest.approx(math.log((12 + 3) / (12 + 1)))


def test_envelope_messages_do_not_change_with_every_cycle() -> None:
    """A message is a trial's status: one that changed every second would cause a write in every cycle."""
    job, trials, snapshot = scene([B, A, C, []])
    trials[0] = replace(trials[0], phase=TrialPhase.RUNNING)
    later = [change_trial(trials[0], gpu_seconds=4.1), *trials[1:]]
    before, after = (
        list(Envelope().rank(job, each, replace(snapshot, trials=tuple(each)))) for each in (trials, later)
    )
    assert [r.score for r in before] != [r.score for r in after]
    assert [(r.reason, r.message) for r in before] == [(r.reason, r.message) for r in after]


@pytest.mark.parametrize("seconds", [30.0, 120.0, 360.0])
def test_a_slow_trial_is_not_counted_as_further_trained(seconds: float) -> None:
    """Neither is one that has repeated steps: its GPU-seconds are not training."""
    curves = [[(0.60 + 0.04 * i) * (1 - 2 ** (-step / 8)) for step in range(1, 31)] for i in range(9)]
    job, trials, snapshot = scene(curves, steps=100.0)
    trials[1] = change_trial(trials[1], gpu_seconds=seconds)
    ranking = Envelope(min_share=0.0).rank(job, trials, replace(snapshot, trials=tuple(trials)))
    found = [one.trial.name for one in ranking]
    assert found.index("job-1") == 7
    assert all("; trained 30 % or more." in one.message for one in ranking)


def test_a_warm_up_lasts_for_the_spacing_of_values_however_many_points_are_kept() -> None:
    kept = tuple(Point(float(step), 0.5, float(step)) for step in (*range(1, 20), *range(20, 5001, 40)))
    job, trials, snapshot = scene([[0.1], [0.1] * 20, [0.1], [0.1]], steps=1e4)
    trials[2:] = [change_trial(trial, curve=kept, gpu_seconds=5e3) for trial in trials[2:]]
    found = Envelope(warmup=0.0).rank(job, trials, replace(snapshot, trials=tuple(trials)))
    assert {one.trial.name for one in found if one.reason == "WarmUp"} == {"job-0"}


def test_a_new_trial_is_worth_more_after_more_good_trials() -> None:
    few, many = np.array([0.97, 0.01, 0.01, 0.01]), np.array([0.25] * 4)
    assert option_value(many, 0.1) == pytest.approx(0.25)
    # one in four was worth it: 0.97 for four looks and one rest
    assert option_value(few, 0.1) == pytest.approx(0.97 / (4 * 0.1 + 0.9))
    assert option_value(np.array([]), 0.1) == 1.0


@pytest.mark.parametrize("maximize", [True, False])
def test_a_prediction_contains_known_values_and_narrows_with_training(maximize: bool) -> None:
    sign = 1.0 if maximize else -1.0
    values = [sign * (0.9 - 0.6 * t**-0.7) for t in range(1, 13)]
    job, trials, snapshot = scene([values[:4], values, [sign * 0.1]], maximize=maximize)
    found = predictions(job, snapshot)
    early, late = found[trials[0].key], found[trials[1].key]
    for one, seen in ((early, values[3]), (late, values[-1])):
        assert one.low <= one.median <= one.high
        assert sign * (one.low if maximize else one.high) >= sign * seen - 1e-9  # what was reached is not lost
    assert late.high - late.low < early.high - early.low


def test_the_undecided_share_falls_from_one_with_the_width_of_the_prediction() -> None:
    shares = np.array([0.01, 0.03, 0.25, 0.5, 0.75, 1.0])
    doubt = undecided(shares, 0.03)
    assert doubt.tolist() == sorted(doubt.tolist(), reverse=True)
    assert (doubt[0], doubt[1], doubt[-1]) == (1.0, 1.0, 0.0)
    assert doubt[3] == pytest.approx(2.08 / 5.95)  # one doubling left, by the table of final_value.py
    assert undecided(np.array([1.0, 0.01]), 1.0).tolist() == [0.0, 1.0]  # a look as long as a trial
