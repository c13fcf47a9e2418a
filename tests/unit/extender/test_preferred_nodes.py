"""Where somebody else's wish is to choose among all nodes: the pod's own, other pods', a taint's. Then filter hands on
more than the best by our score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fake_scheduler import MOST, NAMES, WISH, Json, Scheduler, gpunode, pod

from podium_cluster.resources import GPUNODES, NODES, PODS

WISHES = {
    "devices": {"resourceClaims": [{"name": "c", "resourceClaimName": "any"}]},
    "node affinity": {"affinity": {"nodeAffinity": WISH}},
    "affinity": {"affinity": {"podAffinity": WISH}},
    "anti-affinity": {"affinity": {"podAntiAffinity": WISH}},
    "spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
}


@pytest.mark.parametrize("spec", WISHES.values(), ids=WISHES)
def test_a_pod_with_wishes_of_its_own_chooses_among_all(play: Callable[..., None], spec: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p", **spec)
        assert scheduler.filter(asked)["NodeNames"] == NAMES
        assert list(scheduler.prioritize(asked)) == NAMES
        assert scheduler.filter_answers("preference") == 1

    play(story)


def affinity(kind: str, labels: Json, **more: Any) -> Json:
    term = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"} | more
    weighted = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"prefers": {"podAffinity": weighted}, "avoids": {"podAntiAffinity": weighted}}.get(
        kind, {"podAffinity" if kind == "requires" else "podAntiAffinity": hard}
    )


def sitting(uid: str, said: Json, namespace: str = "default", node: str = NAMES[-1]) -> Json:
    made = pod(uid, nodeName=node, affinity=said)
    return made | {"metadata": made["metadata"] | {"namespace": namespace}, "status": {"phase": "Running"}}


def over(made: Json) -> Json:
    return made | {"status": {"phase": "Succeeded"}}


LOUD = {"matchLabels": {"noise": "loud"}}
TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}


@pytest.mark.parametrize(
    ("said", "all_nodes"),
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
        (over(sitting("s", affinity("avoids", LOUD))), False),
    ],
    ids=[
        "avoids",
        "prefers",
        "requires",
        "excludes, which is a filter",
        "others",
        "any",
        "who has the label",
        "who has it not",
        "of its own namespace",
        "of ours",
        "of some",
        "waits, perhaps for days",
        "is over",
    ],
)
def test_whom_another_pod_prefers_to_be_near_or_away_from(
    play: Callable[..., None], said: Json, all_nodes: bool
) -> None:
    """As far as kube-scheduler would weigh it for a pod that says nothing itself."""

    async def story(scheduler: Scheduler) -> None:
        loud = pod("p", labels={"noise": "loud"})
        assert scheduler.filter(loud)["NodeNames"] == (NAMES if all_nodes else NAMES[:MOST])

    nodes = [gpunode(name, smUtilization=5.0 * i) for i, name in enumerate(NAMES)]
    play(story, {GPUNODES: nodes, PODS: [said]})


def test_what_a_pod_prefers_counts_from_its_being_told_a_node(play: Callable[..., None]) -> None:
    """kube-scheduler weighs it from then on; its binding may be seen too late. FailedNode everywhere it waits again."""
    loud, quiet = pod("p", labels={"noise": "loud"}), pod("s", affinity=affinity("avoids", LOUD))
    large = quiet | {"metadata": quiet["metadata"] | {"annotations": {"podium.dev/gpu-memory": "1000"}}}

    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(loud)["NodeNames"] == NAMES[:MOST]
        scheduler.place(quiet)
        assert scheduler.filter(loud)["NodeNames"] == NAMES
        assert scheduler.filter(large)["NodeNames"] == []
        assert scheduler.filter(loud)["NodeNames"] == NAMES[:MOST]

    play(story)


def node(name: str, *effects: str) -> Json:
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return {"metadata": {"name": name, "resourceVersion": "2"}, "spec": {"taints": taints}, "status": {}}


@pytest.mark.parametrize(
    ("tainted", "left"),
    [
        ({}, NAMES[:MOST]),
        ({NAMES[1]: "NoSchedule"}, NAMES[:MOST]),
        ({NAMES[-1]: "PreferNoSchedule"}, NAMES[:MOST]),
        ({NAMES[1]: "PreferNoSchedule"}, NAMES[: MOST + 1]),
        (dict.fromkeys(NAMES[:6], "PreferNoSchedule"), NAMES[:MOST] + NAMES[6 : 6 + MOST]),
        (dict.fromkeys(NAMES, "PreferNoSchedule"), NAMES[:MOST]),
    ],
    ids=["none", "another taint", "none of the best", "one of the best", "all the best", "all"],
)
def test_beside_a_node_with_a_soft_taint_are_the_best_without(
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


def test_what_was_not_seen_yet_may_be_a_wish(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"))["NodeNames"] == NAMES
        assert scheduler.filter_answers("preference") == 1

    play(story, unseen=True)


HARD = {
    "node affinity": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
    "spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
}


@pytest.mark.parametrize("spec", HARD.values(), ids=HARD)
def test_what_a_pod_must_have_was_seen_to_before(play: Callable[..., None], spec: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p", **spec))["NodeNames"] == NAMES[:MOST]

    play(story)
