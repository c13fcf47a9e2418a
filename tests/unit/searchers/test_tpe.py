"""Proposals of `search.algorithm: tpe` from the results of a search's trials."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from operator_builders import make_cluster_state, make_job, make_trial

from podium_core.domain.actions import CreateTrial
from podium_core.schema.job import HyperParamJob
from podium_operator.act.actuator import Actuator, trial_results
from podium_operator.act.pod_manifest import PodRules
from podium_operator.metrics import Metrics
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.random import RandomSearcher
from podium_searchers.registry import SEARCHERS

LR = {"name": "lr", "min": 1e-4, "max": 1.0, "scale": "log"}
MOMENTUM = {"name": "momentum", "min": 0.0, "max": 1.0}
ACT = {"name": "act", "values": ["relu", "tanh", "gelu"]}
SPACE = [LR, MOMENTUM, ACT]


def search(algorithm: str = "tpe", seed: int = 0, direction: str = "maximize", **settings: Any) -> HyperParamJob:
    return make_job(
        objective={"metric": "acc", "direction": direction},
        parameters=SPACE,
        search={"algorithm": algorithm, "seed": seed, "settings": settings},
        trials={"max": 100, "maxSteps": 10},
    )


def worth(point: Proposal) -> float:
    """Return a value whose maximum is 0, at lr 0.01, momentum 0.3, tanh."""
    off = (math.log10(float(point["lr"])) + 2.0) ** 2 + 4.0 * (float(point["momentum"]) - 0.3) ** 2
    return -off - (point["act"] != "tanh")


def run(job: HyperParamJob, trials: int, result: Callable[[int, Proposal], TrialResult]) -> list[Proposal]:
    """Run the trials one after the other; each result is known before the next proposal."""
    searcher, tried, points = SEARCHERS[job.spec.search.algorithm], list[TrialResult](), list[Proposal]()
    for number in range(trials):
        point = searcher.propose(job.spec, number, tried)
        assert point is not None
        points.append(point)
        tried.append(result(number, point))
    return points


def complete(sign: float = 1.0) -> Callable[[int, Proposal], TrialResult]:
    return lambda number, point: TrialResult(number, point, step=10.0, value=sign * worth(point), completed=True)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_tpe_finds_better_points_than_random(direction: str) -> None:
    sign = 1.0 if direction == "maximize" else -1.0

    def median_worth(algorithm: str, seed: int) -> float:
        points = run(search(algorithm, seed, direction), 40, complete(sign))
        return sorted(map(worth, points[20:]))[10]

    gains = [median_worth("tpe", seed) - median_worth("random", seed) for seed in range(5)]
    assert min(gains) > 0.2, gains


def test_before_enough_values_are_known_tpe_draws_like_random() -> None:
    points = run(search(startupTrials=15), 16, complete())
    drawn = run(search("random"), 16, complete())
    assert points[:15] == drawn[:15]
    assert points[15] != drawn[15]


def test_running_trials_inform_the_search_as_well() -> None:
    """They are suspended at different steps and none is complete: nothing waits for the first to end."""

    def pruned_at(number: int, point: Proposal) -> TrialResult:
        return TrialResult(number, point, step=2.0, value=worth(point))

    points = run(search(), 40, pruned_at)
    drawn = run(search("random"), 40, pruned_at)
    assert sum(map(worth, points[20:])) > sum(map(worth, drawn[20:])) + 5.0


def test_points_that_diverged_are_avoided() -> None:
    def diverges(number: int, point: Proposal) -> TrialResult:
        bad = point["act"] == "relu"
        return TrialResult(number, point, step=10.0, value=None if bad else 0.5, completed=not bad)

    points = run(search(), 60, diverges)
    assert sum(point["act"] == "relu" for point in points[30:]) <= 5


def test_failed_trials_and_points_outside_the_space_are_left_out() -> None:
    job = search(startupTrials=3)
    good = [TrialResult(n, p, step=10.0, value=worth(p), completed=True) for n, p in enumerate(run(job, 6, complete()))]
    strange = [
        TrialResult(6, {"lr": 7.0, "momentum": 0.1, "act": "tanh"}, step=10.0, value=9.0, completed=True),
        TrialResult(7, {"lr": 0.1}, step=10.0, value=9.0, completed=True),
        TrialResult(8, {"lr": 0.01, "momentum": 0.3, "act": "tanh"}, step=3.0, value=9.0, failed=True),
    ]
    tpe = SEARCHERS["tpe"]
    assert tpe.propose(job.spec, 9, [*good, *strange]) == tpe.propose(job.spec, 9, good)


def test_trials_that_are_created_together_differ() -> None:
    job = search(startupTrials=3)
    tried = [
        TrialResult(n, p, step=10.0, value=worth(p), completed=True) for n, p in enumerate(run(job, 20, complete()))
    ]
    fresh: list[TrialResult] = []
    for number in range(20, 28):
        point = SEARCHERS["tpe"].propose(job.spec, number, [*tried, *fresh])
        assert point is not None
        fresh.append(TrialResult(number, point))
    assert len({tuple(one.parameters.values()) for one in fresh}) == 8


@pytest.mark.parametrize(
    ("phase", "values", "expected"),
    [
        ("Pending", [], TrialResult(0, {"lr": 0.01})),
        ("Suspended", [0.5, 0.7, 0.6], TrialResult(0, {"lr": 0.01}, step=3.0, value=0.7)),
        ("Succeeded", [0.5, 0.7], TrialResult(0, {"lr": 0.01}, step=2.0, value=0.7, completed=True)),
        ("EarlyStopped", [0.5], TrialResult(0, {"lr": 0.01}, step=1.0, value=0.5)),
        ("Failed", [0.5], TrialResult(0, {"lr": 0.01}, step=1.0, value=0.5, failed=True)),
        ("Running", [-1.7976931348623157e308], TrialResult(0, {"lr": 0.01}, step=1.0)),  # nan, as the wire has it
    ],
)
def test_the_result_in_a_trials_status(phase: str, values: list[float], expected: TrialResult) -> None:
    points = [{"step": i + 1.0, "value": value, "time": 0.0} for i, value in enumerate(values)]
    status = {"phase": phase, "curve": {"points": points}, "lastStep": float(len(values)) or None}
    others = [make_trial(1, job="other"), make_trial(2)]
    found = trial_results(make_job(), [*others, make_trial(0, **status)])
    assert found[0] == expected
    assert [one.number for one in found] == [0, 2]


def test_trials_of_one_reconcile_differ() -> None:
    """The cluster state that it reads shows none of them."""
    job = make_job(
        objective={"metric": "acc", "direction": "maximize"},
        parameters=[ACT, {"name": "bs", "values": [16, 32, 64]}],
        search={"algorithm": "tpe", "settings": {"startupTrials": 4}},
        trials={"max": 100, "maxSteps": 10},
    )
    one = {"phase": "Succeeded", "lastStep": 1.0}
    trials = [
        make_trial(
            number,
            parameters=(point := RandomSearcher().propose(job.spec, number) or {}),
            curve={"points": [{"step": 1.0, "value": float(point["act"] == "tanh"), "time": 0.0}]},
            **one,
        )
        for number in range(20)
    ]
    cluster, api, made = make_cluster_state(job, *trials), AsyncMock(), list[tuple[Any, ...]]()
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    (key,) = cluster.job_by_key
    for _ in range(2):  # as after a restart: nothing is kept between reconciles
        asyncio.run(
            actuator.create(cluster, [CreateTrial(key, number, "CapacityAvailable", "") for number in range(20, 28)])
        )
        made.append(tuple(tuple(call.args[1]["spec"]["parameters"].values()) for call in api.create.call_args_list))
        api.create.reset_mock()
    assert len(set(made[0])) > 1
    assert made[0] == made[1]
