"""What must hold of every simulated run, whatever the policy, and the workloads to try it on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import Cluster, Costs, moved
from podium_optimisers.engine.outcome import Outcome, Span
from podium_optimisers.engine.simulation import Policy, simulate
from podium_optimisers.engine.workload import Job, Workload

# whole numbers make ties, which is where orders go wrong; eighths are exact, tenths are rounded
eighths = st.one_of(st.integers(1, 9).map(float), st.integers(1, 72).map(lambda n: n / 8))
tenths = st.integers(1, 90).map(lambda n: n / 10)
costs = st.builds(Costs, st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 1.0, 7.0]))


@st.composite
def cases(draw: st.DrawFn, exact: bool = False, most: int = 14) -> tuple[Workload, Cluster, Costs]:
    """`exact`: only times whose sums are not rounded."""
    seconds = eighths if exact else st.one_of(eighths, tenths)
    cluster = Cluster(draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    job = st.tuples(
        st.one_of(st.just(0.0), seconds),
        seconds,
        st.integers(1, cluster.gpus),
        st.sampled_from("ab"),
        st.sampled_from("xyz"),
    )
    drawn = draw(st.lists(job, min_size=1, max_size=most))
    jobs = [Job(f"j{i}", at, long, wide, user, group) for i, (at, long, wide, user, group) in enumerate(drawn)]
    return Workload.of(jobs), cluster, draw(costs)


def feasible(outcome: Outcome, cluster: Cluster, charged: Costs) -> None:
    """No GPU twice at once, all work done once, every restart and move charged, figures that agree with the spans."""
    spans = _by_job(outcome)
    _no_double_booking(outcome, cluster)
    for row in range(len(outcome.workload)):
        mine = spans[row]
        assert mine[0].start == outcome.start[row] >= outcome.workload.arrival[row]
        assert mine[-1].end == outcome.finish[row]
        worked = sum(span.end - span.ready for span in mine)
        np.testing.assert_allclose(worked, outcome.workload.duration[row], rtol=1e-9, atol=1e-9)
        assert len(mine) == outcome.preemptions[row] + 1
        assert mine[0].ready == mine[0].start
        moves = 0
        for before, after in pairwise(mine):
            assert before.end <= after.start
            went = moved(before.place, after.place)
            moves += went
            due = charged.migration if went else charged.restart
            assert after.ready == min(after.start + due, after.end)
        assert moves == outcome.migrations[row]
        assert all(_width(span) == outcome.workload.gpus[row] for span in mine)
    spent = sum((span.ready - span.start) * _width(span) for span in outcome.spans)
    np.testing.assert_allclose(outcome.overhead, spent, atol=1e-9)
    assert np.all(outcome.completion >= outcome.workload.duration * (1 - 1e-12))
    assert 0.0 < outcome.utilisation <= 1.0 + 1e-9


def work_conserving(outcome: Outcome, cluster: Cluster) -> None:
    """At no time does a job wait that would fit into what is free."""
    spans = _by_job(outcome)
    instants = sorted({*outcome.workload.arrival.tolist(), *(s.start for s in outcome.spans), *outcome.finish.tolist()})
    for before, after in pairwise(instants):
        middle = 0.5 * (before + after)
        if not before < middle < after:
            continue
        held = sum(_width(span) for span in outcome.spans if span.start <= middle < span.end)
        for row, arrival in enumerate(outcome.workload.arrival):
            waits = arrival <= before and outcome.finish[row] >= after
            if waits and not any(span.start <= middle < span.end for span in spans[row]):
                assert outcome.workload.gpus[row] > cluster.gpus - held, f"job {row} waits at {middle} though it fits"


def deterministic(workload: Workload, cluster: Cluster, policy: Policy, charged: Costs) -> Outcome:
    """Two runs of the same policy agree to the bit; the recorded one is returned."""
    first = simulate(workload, cluster, policy, charged, record=True)
    again = simulate(workload, cluster, policy, charged)
    assert first.finish.tobytes() == again.finish.tobytes()
    assert first.start.tobytes() == again.start.tobytes()
    assert (first.events, first.overhead) == (again.events, again.overhead)
    return first


def _by_job(outcome: Outcome) -> dict[int, list[Span]]:
    spans: dict[int, list[Span]] = {row: [] for row in range(len(outcome.workload))}
    for span in outcome.spans:
        spans[span.job].append(span)
    return spans


def _width(span: Span) -> int:
    return sum(bits.bit_count() for _, bits in span.place)


def _no_double_booking(outcome: Outcome, cluster: Cluster) -> None:
    busy: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for span in outcome.spans:
        for node, bits in span.place:
            assert 0 <= node < cluster.nodes
            assert 0 < bits < 1 << cluster.gpus_per_node
            for gpu in range(cluster.gpus_per_node):
                if bits >> gpu & 1:
                    busy.setdefault((node, gpu), []).append((span.start, span.end))
    for stretches in busy.values():
        for (_, end), (start, _) in pairwise(sorted(stretches)):
            assert end <= start, "one GPU was given to two jobs at once"
