"""Invariants of every simulation, whatever the policy, and strategies for random workloads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts, is_migration
from podium_optimisers.engine.result import GpuAllocation, SimulationResult
from podium_optimisers.engine.simulation import SchedulingPolicy, simulate
from podium_optimisers.engine.workload import BatchJob, Workload

# whole numbers make ties, which orderings must handle; eighths are exact, tenths are rounded
eighths = st.one_of(st.integers(1, 9).map(float), st.integers(1, 72).map(lambda n: n / 8))
tenths = st.integers(1, 90).map(lambda n: n / 10)
any_costs = st.builds(PreemptionCosts, st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 1.0, 7.0]))


@st.composite
def cases(draw: st.DrawFn, exact: bool = False, most: int = 14) -> tuple[Workload, GpuCluster, PreemptionCosts]:
    """Return a random workload with a cluster and costs. `exact`: only times whose sums are exact."""
    seconds = eighths if exact else st.one_of(eighths, tenths)
    cluster = GpuCluster(draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    job = st.tuples(
        st.one_of(st.just(0.0), seconds),
        seconds,
        st.integers(1, cluster.gpus),
        st.sampled_from("ab"),
        st.sampled_from("xyz"),
    )
    drawn = draw(st.lists(job, min_size=1, max_size=most))
    jobs = [BatchJob(f"j{i}", at, long, wide, user, group) for i, (at, long, wide, user, group) in enumerate(drawn)]
    return Workload.of(jobs), cluster, draw(any_costs)


def assert_feasible(result: SimulationResult, cluster: GpuCluster, costs: PreemptionCosts) -> None:
    """Assert that no GPU runs two jobs at once, that all work is done once and that costs are charged.

    The figures of the result must agree with the recorded allocations.
    """
    allocations = _by_job(result)
    _no_double_booking(result, cluster)
    for row in range(len(result.workload)):
        mine = allocations[row]
        assert mine[0].start == result.start[row] >= result.workload.arrival[row]
        assert mine[-1].end == result.finish[row]
        worked = sum(allocation.end - allocation.ready for allocation in mine)
        np.testing.assert_allclose(worked, result.workload.duration[row], rtol=1e-9, atol=1e-9)
        assert len(mine) == result.preemptions[row] + 1
        assert mine[0].ready == mine[0].start
        moves = 0
        for before, after in pairwise(mine):
            assert before.end <= after.start
            went = is_migration(before.placement, after.placement)
            moves += went
            due = costs.migration if went else costs.restart
            assert after.ready == min(after.start + due, after.end)
        assert moves == result.migrations[row]
        assert all(_width(allocation) == result.workload.gpus[row] for allocation in mine)
    spent = sum((allocation.ready - allocation.start) * _width(allocation) for allocation in result.allocations)
    np.testing.assert_allclose(result.overhead, spent, atol=1e-9)
    assert np.all(result.completion >= result.workload.duration * (1 - 1e-12))
    assert 0.0 < result.utilisation <= 1.0 + 1e-9


def assert_work_conserving(result: SimulationResult, cluster: GpuCluster) -> None:
    """Assert that no job waits while it would fit into the free GPUs."""
    allocations = _by_job(result)
    instants = sorted(
        {*result.workload.arrival.tolist(), *(s.start for s in result.allocations), *result.finish.tolist()}
    )
    for before, after in pairwise(instants):
        middle = 0.5 * (before + after)
        if not before < middle < after:
            continue
        held = sum(
            _width(allocation) for allocation in result.allocations if allocation.start <= middle < allocation.end
        )
        for row, arrival in enumerate(result.workload.arrival):
            waits = arrival <= before and result.finish[row] >= after
            if waits and not any(allocation.start <= middle < allocation.end for allocation in allocations[row]):
                assert result.workload.gpus[row] > cluster.gpus - held, f"job {row} waits at {middle} though it fits"


def assert_deterministic(
    workload: Workload, cluster: GpuCluster, policy: SchedulingPolicy, costs: PreemptionCosts
) -> SimulationResult:
    """Assert that two runs of the same policy agree to the bit, and return the recorded one."""
    first = simulate(workload, cluster, policy, costs, record=True)
    again = simulate(workload, cluster, policy, costs)
    assert first.finish.tobytes() == again.finish.tobytes()
    assert first.start.tobytes() == again.start.tobytes()
    assert (first.events, first.overhead) == (again.events, again.overhead)
    return first


def _by_job(result: SimulationResult) -> dict[int, list[GpuAllocation]]:
    allocations: dict[int, list[GpuAllocation]] = {row: [] for row in range(len(result.workload))}
    for allocation in result.allocations:
        allocations[allocation.job].append(allocation)
    return allocations


def _width(allocation: GpuAllocation) -> int:
    return sum(bits.bit_count() for _, bits in allocation.placement)


def _no_double_booking(result: SimulationResult, cluster: GpuCluster) -> None:
    busy: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for allocation in result.allocations:
        for node, bits in allocation.placement:
            assert 0 <= node < cluster.nodes
            assert 0 < bits < 1 << cluster.gpus_per_node
            for gpu in range(cluster.gpus_per_node):
                if bits >> gpu & 1:
                    busy.setdefault((node, gpu), []).append((allocation.start, allocation.end))
    for stretches in busy.values():
        for (_, end), (start, _) in pairwise(sorted(stretches)):
            assert end <= start, "one GPU was given to two jobs at once"
