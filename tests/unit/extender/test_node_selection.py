"""How many nodes filter hands on: the best by our score. For whose sake it hands on more: test_wishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from fake_scheduler import MOST, NAMES, WISH, Json, Scheduler, gpunode, pod

from podium_cluster.resources import GPUNODES, PODS
from podium_core.placement.registry import POLICIES


def test_the_best_are_handed_on_and_those_left_out_have_not_failed(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = NAMES[6:] + NAMES[:6]
        answer = scheduler.filter(pod("p"), asked)
        assert answer["NodeNames"] == NAMES[:MOST], "in the order asked"
        assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
        assert answer["Error"] == ""
        assert scheduler.filter_answers("best") == 1

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
        assert scheduler.filter_answers("no_favourite") == 1

    play(story, {})


@pytest.mark.parametrize("names", [NAMES[5:6], NAMES[5 : 5 + MOST]], ids=["nominated", "few"])
def test_few_are_all_handed_on(play: Callable[..., None], names: Sequence[str]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"), names)["NodeNames"] == names
        assert scheduler.filter_answers("few") == 1

    play(story)


@pytest.mark.parametrize("memory", ["1000", "much"])
def test_a_pod_that_every_node_refuses_is_counted_by_itself(play: Callable[..., None], memory: str) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        asked["metadata"]["annotations"] = {"podium.dev/gpu-memory": memory}
        assert scheduler.filter(asked)["NodeNames"] == []
        assert scheduler.filter_answers("none") == 1
        assert scheduler.filter_answers("few") is None

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
