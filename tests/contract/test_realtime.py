"""Every scheduler keeps the contract on real cores, as it does in the simulation (tests/unit/realtime); every back-end
finishes what it was given, or says that it does not run here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import identical
from podium_realtime.record.invariants import violations
from podium_realtime.record.run import Run
from podium_realtime.runtime import cpu, cuda
from podium_realtime.runtime.convnet import ConvNet, NetSpec
from podium_realtime.runtime.cpu import CpuSession, CpuTask
from podium_realtime.runtime.executive import execute
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.baselines import Naive, SingleStream, naive_pool, single_pool
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.scheduling.work import Outcome

NET = NetSpec("branched", size=16, width=8, branched=True)
TASKS = 3
SCHEDULERS: list[tuple[Policy, tuple[ContextSpec, ...], bool]] = [
    (Sgprs(), context_pool(1, 2, 2.0, high=1, low=1, in_flight=2), False),
    (Daris(), context_pool(1, 1, 1.0, high=0, low=1), False),
    (LaunchAhead(), context_pool(1, 2, 2.0, high=0, low=1, in_flight=1, depth=2), True),
    (Naive(), naive_pool(1, 1, TASKS), False),
    (SingleStream(), single_pool(1, 2), False),
]


@pytest.fixture(scope="module", params=SCHEDULERS, ids=lambda one: one[0].name)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[Policy, bool, CpuSession, Run, tuple[ContextSpec, ...]]]:
    """One second of real inference under each scheduler."""
    policy, pool, shared_queue = request.param
    load = identical(TASKS, ConvNet(NET).network, 20.0, high=1)
    tasks = [CpuTask(task.name, NET) for task in load]
    with CpuSession(tasks, pool) as session:
        profiles = profile_stages(session, tasks[:1], pool, staged=policy.staged, occupied=False)
        run = execute(session, load, pool, profiles, policy, 1.0)
        yield policy, shared_queue, session, run, pool


def test_a_real_run_is_sound(real: tuple[Policy, bool, CpuSession, Run, tuple[ContextSpec, ...]]) -> None:
    policy, shared_queue, _, run, pool = real
    assert run.spans, "nothing ran"
    assert violations(run, pool, policy, shared_queue) == []


def test_what_was_computed_is_the_inference(
    real: tuple[Policy, bool, CpuSession, Run, tuple[ContextSpec, ...]],
) -> None:
    """Stages hop from worker to worker; the result is that of the whole network in one process."""
    _, _, session, run, _ = real
    net = ConvNet(NET)
    finished = {end.job.task.name for end in run.ends if end.outcome in (Outcome.MET, Outcome.LATE)}
    assert finished, "no inference ended within a second"
    for name in finished:
        np.testing.assert_array_equal(session.output(name), net.whole(session.input(name)))


def test_every_release_is_accounted_for(real: tuple[Policy, bool, CpuSession, Run, tuple[ContextSpec, ...]]) -> None:
    run = real[3]
    for number in range(TASKS):
        found = sorted(end.job.number for end in run.ends if end.job.task.name == f"branched-{number:02d}")
        assert found == list(range(len(found)))
        assert found, "a task was never released"


def test_the_cpu_back_end_runs_here() -> None:
    found = cpu.availability()
    assert (found.runs, found.code) == (True, "Available")
    assert "cores" in found.message


def test_the_cuda_back_end_is_honest() -> None:
    """Where it does not run it says so and gives no session; where it does, `bench_realtime.py` uses it."""
    found = cuda.availability()
    if found.runs:
        assert "SMs" in found.message
        return
    assert found.message.startswith("not run: ")
    with pytest.raises(RealtimeError) as error:
        cuda.CudaSession(["a"], single_pool(68, 1))
    assert error.value.code == found.code
