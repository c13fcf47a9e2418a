"""How many nodes filter hands on: the best by our score, unless somebody else's wish is to choose among all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from podium.placement.registry import DEFAULT, POLICIES, placement_policy
from podium_cluster.resources import GPUNODES, NODES, PODS
from podium_cluster.watch import wait_all_synced
from podium_extender.decide import Judge
from podium_extender.metrics import Metrics
from podium_extender.telemetry import Telemetry
from podium_extender.verbs import Verbs

Json = dict[str, Any]
Caches = Callable[..., Telemetry]
Story = Callable[["Scheduler"], Awaitable[None]]
MOST = 4
NAMES = [f"n{i:02d}" for i in range(12)]
WISH = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


def gpunode(name: str, **changes: Any) -> Json:
    gpu = {"uuid": f"GPU-{name}", "index": 0, "product": "P", "memoryTotal": 100, "health": "Healthy", "shares": 4}
    status = {"updatedAt": "2027-01-15T07:59:50Z", "gpus": [gpu | changes]}
    return {"metadata": {"name": name, "resourceVersion": "2"}, "spec": {}, "status": status}


def pod(uid: str, resource: str = "podium.dev/gpu", labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    meta = {"name": uid, "namespace": "default", "uid": uid, "labels": {"podium.dev/trial": uid} | dict(labels or {})}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


class Scheduler:
    """Asks as kube-scheduler does, and takes the node of the highest score."""

    def __init__(self, telemetry: Telemetry, placement: str, most: int) -> None:
        self.metrics = Metrics()
        self.verbs = Verbs(telemetry, self.metrics, Judge(placement_policy(placement), 60.0), scored=most)

    def filter(self, asked: Json, names: Sequence[str] = NAMES) -> Json:
        found: Json = self._ask("filter", asked, names)
        return found

    def prioritize(self, asked: Json, names: Sequence[str] = NAMES) -> dict[str, int]:
        return {row["Host"]: row["Score"] for row in self._ask("prioritize", asked, names)}

    def place(self, asked: Json, names: Sequence[str] = NAMES) -> str:
        left = self.filter(asked, names)["NodeNames"]
        scores = self.prioritize(asked, left) if len(left) > 1 else dict.fromkeys(left, 0)
        return max(scores, key=scores.__getitem__)

    def handed_on(self, why: str) -> float | None:
        return self.metrics.registry.get_sample_value("podium_extender_handed_on_total", {"nodes": why})

    def _ask(self, verb: str, asked: Json, names: Sequence[str]) -> Any:
        question = {"Pod": asked, "Nodes": None, "NodeNames": list(names)}
        return json.loads(self.verbs.answer(verb, json.dumps(question, separators=(",", ":")).encode(), 0.0))


@pytest.fixture
def play(caches: Caches) -> Callable[..., None]:
    """Runs a story with a scheduler over these objects; by default a node is the busier the later its name comes.
    `unseen`: what is not waited for was not seen yet.
    """

    def run(
        story: Story, objects: Any = None, placement: str = DEFAULT, most: int = MOST, unseen: bool = False
    ) -> None:
        nodes = [gpunode(name, smUtilization=5.0 * i) for i, name in enumerate(NAMES)]

        async def main() -> None:
            telemetry = caches({GPUNODES: nodes} if objects is None else objects)
            seen = [*telemetry.caches.values(), *([] if unseen else telemetry.more_caches.values())]
            runs = [asyncio.create_task(cache.run()) for cache in seen]
            async with asyncio.timeout(30):
                await wait_all_synced(seen)
                await story(Scheduler(telemetry, placement, most))
            for one in runs:
                one.cancel()

        asyncio.run(main())

    return run


def test_the_best_are_handed_on_and_those_left_out_have_not_failed(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = NAMES[6:] + NAMES[:6]
        answer = scheduler.filter(pod("p"), asked)
        assert answer["NodeNames"] == NAMES[:MOST], "in the order asked"
        assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
        assert answer["Error"] == ""
        assert scheduler.handed_on("best") == 1

    play(story)


def test_who_is_refused_is_told_why_and_is_none_of_the_best(play: Callable[..., None]) -> None:
    nodes = [gpunode(name, health="Unhealthy" if i % 2 == 0 else "Healthy") for i, name in enumerate(NAMES)]

    async def story(scheduler: Scheduler) -> None:
        answer = scheduler.filter(pod("p"))
        assert answer["NodeNames"] == NAMES[1::2][:MOST]
        assert sorted(answer["FailedAndUnresolvableNodes"]) == NAMES[::2]
        assert answer["FailedNodes"] == {}

    play(story, {GPUNODES: nodes})


@pytest.mark.parametrize("placement", POLICIES)
def test_the_scores_are_those_among_all_that_fit(play: Callable[..., None], placement: str) -> None:
    """kube-scheduler adds its own to them: how far apart two nodes are may not depend on who was left out."""

    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        among_all = scheduler.prioritize(asked)
        best = scheduler.filter(asked)["NodeNames"]
        assert len(best) == MOST
        assert scheduler.prioritize(asked, best) == {name: among_all[name] for name in best}
        assert min(among_all[name] for name in best) >= max(s for name, s in among_all.items() if name not in best)
        assert max(among_all, key=among_all.__getitem__) in best

    play(story, placement=placement)


@pytest.mark.parametrize("placement", POLICIES)
def test_pods_go_to_the_same_nodes_as_if_all_were_handed_on(play: Callable[..., None], placement: str) -> None:
    placed: list[list[str]] = []

    async def story(scheduler: Scheduler) -> None:
        placed.append([scheduler.place(pod(f"p{i}")) for i in range(30)])

    for limit in (MOST, len(NAMES)):
        play(story, placement=placement, most=limit)
    assert placed[0] == placed[1]


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
        assert scheduler.handed_on("wish") == 1

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
    """kube-scheduler weighs it from then on; its binding may be seen too late. Refused everywhere it waits again."""
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
        assert scheduler.handed_on("wish") == 1

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


def test_a_node_that_a_pod_was_to_have_twice_and_did_not_get_is_left_out(play: Callable[..., None]) -> None:
    """Something after all filters fails there, such as its volume; by our scores it would be that node for ever."""

    async def story(scheduler: Scheduler) -> None:
        places = [scheduler.place(pod("p")) for _ in range(2 * len(NAMES) + 2)]
        assert places == [name for name in NAMES for _ in range(2)] + NAMES[:1] * 2
        assert scheduler.filter(pod("p"))["NodeNames"][0] == NAMES[1]
        assert scheduler.filter(pod("other"))["NodeNames"][0] == NAMES[0], "it is that pod's trouble alone"

    play(story)


@pytest.mark.parametrize("wish", [{}, {"affinity": {"nodeAffinity": WISH}}], ids=["the best", "all"])
def test_a_node_alone_is_handed_on_however_often(play: Callable[..., None], wish: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        for _ in range(5):
            assert scheduler.filter(pod("p", **wish), NAMES[:1])["NodeNames"] == NAMES[:1]

    play(story)


def test_where_no_node_stands_alone_all_are_handed_on(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"))["NodeNames"] == NAMES
        assert set(scheduler.prioritize(pod("p")).values()) == {5}
        assert scheduler.handed_on("no_favourite") == 1

    play(story, {})


@pytest.mark.parametrize("names", [NAMES[5:6], NAMES[5 : 5 + MOST]], ids=["nominated", "few"])
def test_few_are_all_handed_on(play: Callable[..., None], names: Sequence[str]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"), names)["NodeNames"] == names
        assert scheduler.handed_on("few") == 1

    play(story)


@pytest.mark.parametrize("memory", ["1000", "much"])
def test_a_pod_that_every_node_refuses_is_counted_by_itself(play: Callable[..., None], memory: str) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        asked["metadata"]["annotations"] = {"podium.dev/gpu-memory": memory}
        assert scheduler.filter(asked)["NodeNames"] == []
        assert scheduler.handed_on("none") == 1
        assert scheduler.handed_on("few") is None

    play(story)


def test_a_burst_over_equal_nodes_is_even(play: Callable[..., None]) -> None:
    """Nobody sees a binding: each pod counts where it was to go."""

    async def story(scheduler: Scheduler) -> None:
        placed = Counter(scheduler.place(pod(f"p{i}")) for i in range(3 * len(NAMES)))
        assert placed == dict.fromkeys(NAMES, 3)

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]})


def test_one_node_alone_is_where_the_pod_will_be(play: Callable[..., None]) -> None:
    """prioritize is then not asked."""

    async def story(scheduler: Scheduler) -> None:
        assert [scheduler.place(pod(f"p{i}")) for i in range(len(NAMES))] == NAMES

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]}, most=1)


def test_urgent_pods_have_firsts_of_their_own_among_all(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        firsts = {scheduler.place(pod(f"u{i}", "podium.dev/gpu-exclusive")) for i in range(100)}
        assert firsts == set(NAMES)

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]})


def test_random_is_random_over_all(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert {scheduler.place(pod(f"u{i}")) for i in range(100)} == set(NAMES)

    play(story, {GPUNODES: [gpunode(name, shares=100) for name in NAMES]}, placement="random")


def test_what_was_kept_for_one_pod_is_said_of_no_other(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        best = scheduler.filter(pod("p"))["NodeNames"]
        assert min(scheduler.prioritize(pod("another"), best).values()) == 0, "nothing is known of who was left out"
        assert min(scheduler.prioritize(pod("p"), best).values()) == 0, "it was kept for the next question alone"

    play(story)


def test_a_pod_that_fits_nowhere_is_refused_everywhere(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        answer = scheduler.filter(pod("p"))
        assert answer["NodeNames"] == []
        assert sorted(answer["FailedAndUnresolvableNodes"]) == NAMES

    play(story, {GPUNODES: [gpunode(name, health="Unhealthy") for name in NAMES], PODS: []})


def test_what_was_kept_for_a_pod_is_not_said_of_it_when_it_says_something_else(play: Callable[..., None]) -> None:
    """As no kube-scheduler does, and whoever else may ask."""
    bad = pod("p") | {"spec": {"containers": [{"name": "c", "resources": {"requests": {"podium.dev/gpu": "many"}}}]}}

    async def story(scheduler: Scheduler) -> None:
        best = scheduler.filter(pod("p"))["NodeNames"]
        assert scheduler.prioritize(bad, best) == dict.fromkeys(best, 5)

    play(story)
