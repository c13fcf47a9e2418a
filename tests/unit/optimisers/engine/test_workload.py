"""Invalid input is refused with the job and the field; valid input keeps its columns."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.traces import poisson_workload, read_philly_trace, synthetic_trace
from podium_optimisers.engine.workload import BatchJob, Workload, WorkloadError
from podium_optimisers.preemptive.policies import FifoPolicy

GOOD = BatchJob("good", 0.0, 5.0)
TRACE = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"


@pytest.mark.parametrize(
    ("job", "code", "field"),
    [
        (BatchJob("bad", -1.0, 5.0), "InvalidValue", "arrival"),
        (BatchJob("bad", math.nan, 5.0), "InvalidValue", "arrival"),
        (BatchJob("bad", math.inf, 5.0), "InvalidValue", "arrival"),
        (BatchJob("bad", 0.0, -5.0), "InvalidValue", "duration"),
        (BatchJob("bad", 0.0, 0.0), "InvalidValue", "duration"),
        (BatchJob("bad", 0.0, math.nan), "InvalidValue", "duration"),
        (BatchJob("bad", 0.0, math.inf), "InvalidValue", "duration"),
        (BatchJob("bad", 0.0, 5.0, 0), "InvalidValue", "gpus"),
        (BatchJob("bad", 0.0, 5.0, 1.5), "InvalidValue", "gpus"),  # type: ignore[arg-type]
        (BatchJob("bad", 0.0, 5.0, math.nan), "InvalidValue", "gpus"),  # type: ignore[arg-type]
        (BatchJob("bad", 0.0, 5.0, math.inf), "InvalidValue", "gpus"),  # type: ignore[arg-type]
        (BatchJob("bad", 0.0, 5.0, 10**30), "InvalidValue", "gpus"),
    ],
)
def test_an_invalid_job_is_named(job: BatchJob, code: str, field: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        Workload.of([GOOD, job])
    assert (refused.value.code, refused.value.job, refused.value.field) == (code, "bad", field)
    assert "bad" in str(refused.value)
    assert "give" in str(refused.value)


@pytest.mark.parametrize("width", [math.nan, math.inf, 1.5, 0.0])
def test_widths_in_a_column_are_whole_numbers(width: float) -> None:
    with pytest.raises(WorkloadError, match="InvalidValue: job 1, gpus"):
        Workload(np.zeros(2), np.ones(2), np.array([1.0, width]))  # type: ignore[arg-type]


def test_a_job_wider_than_the_cluster_is_named() -> None:
    workload = Workload.of([GOOD, BatchJob("wide", 1.0, 5.0, gpus=9)])
    with pytest.raises(WorkloadError, match="JobTooLarge: job wide, gpus: the job needs 9 GPUs and the cluster has 8"):
        simulate(workload, GpuCluster(2, 4), FifoPolicy())


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(WorkloadError, match="ColumnsDiffer"):
        Workload(np.zeros(2), np.ones(3), np.ones(2, dtype=np.int64))
    with pytest.raises(WorkloadError, match="groups"):
        Workload(np.zeros(2), np.ones(2), np.ones(2, dtype=np.int64), groups=("one",))


@pytest.mark.parametrize(
    "call", [lambda: GpuCluster(0, 4), lambda: GpuCluster(1, -1), lambda: PreemptionCosts(math.nan)]
)
def test_invalid_settings_are_refused(call: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        call()  # type: ignore[operator]


def test_an_empty_workload_has_an_empty_outcome() -> None:
    result = simulate(Workload.of([]), GpuCluster(1, 1), FifoPolicy())
    assert len(result.finish) == result.events == 0


def test_selected_rows_keep_their_labels() -> None:
    workload = Workload.of([GOOD, BatchJob("other", 1.0, 2.0, 3, "u", "g", "t")])
    kept = workload.select(np.array([False, True]))
    assert (kept.names, kept.users, kept.groups, kept.templates) == (("other",), ("u",), ("g",), ("t",))
    assert kept.gpus.tolist() == [3]


@pytest.mark.parametrize("packed", [False, True])
def test_the_philly_trace_is_read(tmp_path: Path, packed: bool) -> None:
    text = TRACE + "2017-10-09 07:00:55,120.5,8,964.0,6214e9\n"
    path = tmp_path / ("philly.csv.gz" if packed else "philly.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    workload = read_philly_trace(path)
    assert workload.arrival.tolist() == [60.0, 0.0]
    assert workload.duration.tolist() == [66.0, 120.5]
    assert workload.gpus.tolist() == [1, 8]
    assert workload.groups == ("11cb48", "6214e9")


@pytest.mark.parametrize(
    ("line", "job", "field"),
    [
        ("2017-10-09 07:00:55,many,8,964.0,6214e9", "line 3", "duration"),
        ("yesterday,1.0,8,964.0,6214e9", "line 3", "timestamp"),
        ("2017-10-09 07:00:55,-3,8,964.0,6214e9", "line 3", "duration"),
        ("2017-10-09 07:00:55,3,0,964.0,6214e9", "line 3", "gpus"),
        ("2017-10-09 07:00:55,3,nan,964.0,6214e9", "line 3", "num_gpus"),
        ("2017-10-09 07:00:55,3,inf,964.0,6214e9", "line 3", "num_gpus"),
        ("2017-10-09 07:00:55,3,1.7,964.0,6214e9", "line 3", "num_gpus"),
        ("2017-10-09 07:00:55,3,1," + "9" * 131_073 + ",6214e9", "line 3", "row"),
        ("2017-10-09 07:00:55", "line 3", "duration"),
    ],
)
def test_an_invalid_line_of_a_trace_is_named(tmp_path: Path, line: str, job: str, field: str) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(TRACE + line + "\n")
    with pytest.raises(WorkloadError) as refused:
        read_philly_trace(path)
    assert (refused.value.job, refused.value.field) == (job, field)


def test_a_trace_without_its_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("when,what\n1,2\n")
    with pytest.raises(WorkloadError, match=r"philly\.csv needs the columns timestamp"):
        read_philly_trace(path)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(TRACE.encode() * 99)[:-20], b"no gzip", gzip.compress(b"\xff\xfe")],
    ids=["cut", "not packed", "no text"],
)
def test_a_damaged_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "philly.csv.gz"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=r"InvalidTrace: job \(all\), file: philly\.csv\.gz cannot be read"):
        read_philly_trace(path)


def test_a_seed_determines_the_generated_trace() -> None:
    first, again = (synthetic_trace(200, np.random.default_rng(3), load=0.8, gpus=32) for _ in range(2))
    other = synthetic_trace(200, np.random.default_rng(4), load=0.8, gpus=32)
    assert first.duration.tobytes() == again.duration.tobytes() != other.duration.tobytes()
    assert first.users == again.users
    offered = float(np.sum(first.duration * first.gpus)) / (32 * float(first.arrival.max()))
    assert offered == pytest.approx(0.8)
    queue = poisson_workload(1000, 0.5, np.random.default_rng(3))
    assert float(queue.duration.mean()) == pytest.approx(1.0, rel=0.2)
    assert float(queue.arrival.max()) == pytest.approx(2000.0, rel=0.2)
