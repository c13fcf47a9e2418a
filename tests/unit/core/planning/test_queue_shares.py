"""Fair shares of queues as mathematics: the optimiser's result, its properties, whole GPUs, and the window."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podium_core.domain.gpu_queue import QueueShare, QueueUsage, QueueView
from podium_core.planning.queues.fair_shares import (
    HORIZON,
    Claim,
    deserved_gpus,
    fill,
    nominal_gpus,
    whole_gpus,
)
from podium_core.planning.queues.queue_ledger import WINDOW, QueueLedger
from podium_optimisers.sharing.drf import DrfProblem, drf_shares

WEIGHTS = st.floats(0.01, 100.0)
SIZES = st.integers(1, 6)
UNEVEN = (97.99999999999999, 1.0, 29.0, 3.0, 1.0, 1.0)  # whose sum and differences leave 1e-14


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    made = []
    for number in range(draw(SIZES)):
        gpus = draw(st.sampled_from([None, 0, 1, 3, 8]))
        minimum = draw(st.integers(0, 3 if gpus is None else min(3, gpus)))
        queue = QueueView(
            f"q{number}", draw(WEIGHTS), gpus, borrowing=draw(st.sampled_from([None, 0, 2])), minimum=minimum
        )
        used = QueueUsage(draw(st.floats(0, 1e4)), draw(st.floats(0, 1e4)))
        made.append(Claim(replace(queue, usage=used), draw(st.integers(0, 12))))
    return made


@given(
    SIZES.flatmap(lambda n: st.lists(st.tuples(WEIGHTS, st.integers(0, 20)), min_size=n, max_size=n)),
    st.integers(1, 30),
)
def test_without_quotas_the_shares_are_those_of_the_optimiser(queues: list[tuple[float, int]], gpus: int) -> None:
    weights, demands = [w for w, _ in queues], [d for _, d in queues]
    names = [f"q{i}" for i in range(len(queues))]
    problem = DrfProblem.of(names, ["gpus"], [[1.0]] * len(queues), [float(gpus)], weights, [float(d) for d in demands])
    wanted = drf_shares(problem).tasks
    mine = deserved_gpus([Claim(QueueView(n, w), d) for n, w, d in zip(names, weights, demands, strict=True)], gpus)
    assert mine == pytest.approx(list(wanted), rel=1e-6, abs=1e-6)


@given(claims(), st.integers(0, 30))
@example([Claim(QueueView(str(i), w), n) for i, (w, n) in enumerate(zip(UNEVEN, (0, 0, 0, 1, 5, 0), strict=True))], 5)
def test_shares_keep_quotas_and_minima_and_waste_nothing(found: list[Claim], gpus: int) -> None:
    shares = deserved_gpus(found, gpus)
    assert sum(shares) == pytest.approx(min(gpus, sum(claim.most for claim in found)))
    for claim, share in zip(found, shares, strict=True):
        assert -1e-9 <= share <= claim.most + 1e-9
    minima = [min(claim.queue.minimum, claim.by_right) for claim in found]
    if sum(minima) <= gpus:
        assert all(share >= least - 1e-9 for share, least in zip(shares, minima, strict=True))


@given(claims(), st.integers(1, 30))
def test_no_queue_gets_less_than_its_part_of_the_cluster(found: list[Claim], gpus: int) -> None:
    """Sharing incentive: its part by weight of all GPUs, as far as it can use it within its quota."""
    found = [replace(claim, queue=replace(claim.queue, minimum=0)) for claim in found]
    total = sum(claim.queue.weight for claim in found)
    for claim, share in zip(found, deserved_gpus(found, gpus), strict=True):
        assert share >= min(claim.by_right, gpus * claim.queue.weight / total) - 1e-6


@given(claims(), st.integers(1, 30))
def test_a_queue_that_lacks_gpus_does_not_envy_one_of_its_weight(found: list[Claim], gpus: int) -> None:
    found = [
        Claim(replace(claim.queue, gpus=None, borrowing=None, minimum=0, weight=1.0), claim.demand) for claim in found
    ]
    shares = deserved_gpus(found, gpus)
    for claim, share in zip(found, shares, strict=True):
        if share < claim.most - 1e-6:
            assert share >= max(shares) - 1e-6


@given(claims(), st.integers(0, 30))
def test_whole_gpus_leave_no_usable_gpu_over(found: list[Claim], gpus: int) -> None:
    given_out = whole_gpus(found, deserved_gpus(found, gpus), gpus)
    assert sum(given_out) == min(gpus, sum(claim.most for claim in found))
    assert all(0 <= n <= claim.most for n, claim in zip(given_out, found, strict=True))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_gpu_seconds_follow_the_weights_and_no_queue_starves(weights: list[int], gpus: int) -> None:
    """All queues always have trials; the holders change at most once in a time slice.

    A queue waits at most one slice for each queue and 1 / deserved slices more. Its GPU-seconds are never further from
    those that it deserves than one slice of a GPU for each queue.
    """
    queues, slices = [QueueView(f"q{i}", float(w)) for i, w in enumerate(weights)], 400
    ledger, total = QueueLedger(), [0] * len(queues)
    waited = [0] * len(queues)
    part = [gpus * w / sum(weights) for w in weights]
    for tick in range(slices):
        now = HORIZON * tick
        usage = ledger.usage_at(now)
        views = [replace(q, usage=usage.get(q.name, QueueUsage())) for q in queues]
        found = [Claim(view, gpus) for view in views]
        deserved = deserved_gpus(found, gpus)
        held = whole_gpus(found, deserved, gpus)
        ledger = ledger.record(
            now, [QueueShare(q.name, d, d, n, n) for q, d, n in zip(queues, deserved, held, strict=True)]
        )
        total = [a + b for a, b in zip(total, held, strict=True)]
        waited = [0 if n else before + 1 for n, before in zip(held, waited, strict=True)]
        for wait, share in zip(waited, part, strict=True):
            assert wait <= len(queues) + math.ceil(1.0 / share)
        for used, share in zip(total, part, strict=True):
            assert abs(used - share * (tick + 1)) <= len(queues)


def test_a_queue_makes_up_for_at_most_what_it_deserves() -> None:
    behind = QueueView("behind", usage=QueueUsage(deserved=1e6))
    ahead = QueueView("ahead", usage=QueueUsage(used=1e6))
    found = [Claim(behind, 100), Claim(ahead, 100)]
    assert whole_gpus(found, [10.0, 10.0], 20) == [20, 0]
    found.append(Claim(QueueView("even"), 100))
    assert whole_gpus(found, [10.0, 10.0, 10.0], 30) == [20, 0, 10]


def test_what_a_queue_cannot_use_is_lent_by_weight() -> None:
    """Both quotas are used up first; the third queue may not borrow."""
    found = [
        Claim(QueueView("a", 1.0, gpus=2), 20),
        Claim(QueueView("b", 3.0, gpus=2), 20),
        Claim(QueueView("c", 9.0, gpus=2, borrowing=0), 20),
        Claim(QueueView("idle", 100.0, gpus=6), 0),
    ]
    assert deserved_gpus(found, 12) == pytest.approx([2.5, 7.5, 2.0, 0.0])
    assert nominal_gpus([claim.queue for claim in found], 12) == pytest.approx([2.0, 2.0, 2.0, 6.0])


def test_a_minimum_goes_before_weights() -> None:
    found = [Claim(QueueView("small", 0.01, minimum=2), 5), Claim(QueueView("large", 100.0), 5)]
    assert deserved_gpus(found, 4) == pytest.approx([2.0, 2.0])
    assert deserved_gpus(found, 1) == pytest.approx([1.0, 0.0])


def test_a_fill_whose_floor_is_its_cap_stays_there() -> None:
    assert fill(5.0, [1.0, 1.0], [2.0, 0.0], [2.0, 9.0]) == [2.0, 3.0]


def test_the_window_fades_and_the_total_does_not() -> None:
    share = QueueShare("q", nominal=2.0, deserved=2.0, held=3)
    ledger = QueueLedger().record(0.0, [share])
    after = ledger.usage_at(10.0)["q"]
    assert (after.deserved, after.used, after.total) == (
        pytest.approx(20.0, rel=0.01),
        pytest.approx(30.0, rel=0.01),
        30.0,
    )
    steps = QueueLedger().record(0.0, [share]).record(4.0, [share]).usage_at(10.0)["q"]
    assert (steps.used, steps.total) == (pytest.approx(after.used), 30.0), "the number of plans does not matter"
    idle = ledger.record(10.0, [replace(share, deserved=0.0, held=0)]).usage_at(10.0 + WINDOW)["q"]
    assert (idle.used, idle.total) == (pytest.approx(after.used / math.e), 30.0)
    assert ledger.usage_at(-5.0)["q"] == QueueUsage(), "a clock that goes back adds nothing"


def test_a_new_operator_continues_from_what_is_stored() -> None:
    stored = {"q": QueueUsage(5.0, 6.0, 7.0)}
    ledger = QueueLedger().with_stored(stored, 100.0)
    assert ledger.usage_at(100.0) == stored
    later = ledger.record(100.0, [QueueShare("q", 1.0, 1.0, 1, 1)])
    both = later.with_stored({"q": QueueUsage(), "r": QueueUsage(1.0)}, 100.0)
    assert both.usage_at(100.0) == {**stored, "r": QueueUsage(1.0)}
