"""Limits of preemption: pending answers, trials that started recently, a maximum per minute, and the verb."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.victims import Eviction, Occupant, Preemptor, Proposal, choose
from podium_core.placement.views import NodeView, PodNeed
from podium_extender.metrics import Metrics
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.preemption_limits import (
    DELETION_SECONDS,
    MINUTE,
    OVERDUE_SECONDS,
    PreemptionHistory,
    PreemptionLimits,
    limit_refusal,
    mark_just_started,
    pending_answer,
    record_answer,
)
from podium_extender.verbs.wire import PreemptArgs

NOW = 1000.0


def trial(name: str, began: float | None = 0.0, unsaved: float = 0.0, **changes: object) -> Occupant:
    pod = PlacedPod(
        name, "a", PodNeed(1), ("demo", name), -1, {"podium.dev/gpu": 1000}, exchangeable=True, started_at=began
    )
    return Occupant(replace(pod, **changes), unsaved=unsaved)  # type: ignore[arg-type]


def eviction(*names: str, node: str = "a") -> Eviction:
    return Eviction(node, tuple(trial(name) for name in names), 0)


X, GOING = trial("x"), trial("x", terminating=True)
ASKED = record_answer(PreemptionHistory(), "urgent", eviction("x", "y"), NOW)
STANDS = {
    "retried before the scheduler has deleted them": (ASKED, "urgent", NOW + 1.0, {"x": X, "y": trial("y")}, ("x", "y")),
    "one is still terminating": (ASKED, "urgent", NOW + 30.0, {"x": GOING}, ("x",)),
    "its time to end is nearly over": (ASKED, "urgent", NOW + 30.0, {"x": trial("x", terminating=True, deletion_deadline=NOW + 31.0)}, ("x",)),
    "its node is lost": (ASKED, "urgent", NOW + 30.0 + OVERDUE_SECONDS, {"x": trial("x", terminating=True, deletion_deadline=NOW + 30.0)}, None),
    "all have ended: another pod took the capacity": (ASKED, "urgent", NOW + 1.0, {}, None),
    "they were never deleted": (ASKED, "urgent", NOW + DELETION_SECONDS, {"x": X}, None),
    "another pod asks": (ASKED, "other", NOW + 1.0, {"x": GOING}, None),
    "no earlier answer": (PreemptionHistory(), "urgent", NOW, {"x": GOING}, None),
}  # fmt: skip


@pytest.mark.parametrize(("history", "preemptor", "now", "there", "left"), STANDS.values(), ids=STANDS.keys())
def test_an_answer_is_pending_while_its_victims_terminate(
    history: PreemptionHistory, preemptor: str, now: float, there: Mapping[str, Occupant], left: tuple[str, ...] | None
) -> None:
    answer = pending_answer(history, preemptor, {"a": there}.__getitem__, now)
    assert (answer and answer.victims) == left


AGES = {"started recently": (10.0, True), "long ago": (60.0, False), "at its gate": (None, False), "a clock a little ahead": (-5.0, True), "a clock that is wrong": (-3600.0, False)}  # fmt: skip


@pytest.mark.parametrize(("age", "young"), AGES.values(), ids=AGES.keys())
def test_a_trial_that_started_recently_is_marked(age: float | None, young: bool) -> None:
    assert (
        mark_just_started(trial("x", None if age is None else NOW - age), NOW, PreemptionLimits()).just_started == young
    )


def test_a_trial_that_started_recently_is_preempted_only_without_an_alternative() -> None:
    young, old = replace(trial("young"), just_started=True), trial("old", unsaved=500.0)
    for there, gone in (((young, old), "old"), ((young,), "young")):
        known = {one.pod.uid: one for one in there}
        proposal = Proposal(NodeView("a", (), None), ("young",), 0, known)
        chosen, _ = choose(Preemptor(PodNeed(1), 1000), [proposal], NOW)
        assert chosen is not None
        assert [one.pod.uid for one in chosen.victims] == [gone]


BUDGET = {
    "no victims": ((), 1, None),
    "a set that is larger than the limit, alone": ((), 9, None),
    "within": (((NOW - 5.0, 2),), 1, None),
    "over it": (((NOW - 5.0, 3),), 1, "retry in 55 s"),
    "the first of them is enough": (((NOW - 50.0, 1), (NOW - 5.0, 2)), 1, "retry in 10 s"),
    "all of them have to pass": (((NOW - 50.0, 1), (NOW - 5.0, 2)), 3, "retry in 55 s"),
    "larger than the limit: allowed without recent victims": (((NOW - 50.0, 1), (NOW - 5.0, 2)), 4, "retry in 55 s"),
    "a minute is over": (((NOW - MINUTE, 3),), 1, None),
}  # fmt: skip


@pytest.mark.parametrize(("evictions", "wanted", "expected"), BUDGET.values(), ids=BUDGET.keys())
def test_preemptions_per_minute_are_limited(
    evictions: tuple[tuple[float, int], ...], wanted: int, expected: str | None
) -> None:
    refusal = limit_refusal(
        PreemptionHistory(evictions=evictions), eviction(*map(str, range(wanted))), NOW, PreemptionLimits(per_minute=3)
    )
    assert (refusal is None) == (expected is None)
    if refusal is not None and expected is not None:
        assert refusal.code == "EvictionLimitReached"
        assert expected in refusal.message


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 4)), max_size=40), st.integers(4, 8))
def test_no_minute_exceeds_the_limit(asked: list[tuple[float, int]], limit: int) -> None:
    """A refused preemption is allowed at the reported time if there are no others in the meantime."""
    history, now, went = PreemptionHistory(), 0.0, []
    for pause, count in asked:
        now += pause
        one = eviction(*(f"{now}-{n}" for n in range(count)))
        refusal = limit_refusal(history, one, now, PreemptionLimits(per_minute=limit))
        if refusal is None:
            history = record_answer(history, f"{len(went)}", one, now)
            went.append((now, count))
        else:
            later = now + float(refusal.message.rsplit("retry in ", 1)[1].removesuffix(" s.")) + 1.0
            assert limit_refusal(history, one, later, PreemptionLimits(per_minute=limit)) is None
        assert sum(n for at, n in went if now - at < MINUTE) <= limit


class Cluster:
    """The caches, metrics and answers of one extender, and a scheduler that asks for one pod after another."""

    def __init__(self, **limits: float) -> None:
        api, self.now = cast(Api, None), NOW
        self.pods = WatchCache(api, Selection(PODS), parse_pod)
        self.node_cache = NodeCache(
            Watches(
                WatchCache(api, Selection(GPUNODES), parse_gpunode),
                self.pods,
                WatchCache(api, Selection(LEASES), Heartbeats(lambda: self.now).parse),
                WatchCache(api, Selection(TRIALS), parse_trial),
            ),
            namespace="podium-system",
            clock=lambda: self.now,
        )
        self.metrics = Metrics()
        self.preempt_verb = PreemptVerb(self.node_cache, self.metrics, 60.0, PreemptionLimits(**limits))  # type: ignore[arg-type]

    def pod(self, name: str, node: str = "a", **meta: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "uid": name, "labels": {"podium.dev/trial": name}, **meta},
            "spec": {
                "nodeName": node,
                "priority": -1 if node else 1000,
                "containers": [{"name": "c", "resources": {"requests": {"podium.dev/gpu": "1"}}}],
            },
            "status": {"phase": "Running"},
        }

    def has(self, name: str, **meta: str) -> None:
        seen = parse_pod(self.pod(name, **meta))
        before, self.pods._items["", name] = self.pods.get("", name), seen
        self.pods._notify(("", name), before, seen)

    def lost(self, name: str) -> None:
        self.pods._notify(("", name), self.pods._items.pop(("", name)), None)

    def ask(self, preemptor: str, **victims: str) -> dict[str, list[str]]:
        """Return the victims of the response by node, for the proposed victims by node."""
        nodes = {node: {"Pods": [{"UID": uid} for uid in uids.split()]} for node, uids in victims.items()}
        body = PreemptArgs.model_validate({"Pod": self.pod(preemptor, ""), "NodeNameToMetaVictims": nodes})
        answer = self.preempt_verb.answer(body).node_name_to_meta_victims
        return {node: [pod.uid for pod in victims.pods] for node, victims in answer.items()}

    def counted(self, code: str) -> float:
        return self.metrics.registry.get_sample_value("podium_extender_preemptions_total", {"code": code}) or 0.0


def test_a_retried_pod_preempts_no_further_trial() -> None:
    cluster = Cluster()
    for name in "xy":
        cluster.has(name)
    assert cluster.ask("urgent", a="x") == {"a": ["x"]}
    cluster.has("x", deletionTimestamp="2026-11-22T00:00:00Z")
    cluster.now += 20.0
    assert cluster.ask("urgent", a="y") == {"a": ["x"]}
    assert cluster.ask("urgent", b="z") == {}, "the end of x on another node wakes it"
    assert cluster.counted("PreemptionInProgress") == 2
    cluster.lost("x")
    assert cluster.ask("urgent", a="y") == {"a": ["y"]}, "another pod took the capacity"
    assert cluster.counted("Evicted") == 2


def test_many_important_pods_are_admitted_at_a_limited_rate() -> None:
    cluster = Cluster(per_minute=2)
    for name in "wxyz":
        cluster.has(name)
    assert [cluster.ask(f"urgent-{name}", a=name) for name in "wxyz"] == [{"a": ["w"]}, {"a": ["x"]}, {}, {}]
    assert cluster.counted("EvictionLimitReached") == 2
    cluster.now += MINUTE
    assert cluster.ask("urgent-y", a="y") == {"a": ["y"]}
