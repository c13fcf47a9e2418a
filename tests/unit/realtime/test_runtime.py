"""The runtime: convolutions, shared memory, core sets, worker processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import correlate

from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.task import PeriodicTask
from podium_realtime.runtime import cuda
from podium_realtime.runtime.activations import Activations, activation_bytes
from podium_realtime.runtime.convnet import ConvNet, ConvNetSpec, convolve, max_pool
from podium_realtime.runtime.cpu import CpuSession, CpuTask, core_sets
from podium_realtime.runtime.profiling import profile_stages
from podium_realtime.runtime.runner import SchedulerConfig
from podium_realtime.runtime.worker import WHOLE_NETWORK
from podium_realtime.scheduling.jobs import PeriodicJob, ReadyStage, StageBatch
from podium_realtime.scheduling.pool import StreamPriority, context_pool

RANDOM = np.random.default_rng(0)
SMALL = ConvNetSpec("small", size=16, width=4)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_agrees_with_scipy(stride: int) -> None:
    x = RANDOM.standard_normal((3, 8, 8)).astype(np.float32)
    weights = RANDOM.standard_normal((5, 3, 3, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    expected = np.stack([correlate(padded, kernel, mode="valid")[0] for kernel in weights])[:, ::stride, ::stride]
    np.testing.assert_allclose(convolve(x, weights, stride), expected, rtol=1e-4, atol=1e-4)


def test_max_pooling_takes_the_maximum_of_each_window() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    assert max_pool(x).tolist() == [[[5.0, 7.0], [13.0, 15.0]]]


@pytest.mark.parametrize("branched", [False, True])
def test_the_same_seed_yields_the_same_network(branched: bool) -> None:
    spec = ConvNetSpec("n", size=16, width=8, branched=branched)
    first, second = ConvNet(spec), ConvNet(spec)
    x = RANDOM.standard_normal(first.input_shape).astype(np.float32)
    np.testing.assert_array_equal(first.infer(x), second.infer(x))
    assert first.infer(x).shape == (10,)
    assert np.abs(first.infer(x)).max() > 0
    assert first.network.work == pytest.approx(1.0)
    assert len(first.network.stages[-1].after) == (2 if branched else 1)


def test_stage_by_stage_execution_equals_whole_inference() -> None:
    net = ConvNet(SMALL)
    activations = Activations.private(net)
    activations.input[...] = RANDOM.standard_normal(net.input_shape)
    activations.run_network()
    np.testing.assert_array_equal(activations.outputs[-1], net.infer(activations.input))
    assert activation_bytes(net) == 4 * (activations.input.size + sum(output.size for output in activations.outputs))


@pytest.mark.parametrize(
    ("contexts", "factor", "cores", "expected"),
    [
        (2, 1.0, (0, 1), ((0,), (1,))),
        (2, 2.0, (4, 7), ((4, 7), (4, 7))),
        (3, 1.5, (0, 1, 2, 3), ((0, 1), (2, 3), (0, 1))),
    ],
)
def test_contexts_share_cores_as_little_as_possible(
    contexts: int, factor: float, cores: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert core_sets(context_pool(len(cores), contexts, factor), cores) == expected


def test_a_context_with_too_many_cores_is_rejected() -> None:
    with pytest.raises(RealtimeError, match="context 0: sms: must be at most the 2 available cores") as error:
        core_sets(context_pool(68, 1), (0, 1))
    assert error.value.code == "TooFewCores"


def test_an_input_size_must_be_a_multiple_of_8() -> None:
    with pytest.raises(RealtimeError, match="network n: size: must be a multiple of 8"):
        ConvNetSpec("n", size=12)


def test_an_unknown_policy_is_rejected() -> None:
    with pytest.raises(RealtimeError, match="--policy"):
        SchedulerConfig.named("fastest")


def test_workers_answer_each_request_once_and_end_with_the_session() -> None:
    pool = context_pool(1, 1, 1.0, high=0, low=1)
    with CpuSession([CpuTask("a", SMALL), CpuTask("b", SMALL)], pool) as session:
        for number, (task, stage) in enumerate([("a", 0), ("a", 1), ("b", WHOLE_NETWORK)]):
            session.request(0, 0, number, task, stage)
        done = []
        while len(done) < 3:
            done += session.wait(10.0)
        assert [batch.number for batch in done] == [0, 1, 2]
        assert all(batch.started <= batch.finished for batch in done)
        assert session.wait(0.0) == []
        np.testing.assert_array_equal(session.task_output("b"), ConvNet(SMALL).infer(session.task_input("b")))
        with pytest.raises(RealtimeError, match="use a policy without batches"):
            session.submit(_batch_of_two())
        assert session.recreate(0, 0) > 0.0
        workers = session.processes()
    assert workers
    assert all(process.poll() is not None for process in workers)


def test_a_dead_worker_ends_the_run_with_an_error() -> None:
    with CpuSession([CpuTask("a", SMALL)], context_pool(1, 1, 1.0, high=0, low=1)) as session:
        (process,) = session.processes()
        process.kill()
        process.wait()
        with pytest.raises(RealtimeError, match="a worker ended") as error:
            session.request(0, 0, 0, "a", 0)
        assert error.value.code == "WorkerFailed"
        with pytest.raises(RealtimeError, match="a worker ended"):
            session.wait(10.0)


def test_activations_that_exceed_shared_memory_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium_realtime.runtime.cpu.SHARED_MEMORY", Path("/proc"))  # has no free space
    with pytest.raises(RealtimeError, match="run fewer tasks") as error:
        CpuSession([CpuTask("a", SMALL)], context_pool(1, 1))
    assert error.value.code == "NoSharedMemory"


def test_profiling_neighbours_use_other_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = context_pool(1, 2, 2.0, high=0, low=1)
    tasks = [CpuTask("a", SMALL), CpuTask("b", SMALL)]
    requests: list[tuple[int, str]] = []
    original = CpuSession.request

    def request(session: CpuSession, context: int, stream: int, number: int, task: str, stage: int) -> None:
        requests.append((context, task))
        original(session, context, stream, number, task, stage)

    with CpuSession(tasks, pool) as session:
        monkeypatch.setattr(CpuSession, "request", request)
        (profile, *_) = profile_stages(session, tasks, pool)["small"]
    assert profile.sms == (1,)
    measured, neighbours = ({task for context, task in requests if context == number} for number in range(2))
    assert measured
    assert neighbours
    assert not measured & neighbours


@pytest.mark.parametrize(("cores", "contexts"), [(1, 1), (2, 2), (16, 16)])
def test_launch_ahead_uses_every_core(cores: int, contexts: int) -> None:
    pool = SchedulerConfig.named("launch-ahead").pool(cores, 4)
    assert len(pool) == contexts
    assert {len(cores_of_context) for cores_of_context in core_sets(pool, range(cores))} == {1}


def test_a_broken_cuda_installation_is_reported_as_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libcudart.so.13: wrong ELF class")

    monkeypatch.setattr("podium_realtime.runtime.cuda.importlib.import_module", broken)
    status = cuda.availability()
    assert (status.available, status.code) == (False, "Broken")
    assert "wrong ELF class" in status.message


def _batch_of_two() -> StageBatch:
    network = ConvNet(SMALL).network
    deadlines = (1.0,) * len(network.stages)
    jobs = [PeriodicJob(PeriodicTask(name, network, 1.0, 1.0), 0, 0.0, 1.0, deadlines) for name in "ab"]
    stages = tuple(ReadyStage(job, 0, 0.0, False) for job in jobs)
    return StageBatch(7, stages, 0, 0, StreamPriority.LOW, 0.0, 0.0)
