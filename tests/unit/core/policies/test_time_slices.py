"""The minimum time slice follows the measured cost of a trial's own suspensions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import FAST, SLOW, holding, on_gpu, orders, sound, why

from podium_core.domain.snapshot import Costs, Snapshot
from podium_core.domain.switch_costs import SwitchTotals, mean_costs, mean_switch
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE, smallest_time_slice
from podium_core.testing.builders import change_job, change_trial

HELD = 100.0  # seconds, of `holding`


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e4), st.integers(1, 50))
def test_switches_take_at_most_their_fraction_and_the_minimum_holds(switch: float, floor: float, turns: int) -> None:
    run = smallest_time_slice(switch, floor)
    assert run >= floor == smallest_time_slice(None, floor)
    assert turns * switch <= MAX_SWITCH_SHARE * turns * run * (1 + 1e-9)


@pytest.mark.parametrize(
    ("trials", "costs"),
    [
        ([], Costs()),
        ([SwitchTotals()], Costs()),
        ([SwitchTotals(1, 30.0)], Costs(suspend=30.0)),
        ([SwitchTotals(1, 30.0, 1, 30.0), *[SwitchTotals(1, 30.0)] * 9], Costs(30.0, 30.0)),
        ([SwitchTotals(3, 6.0, 2, 8.0), SwitchTotals(1, 6.0, 1, 1.0)], Costs(3.0, 3.0)),
    ],
    ids=["no trials", "none suspended", "none back", "one of ten back", "by how often each went"],
)
def test_a_resumption_is_counted_once_it_happened(trials: list[SwitchTotals], costs: Costs) -> None:
    assert mean_costs(trials) == costs
    assert mean_costs(trials, 7.5) == replace(costs, requeue=7.5)


@pytest.mark.parametrize(
    ("recent", "switch"),
    [([], None), ([(1.0, None)], None), ([(1.0, 2.0), (3.0, None)], 4.0), ([(0.0, 0.0)], 0.0)],
)
def test_the_switch_time_of_a_trial_is_known_after_its_first_resumption(
    recent: list[tuple[float, float | None]], switch: float | None
) -> None:
    assert mean_switch(recent) == switch


def scene(switch: float | None) -> Snapshot:
    """The rival is far better, the holder had its GPU for HELD seconds."""
    return holding(
        [change_trial(trial, switch_seconds=switch if trial.number == 0 else None) for trial in on_gpu(SLOW, FAST)]
    )


@pytest.mark.parametrize("switch", [None, 0.004, 2.0, HELD * MAX_SWITCH_SHARE])
def test_a_holder_is_preempted_after_its_minimum_time_slice(switch: float | None) -> None:
    assert orders(sound(scene(switch))) == {"gpu-0": ["job-1", "job-0"]}


def test_expensive_switches_extend_the_time_slice_and_the_planner_wakes_at_its_end() -> None:
    snapshot = scene(2 * HELD * MAX_SWITCH_SHARE)
    made = sound(snapshot)
    assert orders(made) == {}
    assert why(made, "job-1") == "MinTimeSlice"
    assert made.wake_at == pytest.approx(snapshot.now + HELD)


def test_the_same_holds_between_jobs() -> None:
    snapshot = scene(2 * HELD * MAX_SWITCH_SHARE)
    first, second = snapshot.trials
    other = replace(snapshot.jobs[0], key=first.job._replace(name="other"), uid="other")
    rival = replace(second, job=other.key)
    two = replace(snapshot, jobs=(*snapshot.jobs, other), trials=(first, rival))
    assert why(sound(two), rival.key.name) == "MinTimeSlice"
    cheap = replace(two, trials=(change_trial(first, switch_seconds=None), rival))
    assert why(sound(cheap), rival.key.name) == "FairShare"


def test_the_measured_suspension_does_not_count_for_a_requeue() -> None:
    snapshot = scene(1e6)
    job = change_job(snapshot.jobs[0], suspendable=False, checkpointable=True, checkpoint_scope="anywhere")
    saving = replace(snapshot, jobs=(job,), now=snapshot.now + 1000.0)
    assert "MinTimeSlice" not in {place.reason for place in sound(saving).ranks}
