"""Parsing at the edges: a trial's unsaved work, typical pods, placement constraints, the policy's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from podium_core.domain.unsaved_work import UnsavedWork
from podium_core.placement.needs import has_placement_constraints
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.typical_pods import Typical, total_variation, typical_needs
from podium_core.placement.views import PodNeed
from podium_core.schema.pod import Pod
from podium_extender.settings import ExtenderSettings
from podium_extender.state.node_cache import NodeCache
from podium_extender.state.trials import TrialState, parse_trial


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, TrialState(None, UnsavedWork(0.0, 0.0))),
        ({"rank": 2, "lastStep": 9, "gpuSeconds": 90.0}, TrialState(2, UnsavedWork(9.0, 90.0))),
        (
            {"lastStep": 9, "gpuSeconds": 90.0, "checkpoint": {"step": 7, "gpuSeconds": 80.0}},
            TrialState(None, UnsavedWork(2.0, 10.0)),
        ),
        # a new attempt began at step 7 after it had reached 9: what it lost then is not lost again
        (
            {
                "lastStep": 5,
                "gpuSeconds": 95.0,
                "checkpoint": {"step": 7, "gpuSeconds": 80.0},
                "lostWork": {"accountedGpuSeconds": 90.0},
            },
            TrialState(None, UnsavedWork(0.0, 5.0)),
        ),
    ],
)
def test_unsaved_work(status: dict[str, Any], expected: TrialState) -> None:
    assert parse_trial({"metadata": {"name": "t"}, "status": status}) == expected


def test_typical_pods_cover_95_percent_the_most_frequent_first() -> None:
    one, two, rare = PodNeed(1), PodNeed(2), PodNeed(4)
    assert typical_needs(Counter({two: 30, one: 66, rare: 4, PodNeed(0): 500})) == ((one, 66 / 96), (two, 30 / 96))
    assert typical_needs(Counter({two: 1, one: 1})) == ((one, 0.5), (two, 0.5))
    assert typical_needs(Counter()) == ()
    assert typical_needs(Counter({PodNeed(0): 1, one: 1}), least_gpus=0) == ((PodNeed(0), 0.5), (one, 0.5))


def test_typical_pods_are_the_same_object_until_the_mix_changes(caches: Callable[..., NodeCache]) -> None:
    """For some policies another object means an evaluation of every node."""
    node_cache = caches({})
    one, two = PodNeed(1), PodNeed(2)

    def come(first: int, count: int, need: PodNeed) -> None:
        for number in range(first, first + count):
            node_cache._pod_changed(("ns", str(number)), None, PlacedPod(str(number), "", need))

    come(0, 60, one)
    come(60, 40, two)
    first = node_cache.typical()
    assert first == ((one, 0.6), (two, 0.4))
    come(100, 30, one)
    come(130, 20, two)  # half as many again, in the same mix
    assert node_cache.typical() is first
    come(150, 40, two)
    assert node_cache.typical() == ((two, 100 / 190), (one, 90 / 190))


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ((), (), 0.0),
        ((), ((PodNeed(1), 1.0),), 1.0),
        (((PodNeed(1), 1.0),), (), 1.0),
        (((PodNeed(1), 0.7), (PodNeed(2), 0.3)), ((PodNeed(2), 0.4), (PodNeed(1), 0.6)), 0.1),
        (((PodNeed(1), 1.0),), ((PodNeed(1), 0.75), (PodNeed(4), 0.25)), 0.25),
    ],
)
def test_the_distance_between_two_mixes(before: Typical, after: Typical, part: float) -> None:
    assert total_variation(before, after) == pytest.approx(part)
    assert total_variation(after, before) == pytest.approx(part)


def _pod(**spec: Any) -> Pod:
    return Pod.model_validate({"metadata": {}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "matters"),
    [
        ({}, False),
        ({"affinity": {"nodeAffinity": {"x": 1}}, "volumes": [{"configMap": {"name": "x"}}]}, False),
        ({"affinity": {"podAntiAffinity": {"x": 1}}}, True),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, True),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, True),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}]}, True),
    ],
)
def test_placement_constraints_beyond_requests(spec: dict[str, Any], matters: bool) -> None:
    assert has_placement_constraints(_pod(**spec)) is matters


def test_an_unknown_policy_is_refused_at_startup() -> None:
    assert ExtenderSettings(placement="binpack").placement == "binpack"
    with pytest.raises(ValidationError, match="choose one of: auto, load_balance"):
        ExtenderSettings(placement="tetris")
