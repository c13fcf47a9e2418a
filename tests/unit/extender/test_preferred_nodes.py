"""Soft preferences that have to choose among all nodes: the pod's own, other pods', and taints.

filter then returns more than the best nodes by the extender's score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fake_scheduler import LIMIT, NAMES, PREFERENCE, Json, Scheduler, gpunode, pod

from podium_cluster.resources import GPUNODES, NODES, PODS

PREFERENCES = {
    "devices": {"resourceClaims": [{"name": "c", "resourceClaimName": "any"}]},
    "node affinity": {"affinity": {"nodeAffinity": PREFERENCE}},
    "affinity": {"affinity": {"podAffinity": PREFERENCE}},
    "anti-affinity": {"affinity": {"podAntiAffinity": PREFERENCE}},
    "spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
}


@pytest.mark.parametrize("spec", PREFERENCES.values(), ids=PREFERENCES)
def test_a_pod_with_soft_preferences_gets_all_nodes(play: Callable[..., None], spec: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p", **spec)
        assert scheduler.filter(asked)["NodeNames"] == NAMES
        assert list(scheduler.prioritize(asked)) == NAMES
        assert scheduler.count_of("preference") == 1

    play(story)


def affinity(kind: str, labels: Json, **more: Any) -> Json:
    term = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"} | more
    weighted = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"prefers": {"podAffinity": weighted}, "avoids": {"podAntiAffinity": weighted}}.get(
        kind, {"podAffinity" if kind == "requires" else "podAntiAffinity": hard}
    )


def sitting(uid: str, other_pod: Json, namespace: str = "default", node: str = NAMES[-1]) -> Json:
    made = pod(uid, nodeName=node, affinity=other_pod)
    return made | {"metadata": made["metadata"] | {"namespace": namespace}, "status": {"phase": "Running"}}


def finished(made: Json) -> Json:
    return made | {"status": {"phase": "Succeeded"}}


LOUD = {"matchLabels": {"noise": "loud"}}
TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}


@pytest.mark.parametrize(
    ("other_pod", "all_nodes"),
    [
        (sitting("s", affinity("avoids", LOUD)), True),
        (sitting("s", affinity("prefers", LOUD)), True),
        (sitting("s", affinity("requires", LOUD)), True),
        (sitting("s", affinity("excludes", LOUD)), False),
        (sitting("s", affinity("avoids", {"matchLabels": {"noise": "low"}})), False),
        (sitting("s", affinity("avoids", {})), True),
        (sitting("s", affinity("avoids", {"matchExpressions": [{"key": "noise", "operator": "Exists"}]})), True),
        (sitting("s", affinity("avoids", {"matchExpressions": [{"key": "noise", "operator": "DoesNotExist"}]})), False),
        (sitting("s", affinity("avoids", LOUD), namespace="kube-system"), False),
        (sitting("s", affinity("avoids", LOUD, namespaces=["default"]), namespace="kube-system"), True),
        (sitting("s", affinity("avoids", LOUD, **TEAM), namespace="kube-system"), True),
        (sitting("s", affinity("avoids", LOUD), node=""), False),
        (finished(sitting("s", affinity("avoids", LOUD))), False),
    ],
    ids=[
        "avoids",
        "prefers",
        "requires",
        "excludes, which is a filter",
        "other labels",
        "any",
        "pods with the label",
        "pods without the label",
        "of its own namespace",
        "of the pod namespace",
        "of selected namespaces",
        "not scheduled",
        "finished",
    ],
)
def test_affinities_of_another_pod(play: Callable[..., None], other_pod: Json, all_nodes: bool) -> None:
    """They count as far as kube-scheduler would consider them for a pod without preferences."""

    async def story(scheduler: Scheduler) -> None:
        loud = pod("p", labels={"noise": "loud"})
        assert scheduler.filter(loud)["NodeNames"] == (NAMES if all_nodes else NAMES[:LIMIT])

    nodes = [gpunode(name, smUtilization=5.0 * i) for i, name in enumerate(NAMES)]
    play(story, {GPUNODES: nodes, PODS: [other_pod]})


def test_an_affinity_counts_once_its_pod_is_assigned_a_node(play: Callable[..., None]) -> None:
    """kube-scheduler considers it from then on, before the binding is observed. A refused pod does not count."""
    loud, quiet = pod("p", labels={"noise": "loud"}), pod("s", affinity=affinity("avoids", LOUD))
    large = quiet | {"metadata": quiet["metadata"] | {"annotations": {"podium.dev/gpu-memory": "1000"}}}

    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(loud)["NodeNames"] == NAMES[:LIMIT]
        scheduler.place(quiet)
        assert scheduler.filter(loud)["NodeNames"] == NAMES
        assert scheduler.filter(large)["NodeNames"] == []
        assert scheduler.filter(loud)["NodeNames"] == NAMES[:LIMIT]

    play(story)


def node(name: str, *effects: str) -> Json:
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return {"metadata": {"name": name, "resourceVersion": "2"}, "spec": {"taints": taints}, "status": {}}


@pytest.mark.parametrize(
    ("tainted", "left"),
    [
        ({}, NAMES[:LIMIT]),
        ({NAMES[1]: "NoSchedule"}, NAMES[:LIMIT]),
        ({NAMES[-1]: "PreferNoSchedule"}, NAMES[:LIMIT]),
        ({NAMES[1]: "PreferNoSchedule"}, NAMES[: LIMIT + 1]),
        (dict.fromkeys(NAMES[:6], "PreferNoSchedule"), NAMES[:LIMIT] + NAMES[6 : 6 + LIMIT]),
        (dict.fromkeys(NAMES, "PreferNoSchedule"), NAMES[:LIMIT]),
    ],
    ids=["none", "another taint", "none of the best", "one of the best", "all the best", "all"],
)
def test_nodes_without_a_soft_taint_are_selected_too(
    play: Callable[..., None], tainted: Mapping[str, str], left: Sequence[str]
) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        among_all = scheduler.prioritize(asked)
        assert scheduler.filter(asked)["NodeNames"] == list(left)
        assert scheduler.prioritize(asked, left) == {name: among_all[name] for name in left}

    nodes = [gpunode(name, smUtilization=5.0 * i) for i, name in enumerate(NAMES)]
    machines = [node(name, *([tainted[name]] if name in tainted else [])) for name in NAMES]
    play(story, {GPUNODES: nodes, NODES: machines})


def test_unsynced_caches_count_as_a_preference(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"))["NodeNames"] == NAMES
        assert scheduler.count_of("preference") == 1

    play(story, unsynced=True)


HARD = {
    "node affinity": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
    "spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
}


@pytest.mark.parametrize("spec", HARD.values(), ids=HARD)
def test_required_constraints_are_no_soft_preferences(play: Callable[..., None], spec: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p", **spec))["NodeNames"] == NAMES[:LIMIT]

    play(story)
