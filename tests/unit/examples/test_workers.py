"""The example of several workers in real processes: the same digits in every run, also after a checkpoint."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "examples/workers/train.py"
EPOCHS = 12


def free_ports(number: int) -> int:
    """Return the first of some consecutive free ports."""
    while True:
        with socket.socket() as found:
            found.bind(("", 0))
            first: int = found.getsockname()[1]
        try:
            for port in range(first, first + number):
                socket.create_server(("", port)).close()
        except (OSError, OverflowError):
            continue
        return first


def start(workers: int, *flags: str, folder: Path | None = None) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "MASTER_PORT": str(free_ports(workers))}
    if folder is not None:
        environment["PODIUM_CHECKPOINT"] = str(folder)
    command = [sys.executable, str(SCRIPT), f"--local={workers}", f"--epochs={EPOCHS}", *flags]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a signal reaches all workers
    )


def run(workers: int, folder: Path | None = None) -> list[str]:
    process = start(workers, folder=folder)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_two_runs_print_the_same_digits_and_the_training_makes_progress(workers: int) -> None:
    first = run(workers)
    assert first == run(workers)
    rows = [json.loads(line) for line in first]
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1)), "only worker 0 prints"
    assert rows[-1]["loss"] < rows[0]["loss"] / 2


def test_after_sigterm_all_workers_stop_at_one_checkpoint_and_continue_with_the_same_digits(tmp_path: Path) -> None:
    process = start(2, "--pause=0.05", "--save-every=1000", folder=tmp_path)
    assert process.stdout is not None
    before = [process.stdout.readline() for _ in range(3)]
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err, err
    before = [*"".join(before).splitlines(), *out.splitlines()]
    assert 3 <= len(before) < EPOCHS
    assert json.loads((tmp_path / "podium-checkpoint.json").read_text())["step"] == len(before)
    assert before + run(2, folder=tmp_path) == run(2)


@pytest.mark.parametrize(
    ("master", "name"),
    [
        pytest.param("search-3-0.search-3", "search-3-1.search-3", id="pods of Podium"),
        pytest.param("search-3-0-worker-0-0.search-3-0", "search-3-0-worker-0-1.search-3-0", id="pods of a JobSet"),
    ],
)
def test_the_name_of_a_worker_comes_from_that_of_worker_0(master: str, name: str) -> None:
    code = f"import sys; sys.path.append({str(SCRIPT.parent)!r}); import train; print(train.name_of(1), end='')"
    environment = {"PATH": os.environ["PATH"], "MASTER_ADDR": master}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True, timeout=120) == name
