"""How many nodes filter returns: the best by the extender's score.

test_preferred_nodes covers the reasons to return more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from fake_scheduler import LIMIT, NAMES, PREFERENCE, Json, Scheduler, gpunode, pod

from podium_cluster.resources import GPUNODES, PODS
from podium_core.placement.policies.registry import POLICIES


def test_the_best_nodes_are_selected_and_the_others_have_not_failed(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = NAMES[6:] + NAMES[:6]
        answer = scheduler.filter(pod("p"), asked)
        assert answer["NodeNames"] == NAMES[:LIMIT], "in the order asked"
        assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
        assert answer["Error"] == ""
        assert scheduler.count_of("best") == 1

    play(story)


def test_a_refused_node_has_a_reason_and_is_not_selected(play: Callable[..., None]) -> None:
    nodes = [gpunode(name, health="Unhealthy" if i % 2 == 0 else "Healthy") for i, name in enumerate(NAMES)]

    async def story(scheduler: Scheduler) -> None:
        answer = scheduler.filter(pod("p"))
        assert answer["NodeNames"] == NAMES[1::2][:LIMIT]
        assert sorted(answer["FailedAndUnresolvableNodes"]) == NAMES[::2]
        assert answer["FailedNodes"] == {}

    play(story, {GPUNODES: nodes})


@pytest.mark.parametrize("placement", POLICIES)
def test_the_scores_are_those_among_all_that_fit(play: Callable[..., None], placement: str) -> None:
    """kube-scheduler adds its own scores, so the distance of two nodes must not depend on the omitted nodes."""

    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        among_all = scheduler.prioritize(asked)
        best = scheduler.filter(asked)["NodeNames"]
        assert len(best) == LIMIT
        assert scheduler.prioritize(asked, best) == {name: among_all[name] for name in best}
        assert min(among_all[name] for name in best) >= max(s for name, s in among_all.items() if name not in best)
        assert max(among_all, key=among_all.__getitem__) in best

    play(story, placement=placement)


@pytest.mark.parametrize("placement", POLICIES)
def test_pods_go_to_the_same_nodes_as_without_a_selection(play: Callable[..., None], placement: str) -> None:
    placed: list[list[str]] = []

    async def story(scheduler: Scheduler) -> None:
        placed.append([scheduler.place(pod(f"p{i}")) for i in range(30)])

    for limit in (LIMIT, len(NAMES)):
        play(story, placement=placement, limit=limit)
    assert placed[0] == placed[1]


def test_a_node_with_two_failed_attempts_is_omitted(play: Callable[..., None]) -> None:
    """A step after all filters fails there, such as the creation of a volume; constant scores would repeat it."""

    async def story(scheduler: Scheduler) -> None:
        places = [scheduler.place(pod("p")) for _ in range(2 * len(NAMES) + 2)]
        assert places == [name for name in NAMES for _ in range(2)] + NAMES[:1] * 2
        assert scheduler.filter(pod("p"))["NodeNames"][0] == NAMES[1]
        assert scheduler.filter(pod("other"))["NodeNames"][0] == NAMES[0], "the failure concerns only that pod"

    play(story)


@pytest.mark.parametrize("preference", [{}, {"affinity": {"nodeAffinity": PREFERENCE}}], ids=["the best", "all"])
def test_a_single_node_is_always_returned(play: Callable[..., None], preference: Json) -> None:
    async def story(scheduler: Scheduler) -> None:
        for _ in range(5):
            assert scheduler.filter(pod("p", **preference), NAMES[:1])["NodeNames"] == NAMES[:1]

    play(story)


def test_without_a_single_best_node_all_are_returned(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"))["NodeNames"] == NAMES
        assert set(scheduler.prioritize(pod("p")).values()) == {5}
        assert scheduler.count_of("no_favourite") == 1

    play(story, {})


@pytest.mark.parametrize("names", [NAMES[5:6], NAMES[5 : 5 + LIMIT]], ids=["nominated", "few"])
def test_few_nodes_are_all_returned(play: Callable[..., None], names: Sequence[str]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert scheduler.filter(pod("p"), names)["NodeNames"] == names
        assert scheduler.count_of("few") == 1

    play(story)


@pytest.mark.parametrize("memory", ["1000", "much"])
def test_a_pod_that_every_node_refuses_has_its_own_count(play: Callable[..., None], memory: str) -> None:
    async def story(scheduler: Scheduler) -> None:
        asked = pod("p")
        asked["metadata"]["annotations"] = {"podium.dev/gpu-memory": memory}
        assert scheduler.filter(asked)["NodeNames"] == []
        assert scheduler.count_of("none") == 1
        assert scheduler.count_of("few") is None

    play(story)


def test_a_burst_is_spread_evenly_over_equal_nodes(play: Callable[..., None]) -> None:
    """No binding is observed, so each pod counts on its assumed node."""

    async def story(scheduler: Scheduler) -> None:
        placed = Counter(scheduler.place(pod(f"p{i}")) for i in range(3 * len(NAMES)))
        assert placed == dict.fromkeys(NAMES, 3)

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]})


def test_a_pod_is_assumed_on_the_only_selected_node(play: Callable[..., None]) -> None:
    """kube-scheduler does not call prioritize then."""

    async def story(scheduler: Scheduler) -> None:
        assert [scheduler.place(pod(f"p{i}")) for i in range(len(NAMES))] == NAMES

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]}, limit=1)


def test_exclusive_pods_are_spread_over_all_nodes(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        firsts = {scheduler.place(pod(f"u{i}", "podium.dev/gpu-exclusive")) for i in range(100)}
        assert firsts == set(NAMES)

    play(story, {GPUNODES: [gpunode(name) for name in NAMES]})


def test_the_random_policy_uses_all_nodes(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        assert {scheduler.place(pod(f"u{i}")) for i in range(100)} == set(NAMES)

    play(story, {GPUNODES: [gpunode(name, slots=100) for name in NAMES]}, placement="random")


def test_a_selection_is_used_only_for_its_pod_and_only_once(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        best = scheduler.filter(pod("p"))["NodeNames"]
        assert min(scheduler.prioritize(pod("another"), best).values()) == 0, "the omitted nodes are not considered"
        assert min(scheduler.prioritize(pod("p"), best).values()) == 0, "the selection is used only once"

    play(story)


def test_a_pod_that_fits_on_no_node_is_refused_by_all(play: Callable[..., None]) -> None:
    async def story(scheduler: Scheduler) -> None:
        answer = scheduler.filter(pod("p"))
        assert answer["NodeNames"] == []
        assert sorted(answer["FailedAndUnresolvableNodes"]) == NAMES

    play(story, {GPUNODES: [gpunode(name, health="Unhealthy") for name in NAMES], PODS: []})


def test_a_selection_is_not_used_for_a_changed_pod(play: Callable[..., None]) -> None:
    """kube-scheduler never sends this, but other clients may."""
    bad = pod("p") | {"spec": {"containers": [{"name": "c", "resources": {"requests": {"podium.dev/gpu": "many"}}}]}}

    async def story(scheduler: Scheduler) -> None:
        best = scheduler.filter(pod("p"))["NodeNames"]
        assert scheduler.prioritize(bad, best) == dict.fromkeys(best, 5)

    play(story)
