"""TensorBoard folders as curves, where the package tensorboard is installed; the no where it is not.

`event_files/` was written by the real libraries from real trainings of examples/digits (3 epochs): `pytorch` by
tensorboardX' SummaryWriter, as PyTorch's and Lightning's does it, `keras` as Keras' callback does it (tensors, two runs
a trial) with TensorBoard's own writer.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podium_core.curves.non_finite import diverged
from podium_simulator.traces.sources import ReadOptions, read_all
from podium_simulator.traces.trace import TraceError

REAL = Path(__file__).parent / "event_files"
Event = tuple[int, float, float]  # step, wall time, value
Write = Callable[[str, list[Event]], None]


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(TraceError, match="need TensorBoard: pip install"):
        read_all([REAL / "pytorch"], ReadOptions(metric="val_acc"))


def test_files_written_by_pytorch() -> None:
    (found,) = read_all([REAL / "pytorch"], ReadOptions(metric="val_acc"))
    assert (found.task, found.metric, found.maximize) == ("pytorch", "val_acc", True)
    trials = {trial.name: trial for trial in found.trials}
    assert list(trials) == ["lr-0.01", "lr-0.1", "lr-1e6"]
    assert trials["lr-0.1"].steps == (1.0, 2.0, 3.0)
    assert trials["lr-0.1"].values == pytest.approx((0.1431058, 0.2141365, 0.3144150))
    assert trials["lr-0.1"].seconds == pytest.approx((2.867, 2.988, 3.142), abs=1e-3), "since the run's first event"


def test_a_loss_that_overflowed_is_the_worst() -> None:
    (found,) = read_all([REAL / "pytorch"], ReadOptions(maximize=False, metric="loss"))
    trials = {trial.name: trial.values for trial in found.trials}
    assert trials["lr-0.1"][-1] == pytest.approx(2.0229120)
    assert all(diverged(value) and value > 0.0 for value in trials["lr-1e6"])


def test_of_keras_two_runs_the_validation_run_counts() -> None:
    (found,) = read_all([REAL / "keras"], ReadOptions())
    assert [trial.name for trial in found.trials] == ["lr-0.1/validation"]
    assert found.metric == "epoch_score"
    assert found.trials[0].values == pytest.approx((0.1431058, 0.2141365, 0.3144150))


ERRORS = [
    (None, r"2 scalars \(loss, val_acc\); name one with --metric"),
    ("accuracy", "no run has a scalar 'accuracy'; name one of these with --metric: loss, val_acc"),
]


@pytest.mark.parametrize(("metric", "message"), ERRORS, ids=["none", "unknown"])
def test_the_scalar_must_exist(metric: str | None, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_all([REAL / "pytorch"], ReadOptions(metric=metric))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a run of events at given times, with the real package."""
    from tensorboard.compat.proto.event_pb2 import Event as Written
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def run(name: str, events: list[Event]) -> None:
        writer = EventFileWriter(str(tmp_path / name))
        for step, wall, value in events:
            summary = Summary(value=[Summary.Value(tag="acc", simple_value=value)])
            writer.add_event(Written(step=step, wall_time=wall, summary=summary))
        writer.close()

    return run


def test_steps_before_a_crash_are_left_out(write: Write, tmp_path: Path) -> None:
    # step 4 was reached, then the run went on from step 1 and has got to step 3 since
    write("run", [(1, 110.0, 0.1), (2, 120.0, 0.2), (3, 130.0, 0.3), (4, 140.0, 0.4), (2, 220.0, 0.5), (3, 230.0, 0.6)])
    (found,) = read_all([tmp_path], ReadOptions())
    assert found.trials[0].steps == (1.0, 2.0, 3.0)
    assert found.trials[0].values == pytest.approx((0.1, 0.5, 0.6))


def test_files_that_were_converted_after_training(write: Write, tmp_path: Path) -> None:
    # converted from another tracker: the file's first event is of today
    write("run", [(1, 110.0, 0.1), (2, 120.0, 0.2), (3, 130.0, 0.3)])
    (found,) = read_all([tmp_path], ReadOptions())
    assert found.trials[0].seconds == pytest.approx((10.0, 20.0, 30.0))


def test_a_run_of_one_value(write: Write, tmp_path: Path) -> None:
    write("run", [(1, 110.0, 0.1)])
    (found,) = read_all([tmp_path], ReadOptions())
    assert found.trials[0].seconds == (1.0,)


def test_times_that_run_backwards_are_rejected(write: Write, tmp_path: Path) -> None:
    write("run", [(step, 110.0 - step, 0.5) for step in range(1, 5)])
    with pytest.raises(TraceError, match="run run: 4 values of acc, only 1 of them later than those of lower"):
        read_all([tmp_path], ReadOptions())


def test_event_files_without_a_scalar(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.out.tfevents.1.host").write_bytes(b"")
    with pytest.raises(TraceError, match="its 1 runs hold no scalar"):
        read_all([tmp_path], ReadOptions())


def test_runs_without_the_scalar_are_reported(write: Write, tmp_path: Path) -> None:
    write("run", [(1, 110.0, 0.1)])
    shutil.copytree(REAL / "pytorch", tmp_path, dirs_exist_ok=True)
    said: list[str] = []
    (found,) = read_all([tmp_path], ReadOptions(metric="acc"), said.append)
    assert [trial.name for trial in found.trials] == ["run"]
    assert said == [f"{tmp_path.name}: 1 of 4 runs were read; without acc: lr-0.01, lr-0.1, lr-1e6"]


def test_only_what_is_left_out_is_reported() -> None:
    said: list[str] = []
    read_all([REAL / "keras"], ReadOptions(), said.append)
    assert said == ["keras: 1 further series of the same trials left out: lr-0.1/train"]
    said.clear()
    read_all([REAL / "pytorch"], ReadOptions(metric="loss"), said.append)
    assert said == []


def no_event(file: Path) -> None:
    """Return a complete record of another kind, with its checksums."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    with file.open("wb") as out:
        RecordWriter(out).write(b"no event at all")


@pytest.mark.parametrize("make", [lambda file: file.write_bytes(b"\xff" * 99), no_event], ids=["noise", "other record"])
def test_a_broken_file_is_distinguished_from_one_without_scalars(
    make: Callable[[Path], None], write: Write, tmp_path: Path
) -> None:
    (tmp_path / "lost").mkdir()
    make(tmp_path / "lost" / "events.out.tfevents.1.host")
    with pytest.raises(TraceError, match="no event could be read of lost: the files are broken"):
        read_all([tmp_path], ReadOptions())
    write("run", [(1, 110.0, 0.1)])
    said: list[str] = []
    read_all([tmp_path], ReadOptions(), said.append)
    assert said == [f"{tmp_path.name}: 1 of 2 runs were read; no event could be read of: lost"]
