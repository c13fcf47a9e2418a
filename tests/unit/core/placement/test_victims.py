"""Choice of victims: one node, only trials of lower priority, the least loss, and an answer while one is possible."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.victims import Occupant, Preemptor, Proposal, choose
from podium_core.placement.views import NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

NOW = 1000.0
GIB = 2**30
SHARE = {"podium.dev/gpu": 1000}
URGENT = Preemptor(PodNeed(1), priority=100)


def occupant(
    uid: str,
    *,
    unsaved: float = 0.0,
    rank: int | None = None,
    priority: int = 0,
    gpus: int = 1,
    gib: int = 0,
    **pod: object,
) -> Occupant:
    requests = {"podium.dev/gpu": 1000 * gpus}
    need = PodNeed(gpus, gib * GIB or None)
    placed = PlacedPod(uid, "a", need, ("default", uid), priority, requests, exchangeable=True)
    return Occupant(replace(placed, **pod), rank, unsaved)  # type: ignore[arg-type]


def node(name: str, *gpus: str, gib: int = 20, **changes: object) -> NodeView:
    """A GPU for each word, whose letters are the trials on it, each with `gib` declared of 80."""
    readings = tuple(
        change_reading(
            make_reading(
                f"{name}{i}",
                product="H100",
                memory_total=80 * GIB,
                memory_reserved=len(word) * gib * GIB,
                trials=len(word),
                pods=tuple(word),
            ),
            **changes,  # type: ignore[arg-type]
        )
        for i, word in enumerate(gpus)
    )
    return NodeView(name, readings, NOW)


def proposal(
    name: str, victims: str, known: list[Occupant], *, violations: int = 0, view: NodeView | None = None
) -> Proposal:
    return Proposal(view or NodeView(name, (), None), tuple(victims), violations, {one.pod.uid: one for one in known})


def moved(victims: str, *, other: bool = False, **gib: int) -> Proposal:
    """One GPU of 80 GiB with these trials, all moved off when they are suspended; the first would lose least."""
    known = [occupant(uid, unsaved=float(number), gib=size) for number, (uid, size) in enumerate(gib.items())]
    known = [replace(one, pod=replace(one.pod, need=replace(one.pod.need, memory_stays=False))) for one in known]
    largest = max(gib.values()) * GIB
    sitting = "".join(gib) + ("X" if other else "")
    return proposal("a", victims, known, view=node("a", sitting, memory_reserved=largest, memory_movable=largest))


def chosen(preemptor: Preemptor, *proposals: Proposal) -> tuple[str, str] | None:
    eviction, refusals = choose(preemptor, proposals, NOW)
    assert (eviction is None) == (len(refusals) == len(proposals))
    return None if eviction is None else (eviction.node, "".join(one.pod.uid for one in eviction.victims))


A, B, C = occupant("A", unsaved=100.0), occupant("B", unsaved=10.0), occupant("C", unsaved=50.0)
MEMORY = Preemptor(PodNeed(1, 40 * GIB), 100)
CASES = [
    ("as proposed", URGENT, [proposal("a", "A", [A])], ("a", "A")),
    ("another loses less", URGENT, [proposal("a", "A", [A, B, C])], ("a", "B")),
    ("another node loses less", URGENT, [proposal("a", "A", [A]), proposal("b", "C", [C])], ("b", "C")),
    ("nodes tie by name", URGENT, [proposal("b", "C", [C]), proposal("a", "C", [C])], ("a", "C")),
    (
        "a good trial's work counts for more",
        URGENT,
        [proposal("a", "A", [occupant("A", unsaved=10.0, rank=1), occupant("B", unsaved=12.0, rank=9)])],
        ("a", "B"),
    ),
    (
        "nothing to lose: the worst rank goes",
        URGENT,
        [proposal("a", "A", [occupant("A", rank=1), occupant("B", rank=9), occupant("C", rank=4)])],
        ("a", "B"),
    ),
    (
        "priority comes before loss",
        URGENT,
        [proposal("a", "A", [occupant("A", unsaved=99.0, priority=-5), B])],
        ("a", "A"),
    ),
    ("fewest budgets broken", URGENT, [proposal("a", "B", [B], violations=1), proposal("b", "A", [A])], ("b", "A")),
    ("a budget that counts them: as proposed", URGENT, [proposal("a", "A", [A, B], violations=1)], ("a", "A")),
    ("equal priority is not lower", URGENT, [proposal("a", "A", [occupant("A", priority=100)])], None),
    ("no trial", URGENT, [proposal("a", "A", [occupant("A", trial=None)])], None),
    ("no trial knows it", URGENT, [proposal("a", "X", [A, B])], None),
    (
        "a trial leaves as much room as the other pods",
        URGENT,
        [proposal("a", "X", [occupant("X", trial=None), A])],
        ("a", "A"),
    ),
    (
        "no trial leaves as much room",
        URGENT,
        [proposal("a", "X", [occupant("X", trial=None, requests=SHARE | {"cpu": 1}), A])],
        None,
    ),
    ("the other node is usable", URGENT, [proposal("a", "X", []), proposal("b", "A", [A])], ("b", "A")),
    (
        "where it stands matters",
        URGENT,
        [proposal("a", "A", [replace(A, pod=replace(A.pod, exchangeable=False)), B])],
        ("a", "A"),
    ),
    ("where the new one stands matters", replace(URGENT, exchangeable=False), [proposal("a", "A", [A, B])], ("a", "A")),
    (
        "a terminating pod frees no capacity",
        URGENT,
        [proposal("a", "A", [A, replace(B, pod=replace(B.pod, terminating=True))])],
        ("a", "A"),
    ),
    ("several", Preemptor(PodNeed(2), 100), [proposal("a", "AC", [A, B, C])], ("a", "BC")),
    (
        "one large for two small",
        Preemptor(PodNeed(2), 100),
        [proposal("a", "AC", [A, C, occupant("D", gpus=2)])],
        ("a", "D"),
    ),
    # 1.38: no victims are proposed where only the extender knows what is missing
    ("none needed", URGENT, [proposal("a", "", [A])], ("a", "")),
    (
        "memory is what is missing",
        MEMORY,
        [proposal("a", "", [occupant("A", gib=20, unsaved=5.0), occupant("B", gib=30)], view=node("a", "AB", gib=25))],
        ("a", "B"),
    ),
    (
        "of use only on the same GPU",
        MEMORY,
        [
            proposal(
                "a",
                "A",
                [occupant(uid, gib=30, unsaved=loss) for uid, loss in (("A", 1.0), ("B", 5.0), ("C", 7.0), ("D", 9.0))],
                view=node("a", "AB", "CD", gib=30),
            )
        ],
        ("a", "A"),
    ),
    (
        "two must leave one GPU",
        Preemptor(PodNeed(1, 70 * GIB), 100),
        [
            proposal(
                "a",
                "A",
                [occupant(u, gib=30, unsaved=w) for u, w in zip("ABCD", (1, 9, 2, 3), strict=True)],
                view=node("a", "AB", "CD", gib=30),
            )
        ],
        ("a", "CD"),
    ),
    (
        "no use on a broken GPU",
        URGENT,
        [proposal("a", "A", [A], view=node("a", "A", health="Unhealthy")), proposal("b", "C", [C])],
        ("b", "C"),
    ),
    # trials that cuda-checkpoint moves off: the GPU keeps room for the largest of them
    ("while one large is there, room stays taken", MEMORY, [moved("A", A=60, B=60, C=50)], ("a", "ABC")),
    ("the largest alone is in the way", MEMORY, [moved("A", A=60, B=20, C=10)], ("a", "A")),
    ("the small ones are not", MEMORY, [moved("B", A=60, B=20, C=10)], ("a", "A")),
    ("another pod may be the largest", MEMORY, [moved("A", other=True, A=60, B=20)], None),
]


@pytest.mark.parametrize(("why", "preemptor", "proposals", "expected"), CASES, ids=[case[0] for case in CASES])
def test_chosen_victims(
    why: str, preemptor: Preemptor, proposals: list[Proposal], expected: tuple[str, str] | None
) -> None:
    assert chosen(preemptor, *proposals) == expected
    assert chosen(preemptor, *reversed(proposals)) == expected, "the order of the nodes changes nothing"


@pytest.mark.parametrize(
    ("given_proposal", "code"),
    [
        (proposal("a", "X", [A]), "VictimNotPreemptible"),
        (proposal("a", "A", [A], view=node("a", "A", health="Unhealthy")), "Unhealthy"),
        (proposal("a", "", [], view=node("a", "A", gib=60)), "GPUMemoryReserved"),
    ],
)
def test_reasons_without_victims(given_proposal: Proposal, code: str) -> None:
    eviction, refusals = choose(MEMORY, [given_proposal], NOW)
    assert eviction is None
    assert refusals["a"].code == code
    assert refusals["a"].message.endswith(".")


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_properties_of_any_proposal(seed: int) -> None:
    """Victims are on their node, allowed, leave as much room, and lose no more than what was proposed."""
    chance = random.Random(seed)
    proposals = []
    for name in "abc"[: chance.randint(1, 3)]:
        known = [
            occupant(
                f"{name}{i}",
                unsaved=float(chance.randrange(50)),
                rank=chance.choice([None, 1, 5]),
                priority=chance.choice([0, 0, 10, 100]),
                gpus=chance.choice([1, 1, 2]),
                trial=chance.choice([("default", "t"), ("default", "t"), None]),
                exchangeable=chance.random() < 0.9,
                terminating=chance.random() < 0.1,
            )
            for i in range(chance.randrange(7))
        ]
        victims = tuple(one.pod.uid for one in chance.sample(known, min(len(known), chance.randint(1, 3))))
        view = NodeView(name, (), None)
        proposals.append(Proposal(view, victims, chance.choice([0, 0, 1]), {one.pod.uid: one for one in known}))
    eviction, refusals = choose(URGENT, proposals, NOW)
    usable = [
        p for p in proposals if all(p.known[uid].pod.trial and p.known[uid].pod.priority < 100 for uid in p.victims)
    ]
    if eviction is None:
        assert not usable
        assert set(refusals) == {p.node.name for p in proposals}
        return
    taken = next(p for p in proposals if p.node.name == eviction.node)
    assert all(one.pod.trial and one.pod.priority < 100 for one in eviction.victims)
    assert {one.pod.uid for one in eviction.victims} <= taken.known.keys()
    assert eviction.violations == taken.violations

    def room(victims: list[Occupant]) -> int:
        return sum(one.pod.requests["podium.dev/gpu"] for one in victims)

    proposed = [taken.known[uid] for uid in taken.victims]
    assert room(list(eviction.victims)) >= room(proposed)
    if taken in usable:
        top = max((one.pod.priority for one in proposed), default=0)
        assert max((one.pod.priority for one in eviction.victims), default=0) <= top
        if max((one.pod.priority for one in eviction.victims), default=0) == top:
            assert sum(one.loss for one in eviction.victims) <= sum(one.loss for one in proposed) + 1e-9
