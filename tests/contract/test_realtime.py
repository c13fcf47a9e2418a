"""Contract of real-time schedulers and back-ends on real cores.

Every scheduler satisfies the invariants that tests/unit/realtime checks in simulation. Every back-end runs here, or
reports why it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.task import identical_tasks
from podium_realtime.results.invariants import violations
from podium_realtime.results.trace import ScheduleTrace
from podium_realtime.runtime import cpu, cuda
from podium_realtime.runtime.convnet import ConvNet, ConvNetSpec
from podium_realtime.runtime.cpu import CpuSession, CpuTask
from podium_realtime.runtime.executor import execute
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.scheduling.baselines import Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.jobs import JobOutcome
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs

NET = ConvNetSpec("branched", size=16, width=8, branched=True)
TASKS = 3
SCHEDULERS: list[tuple[SchedulingPolicy, tuple[ContextSpec, ...], bool]] = [
    (Sgprs(), context_pool(1, 2, 2.0, high=1, low=1, in_flight=2), False),
    (Daris(), context_pool(1, 1, 1.0, high=0, low=1), False),
    (LaunchAhead(), context_pool(1, 2, 2.0, high=0, low=1, in_flight=1, depth=2), True),
    (Naive(), naive_pool(1, 1, TASKS), False),
    (SingleStream(), single_pool(1, 2), False),
]


class RealRun(NamedTuple):
    """A finished run on real cores, with the session still open."""

    policy: SchedulingPolicy
    pool: tuple[ContextSpec, ...]
    shared_queue: bool
    session: CpuSession
    trace: ScheduleTrace


@pytest.fixture(scope="module", params=SCHEDULERS, ids=lambda scheduler: scheduler[0].name)
def real_run(request: pytest.FixtureRequest) -> Iterator[RealRun]:
    """Run one second of real inference under each scheduler."""
    policy, pool, shared_queue = request.param
    load = identical_tasks(TASKS, ConvNet(NET).network, 20.0, high=1)
    tasks = [CpuTask(task.name, NET) for task in load]
    with CpuSession(tasks, pool) as session:
        profiles = profile_stages(session, tasks[:1], pool, schedules_stages=policy.schedules_stages, occupied=False)
        trace = execute(session, load, pool, profiles, policy, 1.0)
        yield RealRun(policy, pool, shared_queue, session, trace)


def test_a_real_run_satisfies_the_invariants(real_run: RealRun) -> None:
    assert real_run.trace.executions, "nothing ran"
    assert violations(real_run.trace, real_run.pool, real_run.policy, real_run.shared_queue) == []


def test_staged_execution_computes_the_inference(real_run: RealRun) -> None:
    """Stages run in different workers; the result equals that of the whole network in one process."""
    net = ConvNet(NET)
    results = real_run.trace.jobs
    finished = {result.job.task.name for result in results if result.outcome in (JobOutcome.MET, JobOutcome.LATE)}
    assert finished, "no inference finished within a second"
    for name in finished:
        expected = net.infer(real_run.session.task_input(name))
        np.testing.assert_array_equal(real_run.session.task_output(name), expected)


def test_every_release_has_a_result(real_run: RealRun) -> None:
    for number in range(TASKS):
        name = f"branched-{number:02d}"
        releases = sorted(result.job.number for result in real_run.trace.jobs if result.job.task.name == name)
        assert releases == list(range(len(releases)))
        assert releases, "a task was never released"


def test_the_cpu_back_end_is_available() -> None:
    status = cpu.availability()
    assert (status.available, status.code) == (True, "Available")
    assert "cores" in status.message


def test_the_cuda_back_end_reports_whether_it_is_available() -> None:
    """An unavailable back-end gives a reason and opens no session; `bench_realtime` uses an available one."""
    status = cuda.availability()
    if status.available:
        assert "SMs" in status.message
        return
    assert status.message.startswith("not run: ")
    with pytest.raises(RealtimeError) as error:
        cuda.CudaSession(["a"], single_pool(68, 1))
    assert error.value.code == status.code
