"""The parts of the runtime: real convolutions, shared memory, core sets, workers that end with their session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import correlate

from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import PeriodicTask
from podium_realtime.runtime import cuda
from podium_realtime.runtime.arena import Arena, size_of
from podium_realtime.runtime.compare import Candidate
from podium_realtime.runtime.convnet import ConvNet, NetSpec, convolve, max_pool
from podium_realtime.runtime.cpu import CpuSession, CpuTask, core_sets
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.runtime.worker import WHOLE
from podium_realtime.scheduling.pool import StreamPriority, context_pool
from podium_realtime.scheduling.work import Job, ReadyStage, Work

RANDOM = np.random.default_rng(0)
SMALL = NetSpec("small", size=16, width=4)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_is_scipys(stride: int) -> None:
    x = RANDOM.standard_normal((3, 8, 8)).astype(np.float32)
    weights = RANDOM.standard_normal((5, 3, 3, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    want = np.stack([correlate(padded, kernel, mode="valid")[0] for kernel in weights])[:, ::stride, ::stride]
    np.testing.assert_allclose(convolve(x, weights, stride), want, rtol=1e-4, atol=1e-4)


def test_pooling_takes_the_largest_of_four() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    assert max_pool(x).tolist() == [[[5.0, 7.0], [13.0, 15.0]]]


@pytest.mark.parametrize("branched", [False, True])
def test_a_network_is_the_same_everywhere_and_its_graph_is_sound(branched: bool) -> None:
    spec = NetSpec("n", size=16, width=8, branched=branched)
    one, other = ConvNet(spec), ConvNet(spec)
    x = RANDOM.standard_normal(one.input_shape).astype(np.float32)
    np.testing.assert_array_equal(one.whole(x), other.whole(x))
    assert one.whole(x).shape == (10,)
    assert np.abs(one.whole(x)).max() > 0
    assert one.network.work == pytest.approx(1.0)
    assert len(one.network.stages[-1].after) == (2 if branched else 1)


def test_an_arena_computes_stage_by_stage_what_the_network_does() -> None:
    net = ConvNet(SMALL)
    arena = Arena.private(net)
    arena.input[...] = RANDOM.standard_normal(net.input_shape)
    arena.run_whole()
    np.testing.assert_array_equal(arena.outputs[-1], net.whole(arena.input))
    assert size_of(net) == 4 * (arena.input.size + sum(output.size for output in arena.outputs))


@pytest.mark.parametrize(
    ("contexts", "factor", "cores", "want"),
    [
        (2, 1.0, (0, 1), ((0,), (1,))),
        (2, 2.0, (4, 7), ((4, 7), (4, 7))),
        (3, 1.5, (0, 1, 2, 3), ((0, 1), (2, 3), (0, 1))),
    ],
)
def test_core_sets(contexts: int, factor: float, cores: tuple[int, ...], want: tuple[tuple[int, ...], ...]) -> None:
    assert core_sets(context_pool(len(cores), contexts, factor), cores) == want


def test_more_cores_than_there_are() -> None:
    with pytest.raises(RealtimeError, match="context 0: sms: asks for 68 cores") as error:
        core_sets(context_pool(68, 1), (0, 1))
    assert error.value.code == "TooFewCores"


def test_a_size_that_cannot_be_halved() -> None:
    with pytest.raises(RealtimeError, match="network n: size: 12 cannot be halved three times"):
        NetSpec("n", size=12)


def test_an_unknown_policy() -> None:
    with pytest.raises(RealtimeError, match="--policy"):
        Candidate.named("fastest")


def test_workers_answer_each_order_once_and_end_with_the_session() -> None:
    pool = context_pool(1, 1, 1.0, high=0, low=1)
    with CpuSession([CpuTask("a", SMALL), CpuTask("b", SMALL)], pool) as session:
        for number, (task, stage) in enumerate([("a", 0), ("a", 1), ("b", WHOLE)]):
            session.order(0, 0, number, task, stage)
        done = []
        while len(done) < 3:
            done += session.wait(10.0)
        assert [one.number for one in done] == [0, 1, 2]
        assert all(one.began <= one.ended for one in done)
        assert session.wait(0.0) == []
        np.testing.assert_array_equal(session.output("b"), ConvNet(SMALL).whole(session.input("b")))
        with pytest.raises(RealtimeError, match="use a policy without batches"):
            session.submit(_batch_of_two())
        assert session.recreate(0, 0) > 0.0
        workers = session.processes()
    assert workers
    assert all(process.poll() is not None for process in workers)


def test_a_dead_worker_ends_the_run_with_a_sentence() -> None:
    with CpuSession([CpuTask("a", SMALL)], context_pool(1, 1, 1.0, high=0, low=1)) as session:
        (process,) = session.processes()
        process.kill()
        process.wait()
        with pytest.raises(RealtimeError, match="a worker ended") as error:
            session.order(0, 0, 0, "a", 0)
        assert error.value.code == "WorkerFailed"
        with pytest.raises(RealtimeError, match="a worker ended"):
            session.wait(10.0)


def test_arenas_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium_realtime.runtime.cpu.SHARED_MEMORY", Path("/proc"))  # has no room at all
    with pytest.raises(RealtimeError, match="run fewer tasks") as error:
        CpuSession([CpuTask("a", SMALL)], context_pool(1, 1))
    assert error.value.code == "NoSharedMemory"


def test_neighbours_of_a_profile_leave_the_measured_arena_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = context_pool(1, 2, 2.0, high=0, low=1)
    tasks = [CpuTask("a", SMALL), CpuTask("b", SMALL)]
    orders: list[tuple[int, str]] = []
    give = CpuSession.order

    def order(session: CpuSession, context: int, stream: int, number: int, task: str, stage: int) -> None:
        orders.append((context, task))
        give(session, context, stream, number, task, stage)

    with CpuSession(tasks, pool) as session:
        monkeypatch.setattr(CpuSession, "order", order)
        (profile, *_) = profile_stages(session, tasks, pool)["small"]
    assert profile.sms == (1,)
    measured, company = ({task for context, task in orders if context == number} for number in range(2))
    assert measured
    assert company
    assert not measured & company


@pytest.mark.parametrize(("cores", "contexts"), [(1, 1), (2, 2), (16, 16)])
def test_ours_uses_every_core(cores: int, contexts: int) -> None:
    pool = Candidate.named("ahead").pool(cores, 4)
    assert len(pool) == contexts
    assert {len(found) for found in core_sets(pool, range(cores))} == {1}


def test_a_broken_cuda_installation_is_a_reason_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libcudart.so.13: wrong ELF class")

    monkeypatch.setattr("podium_realtime.runtime.cuda.importlib.import_module", broken)
    found = cuda.availability()
    assert (found.runs, found.code) == (False, "Broken")
    assert "wrong ELF class" in found.message


def _batch_of_two() -> Work:
    network = ConvNet(SMALL).network
    jobs = [Job(PeriodicTask(name, network, 1.0, 1.0), 0, 0.0, 1.0, (1.0,) * len(network.stages)) for name in "ab"]
    stages = tuple(ReadyStage(job, 0, 0.0, False, 4) for job in jobs)
    return Work(7, stages, 0, 0, StreamPriority.LOW, 0.0, 0.0)
