"""Queues on the simulated system: GPU-seconds by weight, borrowing and return, quotas. Every plan is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from simulated import AT_ONCE, curve, job

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.snapshot import Costs
from podium_core.planning.slots.slot_reclaim import MIN_STAY_REQUEUES
from podium_core.testing.builders import change_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob
from podium_simulator.system.results.fairness import jain_index
from podium_simulator.system.results.outcome import Outcome

END = 1500.0
SLICE = 30.0  # the shortest time slice between queues
SWITCH = 0.4  # one suspension and one resumption


def search(queue: str, trials: int = 8, created: float = 0.0, end: float = END) -> SimJob:
    """A search that has more training than time, in a queue of its own."""
    of = job(*[curve(*[0.1] * 50, gap=30.0)] * trials, name=queue, queue=queue, created=created, deadline=end)
    return replace(of, method=Method())


def gpu_seconds(outcome: Outcome, start: float = 0.0, end: float = END) -> Mapping[str, float]:
    """GPU-seconds of each job in a period; the tests name a job as its queue."""
    used: dict[str, float] = {}
    for span in outcome.spans:
        name = span.trial.name.rsplit("-", 1)[0]
        used[name] = used.get(name, 0.0) + max(0.0, min(span.end, end) - max(span.start, start))
    return used


def run(nodes: tuple[NodeSpec, ...], jobs: list[SimJob], *queues: QueueView) -> Outcome:
    outcome = simulate(Scenario(nodes, tuple(jobs), AT_ONCE, queues=queues), checked=True)
    assert outcome.broken == ()
    return outcome


@pytest.mark.parametrize(("gpus", "slots"), [(2, 6), (1, 6)])
def test_gpu_seconds_follow_the_weights_within_five_percent(gpus: int, slots: int) -> None:
    weights = {"one": 1.0, "two": 2.0, "three": 3.0}
    queues = [QueueView(name, weight) for name, weight in weights.items()]
    outcome = run((NodeSpec("a", gpus, slots),), [search(name) for name in weights], *queues)
    used = gpu_seconds(outcome)
    total = sum(used.values())
    assert total >= 0.97 * gpus * END, "no GPU idles while a queue may use it"
    for name, weight in weights.items():
        assert used[name] / total == pytest.approx(weight / 6.0, rel=0.05)
    assert (jain_index([used[name] / weight for name, weight in weights.items()]) or 0.0) > 0.998


def test_an_idle_queues_part_is_lent_and_returns_within_one_time_slice() -> None:
    queues = [QueueView(name) for name in ("early", "late")]
    jobs = [search("early", trials=6), search("late", trials=3, created=600.0)]
    outcome = run((NodeSpec("a", 2, 4),), jobs, *queues)
    assert gpu_seconds(outcome, end=600.0)["early"] >= 0.97 * 2 * 600.0
    first = min(span.start for span in outcome.spans if span.trial.name.startswith("late"))
    at_gate = 600.0 + AT_ONCE.place + AT_ONCE.gate
    assert first <= at_gate + SLICE + SWITCH
    used = gpu_seconds(outcome, start=first)
    assert used["early"] == pytest.approx(used["late"], rel=0.05), (
        "and it does not make up for the time when it was idle"
    )


def test_a_queue_never_exceeds_its_quota_without_borrowing() -> None:
    strict = QueueView("strict", gpus=1, borrowing=0)
    outcome = run((NodeSpec("a", 2, 4),), [search("strict", end=300.0)], strict)
    assert gpu_seconds(outcome, end=300.0)["strict"] <= 300.0
    lent = run((NodeSpec("a", 2, 4),), [search("strict", end=300.0)], replace(strict, borrowing=1))
    assert gpu_seconds(lent, end=300.0)["strict"] >= 0.97 * 600.0


def test_a_budget_ends_the_gpu_time_of_a_queue() -> None:
    queues = [QueueView("poor", weight=5.0, budget=100.0), QueueView("rich")]
    outcome = run((NodeSpec("a", 1, 4),), [search(queue.name, 3, end=600.0) for queue in queues], *queues)
    used = gpu_seconds(outcome, end=600.0)
    assert 100.0 <= used["poor"] <= 100.0 + 2 * SLICE
    assert used["rich"] >= 600.0 - used["poor"] - 3 * SLICE


def test_a_queue_that_finds_no_slot_gets_some_and_then_its_share() -> None:
    """Two GPUs with two slots are full when the third queue comes. Trials that wait give it a slot of theirs."""
    queues = [QueueView(name) for name in ("one", "two", "late")]
    early = [search(name, trials=4) for name in ("one", "two")]
    moving = [
        replace(one, view=change_job(one.view, checkpointable=True, checkpoint_scope="anywhere"), checkpoints=True)
        for one in early
    ]
    late = search("late", trials=4, created=300.0)
    outcome = run((NodeSpec("a", 2, 2),), [*moving, late], *queues)
    first = min(span.start for span in outcome.spans if span.trial.name.startswith("late"))
    assert first <= 300.0 + MIN_STAY_REQUEUES * Costs().requeue + 4 * SLICE
    used = gpu_seconds(outcome, start=first)
    assert used["late"] / sum(used.values()) == pytest.approx(1.0 / 3.0, rel=0.15)
    stuck = run((NodeSpec("a", 2, 2),), [*early, late], *queues)
    assert "late" not in gpu_seconds(stuck), "trials that would lose their work keep their slots until they end"


def test_a_search_of_higher_priority_has_the_gpus_of_its_queue_until_it_ends() -> None:
    """It arrives when the other search has all slots: it gets one for each GPU, and the next queue keeps its share."""
    early = search("low", trials=8)
    urgent = job(*[curve(*[0.1] * 10, gap=30.0)] * 2, name="high", queue="team", created=300.0, priority=10)
    other = replace(early, view=change_job(early.view, queue="team", checkpointable=True, checkpoint_scope="anywhere"))
    jobs = [replace(other, checkpoints=True), replace(urgent, method=Method()), search("rival")]
    outcome = run((NodeSpec("a", 2, 4),), jobs, QueueView("team"), QueueView("rival"))
    ends = {end.job.name: end.ended for end in outcome.jobs}
    assert ends["high"] <= 300.0 + 2 * 300.0 + 4 * SLICE, "two trials of 300 s share the one GPU of their queue"
    used = gpu_seconds(outcome, start=330.0 + SLICE, end=ends["high"])
    assert used["low"] <= 2 * SLICE
    assert used["rival"] == pytest.approx(used["high"], rel=0.1)
    assert gpu_seconds(outcome, start=ends["high"])["low"] > 0.0
