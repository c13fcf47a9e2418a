"""What is specific to each policy; tests/contract has what is common."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from podium_core.domain.population import Lineage, Population
from podium_core.domain.snapshot import Costs, Point, Scalar
from podium_core.policies.envelope_texts import explanation, rounded
from podium_core.policies.hermes import Hermes
from podium_core.policies.registry import (
    NAMES,
    InvalidSettingError,
    PolicyError,
    UnknownPolicyError,
    UnknownSettingError,
    create,
)
from podium_core.schema.job import PolicySpec
from podium_core.schema.job_rules import POLICIES_THAT_STOP, POLICIES_WITHOUT_MAX_STEPS
from podium_core.testing.builders import change_trial, make_job, make_snapshot, make_trial


def ranked_numbers(
    name: str,
    curves: list[list[float]],
    *,
    settings: dict[str, Scalar] | None = None,
    maximize: bool = True,
    seconds: list[float] | None = None,
) -> list[int]:
    job = make_job(policy=name, maximize=maximize)
    trials = [make_trial(i, values=c, gpu_seconds=seconds[i] if seconds else 0.0) for i, c in enumerate(curves)]
    ranked = create(name, settings or {}).rank(job, trials, make_snapshot(jobs=[job], trials=trials))
    numbers = {t.key: t.number for t in trials}
    return [numbers[r.trial] for r in ranked]


SLOW, FAST, BEST = [0.1, 0.2, 0.3], [0.1, 0.5, 0.7], [0.75, 0.8, 0.9]

TABLE = [
    ("best first", "hermes", [SLOW, FAST, BEST], {}, True, None, [2, 1, 0]),
    ("literal rule", "hermes", [SLOW, FAST, BEST], {"start": "own"}, True, None, [1, 0, 2]),
    ("warm-up first", "hermes", [BEST, SLOW, [0.9], []], {}, True, None, [2, 3, 0, 1]),
    ("no warm-up", "hermes", [[0.1], [0.5, 0.6], BEST], {"warmup": 0}, True, None, [2, 1, 0]),
    ("minimise", "hermes", [[2.0, 1.9, 1.8], [2.0, 1.0, 0.5]], {}, False, None, [1, 0]),
    ("diverged last", "hermes", [[0.9, 0.9, math.nan], SLOW, []], {}, True, None, [2, 1, 0]),
    ("recovered", "hermes", [[math.nan, 0.2, 0.9], SLOW], {}, True, None, [0, 1]),
    ("ties by number", "hermes", [FAST, FAST, FAST], {}, True, None, [0, 1, 2]),
    ("all far behind a diverged trial", "envelope", [[1e6, math.nan], [0.1, 0.1], []], {}, True, None, [1, 2, 0]),
    ("in order", "fifo", [SLOW, BEST, FAST], {}, True, None, [0, 1, 2]),
    ("least served", "round_robin", [BEST, SLOW, FAST], {}, True, [30.0, 10.0, 20.0], [1, 2, 0]),
]


@pytest.mark.parametrize(
    ("name", "curves", "settings", "maximize", "seconds", "expected"),
    [row[1:] for row in TABLE],
    ids=[str(row[0]) for row in TABLE],
)
def test_rank(
    name: str,
    curves: list[list[float]],
    settings: dict[str, Scalar],
    maximize: bool,
    seconds: list[float] | None,
    expected: list[int],
) -> None:
    assert ranked_numbers(name, curves, settings=settings, maximize=maximize, seconds=seconds) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("max_steps", [5e-324, 1e-310, 1e-9])
def test_no_trial_length_breaks_a_plan(name: str, max_steps: float) -> None:
    """An older CRD accepted all of these lengths."""
    job = make_job(policy=name, max_steps=max_steps)
    trials = [make_trial(0, values=[0.1, 0.2, 0.3], gpu_seconds=1.0), make_trial(1)]
    with np.errstate(all="ignore"):  # no number that is meant to be right: the plan is made
        assert len(create(name, {}).rank(job, trials, make_snapshot(jobs=[job], trials=trials))) == 2


def test_the_default_policy_trains_a_population_interval_by_interval() -> None:
    """A good member must not be complete before a bad one is compared with it."""
    job = make_job(policy="envelope", max_steps=100.0, population=Population(4, 10.0, 0.25))
    good, bad = [0.5 + 0.01 * i for i in range(12)], [0.1 + 0.001 * i for i in range(9)]
    trials = [make_trial(i, values=c, gpu_seconds=float(len(c))) for i, c in enumerate([good, bad, [0.3]])]
    child = make_trial(3, lineage=Lineage("job-0", "uid-job-0", 1, 20.0, "job-9"))  # its first value is to come
    broken = make_trial(4, values=[0.1] * 12, gpu_seconds=12.0)
    broken = change_trial(broken, curve=(*broken.curve, Point(1e300, 0.0, 99.0)))
    trials += [child, broken]
    ranked = create("envelope", {}).rank(job, trials, make_snapshot(jobs=[job], trials=trials))
    assert [one.trial.name for one in ranked] == ["job-2", "job-1", "job-0", "job-3", "job-4"]
    assert [one.level for one in ranked] == [0, 1, 2, 3, 11]
    assert ranked[2].message.endswith("trained 10 % or more (interval 2 of its population).")
    alone = create("envelope", {}).rank(replace(job, population=None), trials, make_snapshot(jobs=[job], trials=trials))
    assert [one.trial.name for one in alone].index("job-0") < [one.trial.name for one in alone].index("job-1")


def test_a_finished_trial_still_defines_the_range() -> None:
    job = make_job()
    done, running = make_trial(0, values=[0.0, 0.5, 1.0]), make_trial(1, values=[0.0, 0.1, 0.2])
    snapshot = make_snapshot(jobs=[job], trials=[done, running])
    assert Hermes().rank(job, [running], snapshot)[0].score == pytest.approx(0.2)


BAD = [
    ("asha2", {}, UnknownPolicyError, "policy.name: 'asha2' is not known; choose one of: asha, best_so_far, envelope"),
    (
        "fifo",
        {"warmup": 3},
        UnknownSettingError,
        "policy.settings.warmup: policy fifo has no such setting; its settings: none",
    ),
    (
        "envelope",
        {"minTimeSlice": 5},
        UnknownSettingError,
        "its settings: hysteresis, minShare, warmup; for this one set policy.name to hermes",
    ),
    ("hermes", {"erly": 3}, UnknownSettingError, "its settings: hysteresis, minTimeSlice, start, warmup"),
    ("hermes", {"warmup": 2.5}, InvalidSettingError, "policy.settings.warmup: 2.5 is not a whole number"),
    ("hermes", {"warmup": True}, InvalidSettingError, "policy.settings.warmup: True is not a whole number"),
    ("hermes", {"warmup": -1}, InvalidSettingError, "policy.settings.warmup: -1 is not a number of points"),
    ("hermes", {"minTimeSlice": math.nan}, InvalidSettingError, "policy.settings.minTimeSlice: nan is not a number"),
    ("hermes", {"minTimeSlice": -2}, InvalidSettingError, "policy.settings.minTimeSlice: -2 seconds is not a duration"),
    ("hermes", {"hysteresis": 1.5}, InvalidSettingError, "policy.settings.hysteresis: 1.5 is not a share"),
    ("hermes", {"start": "mine"}, InvalidSettingError, "policy.settings.start: 'mine' is not one of: own, pool"),
    ("round_robin", {"quantum": "10"}, InvalidSettingError, "policy.settings.quantum: '10' is not a number"),
    ("round_robin", {"quantum": 0}, InvalidSettingError, "policy.settings.quantum: 0 seconds is not a time slice"),
    ("asha", {"eta": 1}, InvalidSettingError, "policy.settings.eta: 1 promotes every trial; give a number above 1"),
    (
        "asha",
        {"rungs": 17},
        InvalidSettingError,
        "policy.settings.rungs: 17 is not a possible number of rungs; give 1 to 16",
    ),
    ("asha", {"onCut": "kill"}, InvalidSettingError, "policy.settings.onCut: 'kill' is not one of: suspend, stop"),
    ("best_so_far", {"warmup": -1}, InvalidSettingError, "policy.settings.warmup: -1 is not a number of points"),
    ("envelope", {"minShare": 0.6}, InvalidSettingError, "policy.settings.minShare: 0.6 is not a share"),
    (
        "envelope",
        {"warmup": 2},
        InvalidSettingError,
        "policy.settings.warmup: 2 is not a share of a trial; give 0 to 1",
    ),
    ("envelope", {"hysteresis": -1}, InvalidSettingError, "policy.settings.hysteresis: -1 is not a ratio less 1"),
    ("hyperband", {"mode": "both"}, InvalidSettingError, "policy.settings.mode: 'both' is not one of: sync, async"),
    ("hyperband", {"eta": 0.5}, InvalidSettingError, "policy.settings.eta: 0.5 promotes every trial"),
    (
        "hyperband",
        {"eta": 1e20, "rungs": 16},
        InvalidSettingError,
        "policy.settings.eta: 1e+20 promotes no trial; give 1000",
    ),
    ("median_stop", {"grace": 1.5}, InvalidSettingError, "policy.settings.grace: 1.5 is not a share of a trial"),
    ("median_stop", {"peers": 0}, InvalidSettingError, "policy.settings.peers: 0 trials have no median"),
    (
        "pop",
        {"warmup": 2},
        InvalidSettingError,
        "policy.settings.warmup: 2 points are too few for a curve; give 3 or more",
    ),
    ("pop", {"poor": 1}, InvalidSettingError, "policy.settings.poor: 1 is not a probability below 1"),
    ("pop", {"rounds": 0}, InvalidSettingError, "policy.settings.rounds: 0 is not a number of time slices"),
    ("slaq", {"window": 3}, InvalidSettingError, "policy.settings.window: 3 points are too few for a fit"),
]


@pytest.mark.parametrize(("name", "settings", "error", "message"), BAD, ids=lambda value: str(value)[:30])
def test_an_invalid_setting_is_reported_with_its_cure(
    name: str, settings: dict[str, Scalar], error: type[PolicyError], message: str
) -> None:
    with pytest.raises(error) as caught:
        create(name, settings)
    assert message in str(caught.value)
    assert caught.value.code.isalnum()


def test_the_table_of_policies() -> None:
    assert get_args(PolicySpec.model_fields["name"].annotation) == NAMES  # what a job may ask for
    assert [create(name, {}).name for name in NAMES] == list(NAMES)
    assert tuple(name for name in NAMES if not create(name, {}).needs_max_steps) == POLICIES_WITHOUT_MAX_STEPS
    assert tuple(name for name in NAMES if create(name, {}).cuts) == POLICIES_THAT_STOP
    assert create("hermes", {"minTimeSlice": 1}).time_slice(Costs(0.01, 0.01)) == 1.0
    assert create("round_robin", {"quantum": 5}).time_slice(Costs(1.0, 1.0)) == 20.0


@pytest.mark.parametrize(
    ("chance", "said"),
    [(1.0, "0.9 or more"), (0.34, "0.2 or more"), (0.2, "0.2 or more"), (0.0101, "0.01 or more"), (3e-7, "below 0.01")],
)
def test_a_probability_has_few_texts(chance: float, said: str) -> None:
    """Each change of the text is a write of a trial's status."""
    assert rounded(chance) == said


def test_the_texts_of_envelope_begin_with_the_facts() -> None:
    """The live table shows about 60 characters, `Rank 1 of 6: ` included."""
    yes, no = np.array([True]), np.array([False])
    chance, trained = np.array([0.95]), np.array([8.7])
    judged = explanation((), no, yes, chance, trained, 10.0)
    assert judged(0) == ("Envelope", "ends best with probability 0.9 or more; trained 85 % or more.")
    starts = {
        "LongestWait": explanation((0,), yes, no, chance, trained, 10.0)(0),
        "WarmUp": explanation((), yes, no, chance, trained, 10.0)(0),
        "Unstarted": explanation((), no, no, chance, trained, 10.0)(0),
    }
    facts = {"LongestWait": "longest wait", "WarmUp": "in its warm-up", "Unstarted": "not started"}
    assert {reason for reason, _ in starts.values()} == set(starts)
    assert all(message.startswith(facts[reason]) for reason, message in starts.values())
