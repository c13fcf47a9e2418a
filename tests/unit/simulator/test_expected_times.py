"""Expected times of a search: exact where nothing is unknown, wide where little is known, bounded and seeded."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from benchmarks.simulator.bench_expected import history_at
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_simulator.expected import times
from podium_simulator.expected.futures import draw_futures, ends_at, pace_of
from podium_simulator.expected.histories import SearchHistory, TrialHistory
from podium_simulator.expected.times import Present, Sampling, simulated_times
from podium_simulator.replay.samples import Sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, SimJob, Timing
from podium_simulator.system.inputs.searches import even_nodes, search_job
from podium_simulator.system.results.comparison import ClusterSpec, scenario_of
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

EARLY = Sampling(samples=15)


def curve(number: int, seconds: float, steps: int = 20) -> RecordedTrial:
    """Return a curve of `steps` steps of these seconds, which ends at a value of its own."""
    top = 0.5 + number / 50.0
    each = range(1, steps + 1)
    return RecordedTrial(
        f"t{number}",
        {"lr": number / 10.0},
        tuple(seconds * step for step in each),
        tuple(top * (1.0 - 0.9**step) for step in each),
        tuple(float(step) for step in each),
    )


def search(policy: str, paces: list[float], gpus: int = 2, slots: int = 2) -> tuple[ClusterSpec, SimJob, Outcome]:
    """Return a search with trials of these seconds a step, and its real outcome."""
    place = ClusterSpec(even_nodes(gpus, 1, slots), Method())
    trials = tuple(curve(number, pace) for number, pace in enumerate(paces))
    job = search_job(Sample("task", "family", 0, True, None, trials), policy, place.method)
    return place, job, simulate(scenario_of(place, (job,), 0, 1e7))


def cut(found: tuple[ClusterSpec, SimJob, Outcome], now: float) -> Present:
    """Return the state of the search at a time."""
    place, job, outcome = found
    return Present((history_at(outcome, job, now),), place.nodes, {uuid: uuid for uuid in outcome.gpus}, place.timing)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(("fifo", "envelope", "round_robin")),
    st.lists(st.floats(0.5, 8.0), min_size=3, max_size=7),
    st.floats(0.05, 0.9),
)
def test_where_nothing_is_unknown_the_interval_is_the_simulated_end(
    policy: str, paces: list[float], share: float
) -> None:
    found = search(policy, paces)
    _, job, outcome = found
    now = share * outcome.makespan
    made = simulated_times(cut(found, now), Sampling(samples=3), known=[lambda search, seed: job.curves])
    assert made.end is not None
    assert made.end.low == made.end.median == made.end.high
    # what pods had done of a start is not part of the state, and a switch in progress begins again
    end, off = now + made.end.median, 8.0 + 0.05 * outcome.makespan
    if end != pytest.approx(outcome.makespan, abs=off):  # a near tie decides which trial gets a free GPU
        ends = nearby_ends(policy, paces)
        assert min(ends) - off <= end <= max(ends) + off


def nearby_ends(policy: str, paces: list[float]) -> list[float]:
    """Return the ends of the same search where each trial is one percent faster or slower, in 32 combinations."""
    random = Random(1)
    some = [[random.choice((0.99, 1.01)) for _ in paces] for _ in range(32)]
    return [search(policy, [p * f for p, f in zip(paces, one, strict=True)])[2].makespan for one in some]


def test_a_near_tie_may_change_the_end() -> None:
    """The order of trials with equal GPU-seconds decides; the search ends between those of one percent other speeds."""
    paces = [4.75, 7.0, 8.0, 6.0, 4.0, 2.0, 1.5]
    ends = nearby_ends("round_robin", paces)
    assert max(ends) - min(ends) > 25.0
    found = search("round_robin", paces)
    now = 0.5 * found[2].makespan
    made = simulated_times(cut(found, now), Sampling(samples=1), known=[lambda search, seed: found[1].curves])
    assert made.end is not None
    assert min(ends) - 8.0 <= now + made.end.median <= max(ends) + 8.0


def test_trials_of_two_workers_end_as_they_are_simulated() -> None:
    """Each has one GPU on each of two nodes. The next one waits for a plan, since its agents let it in only then."""
    place, narrow, outcome = search("fifo", [1.0, 2.0, 3.0, 4.0], gpus=1, slots=4)
    view = replace(narrow.view, gpus=replace(narrow.view.gpus, per_trial=2, workers=2))
    wide, both = replace(narrow, view=view), replace(place, nodes=even_nodes(2, 2, 4))
    result = simulate(scenario_of(both, (wide,), 0, 1e7), checked=True)
    assert outcome.makespan < result.makespan < outcome.makespan + 3 * 2.0
    assert result.broken == ()
    present = cut((both, wide, result), 40.0)
    (known,) = present.searches
    trials = tuple(replace(t, gpus=result.gpus if t.gpus else (), trained=t.trained / 2.0) for t in known.trials)
    present = replace(present, searches=(replace(known, trials=trials),))
    made = simulated_times(present, Sampling(samples=3), known=[lambda search, seed: narrow.curves])
    assert made.end is not None
    assert made.end.median == pytest.approx(result.makespan - 40.0, abs=8.0)
    assert any(trial.holds for trial in trials)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.floats(0.5, 8.0), min_size=4, max_size=8), st.integers(0, 9))
def test_the_interval_contains_the_median_and_starts_come_before_the_end(paces: list[float], seed: int) -> None:
    found = search("envelope", paces)
    made = simulated_times(cut(found, 0.3 * found[2].makespan), Sampling(samples=6, seed=seed))
    assert made.end is not None
    assert 0.0 <= made.end.low <= made.end.median <= made.end.high < math.inf
    for one in made.starts:
        if one.start is not None:
            assert one.start.low <= one.start.median <= made.end.high


def test_the_same_seed_gives_the_same_times() -> None:
    state = cut(found := search("envelope", [1.0, 2.0, 3.0, 4.0]), 20.0)
    assert found[2].makespan > 20.0
    assert simulated_times(state, EARLY) == simulated_times(state, EARLY)
    assert simulated_times(state, EARLY) != simulated_times(state, replace(EARLY, seed=100))


def test_the_time_limit_bounds_the_samples() -> None:
    state, ticks = cut(search("fifo", [1.0, 2.0, 3.0]), 10.0), count()
    made = simulated_times(state, Sampling(samples=100, seconds=3.0, clock=lambda: float(next(ticks))))
    assert made.samples == 3, "each sample takes a second of this clock, and the fourth would end too late"
    assert made.assumptions[-1] == "only 3 samples fitted into the time limit: the interval is too narrow"


def test_few_known_paces_give_a_wide_interval() -> None:
    """Trials of equal pace: the interval shrinks from one known pace to many."""
    found = search("fifo", [2.0] * 12)
    widths = []
    for share in (0.1, 0.6):
        end = simulated_times(cut(found, share * found[2].makespan), Sampling(samples=25)).end
        assert end is not None
        widths.append((end.high - end.low) / end.median)
    assert widths[0] > 2.0 * widths[1]


def test_without_a_step_the_cure_is_named() -> None:
    place, job, outcome = search("fifo", [2.0] * 3)
    nothing = SearchHistory(job.view, job.method, ())
    state = Present((nothing,), place.nodes, {}, place.timing)
    made = simulated_times(state, EARLY)
    assert (made.start, made.end) == (None, None)
    assert made.unknown.endswith("no trial has made a step yet; wait, or give --step-seconds.")
    end = simulated_times(state, replace(EARLY, step_seconds=2.0)).end
    assert end is not None
    assert end.median == pytest.approx(outcome.makespan, rel=0.1)


def test_without_an_end_of_trials_the_cure_is_named() -> None:
    _, job, _ = search("fifo", [2.0] * 3)
    begun = TrialHistory(0, steps=(1.0, 2.0), values=(0.1, 0.2), seconds=(1.0, 2.0), times=(-1.0, 0.0), trained=2.0)
    endless = SearchHistory(replace(job.view, max_steps=None), job.method, (begun,))
    made = simulated_times(Present((endless,), even_nodes(1, 1, 2), {}, Timing()), EARLY)
    assert made.unknown.endswith("set trials.maxSteps.")


def test_too_many_trials_are_refused() -> None:
    _, job, _ = search("fifo", [2.0] * 3)
    begun = TrialHistory(0, steps=(1.0, 2.0), values=(0.1, 0.2), seconds=(1.0, 2.0), times=(-1.0, 0.0), trained=2.0)
    many = replace(job.view, limits=replace(job.view.limits, max_trials=times.MAX_TRIALS + 1))
    state = Present((SearchHistory(many, job.method, (begun,)),), even_nodes(1, 1, 2), {}, Timing())
    assert "more than are simulated" in simulated_times(state, EARLY).unknown


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 30.0), st.integers(0, 6))
def test_a_sampled_curve_continues_what_is_known(seed: int, since: float, known: int) -> None:
    import numpy as np

    whole = curve(0, 2.0, steps=10)
    own = TrialHistory(
        0,
        steps=whole.steps[:known],
        values=whole.values[:known],
        seconds=whole.seconds[:known],
        times=tuple(float(n - known) for n in range(known)),
        trained=(whole.seconds[known - 1] if known else 0.0) + since,
    )
    other = TrialHistory(
        1, steps=whole.steps, values=whole.values, seconds=whole.seconds, times=(0.0,) * 10, trained=20.0
    )
    _, job, _ = search("fifo", [2.0] * 2)
    history = SearchHistory(replace(job.view, max_steps=10.0), job.method, (own, other))
    pace = pace_of(history, None)
    assert pace is not None
    first, second = draw_futures(history, pace, ends_at(history), 8, np.random.default_rng(seed))
    assert first.values[:known] == own.values
    assert first.seconds[: max(0, known)] == own.seconds
    assert all(a < b for a, b in zip(first.seconds, first.seconds[1:], strict=False))
    assert first.seconds[-1] > own.trained, "it has at least one evaluation to come"
    assert len(second.steps) > 10, "a live trial at its last step still ends later"
