"""Effective requests of a pod by Kubernetes' rule, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from podium_core.placement.needs import need_of
from podium_core.placement.requests import requests_of
from podium_core.schema.pod import Pod

Json = dict[str, Any]


def runs(restart: str | None = None, **requests: str) -> Json:
    return {"name": "c", "resources": {"requests": requests}, "restartPolicy": restart}


def sidecar(**requests: str) -> Json:
    return runs("Always", **requests)


def pod(main: list[Json], init: list[Json] | None = None, **spec: Any) -> Pod:
    return Pod.model_validate({"metadata": {}, "spec": {"containers": main, "initContainers": init, **spec}})


CASES: list[tuple[str, Pod, dict[str, int]]] = [
    ("nothing", pod([runs()]), {}),
    ("containers run together", pod([runs(cpu="1500m"), runs(cpu="1", memory="1")]), {"cpu": 2500, "memory": 1000}),
    ("init containers one after the other", pod([runs(cpu="1")], [runs(cpu="2"), runs(cpu="3")]), {"cpu": 3000}),
    (
        "each resource by itself",
        pod([runs(cpu="3", memory="1Ki")], [runs(cpu="2", memory="2Ki")]),
        {"cpu": 3000, "memory": 2048_000},
    ),
    ("of an init container alone", pod([runs(cpu="1")], [runs(memory="5")]), {"cpu": 1000, "memory": 5000}),
    ("a sidecar stays beside the containers", pod([runs(cpu="1")], [sidecar(cpu="500m")]), {"cpu": 1500}),
    (
        "sidecars run beside the init containers after them",
        pod([runs(cpu="1")], [sidecar(cpu="1"), sidecar(cpu="2"), runs(cpu="4")]),
        {"cpu": 7000},
    ),
    (
        "and not beside those before them",
        pod([runs(cpu="1")], [runs(cpu="4"), sidecar(cpu="1"), sidecar(cpu="2")]),
        {"cpu": 4000},
    ),
    (
        "a sidecar does not count as an init container",
        pod([runs(cpu="5")], [runs(cpu="4"), sidecar(cpu="500m")]),
        {"cpu": 5500},
    ),
    (
        "overhead comes on top of all",
        pod([runs(cpu="1")], [runs(cpu="4")], overhead={"cpu": "250m", "memory": 120}),
        {"cpu": 4250, "memory": 120_000},
    ),
    (
        "the pod as a whole stands for its containers",
        pod([runs(cpu="1")], [sidecar(cpu="1")], resources={"requests": {"cpu": "8", "memory": "1k"}}),
        {"cpu": 8000, "memory": 1_000_000},
    ),
    (
        "only in what a pod can request, and without its overhead",
        pod(
            [runs(cpu="1", disk="2")],
            resources={"requests": {"cpu": "3", "disk": "9", "hugepages-2Mi": "4"}},
            overhead={"cpu": "1"},
        ),
        {"cpu": 4000, "disk": 2000, "hugepages-2Mi": 4000},
    ),
    ("null for what is absent", pod([runs()], overhead=None, resources=None), {}),
]


@pytest.mark.parametrize(("asks", "held"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_effective_requests_of_a_pod(asks: Pod, held: dict[str, int]) -> None:
    assert requests_of(asks.spec) == held


def test_gpus_are_counted_by_the_same_rule() -> None:
    one = {"podium.dev/gpu": "1"}
    assert need_of(pod([runs(**one)], [runs(**one)])).gpus == 1
    assert need_of(pod([runs(**one)], [sidecar(**one)])).gpus == 2


@pytest.mark.parametrize("part", ["containers", "initContainers", "resources", "overhead"])
def test_an_invalid_quantity_is_named(part: str) -> None:
    odd = runs(cpu="much")
    spec = {"containers": [odd], "initContainers": [odd], "resources": odd["resources"], "overhead": {"cpu": "much"}}
    with pytest.raises(ValueError, match="cpu='much': not a quantity"):
        requests_of(Pod.model_validate({"metadata": {}, "spec": {part: spec[part]}}).spec)
