"""The recipes and the PyTorch example in real runs: suspended, ended or killed, and resumed, they lose nothing.

Their numbers are bit-identical to those of an uninterrupted run. A test whose library is not installed is skipped with
the library's name; `make test-recipes` installs all of them. The scripts are in scripts/ and in examples/pytorch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "core"))  # the environment of `make test-recipes` has the reader's libraries, but no Podium

from podium_core.logs.line_reader import line_reader  # noqa: E402

RECIPES = ROOT / "examples/recipes"
SCRIPTS = Path(__file__).parent / "scripts"
MARKER = "podium-checkpoint.json"
STOPPED = 143
SUSPENDED = 0.5  # seconds
SECONDS = 600.0  # importing libraries of gigabytes is slow on a busy machine
# by default torchrun kills its workers 30 s after SIGTERM, which a step, a checkpoint and the end of Python may take
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--shutdown-timeout={SECONDS:.0f}")


class Metrics(NamedTuple):
    """What a job with `metrics: {format: json}` reads."""

    metric: str
    step_key: str = "step"
    format: str = "json"
    filter: str | None = None
    additional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A recipe: the libraries or the program that it needs, its script, and the metric it prints."""

    name: str
    libraries: tuple[str, ...] = ()
    program: str = ""
    metric: str = "loss"
    script: Path | None = None
    ranks: int = 1

    def missing(self) -> str:
        """Return why the recipe cannot run here, or ""."""
        absent = [name for name in self.libraries if importlib.util.find_spec(name) is None]
        if absent:
            return f"{', '.join(absent)} not installed (`make test-recipes` installs it)"
        return "" if not self.program or shutil.which(self.program) else f"{self.program} is not installed"

    def command(self, scratch: Path) -> list[str]:
        """Return the command line of its script; a C program is compiled first."""
        if self.libraries:
            launcher = [] if self.ranks == 1 else [*TORCHRUN, f"--nproc-per-node={self.ranks}"]
            return [sys.executable, *launcher, str(self.script or SCRIPTS / f"train_{self.name}.py")]
        if self.name != "c":
            return [*self.name.split(), str(SCRIPTS / "count.sh")]
        compiler = [self.program, "-Wall", "-Wextra", "-Werror", "-O1", f"-I{RECIPES}"]
        subprocess.run([*compiler, str(SCRIPTS / "count.c"), "-o", str(scratch / "count")], timeout=300, check=True)
        return [str(scratch / "count")]


ALL = (
    Recipe("huggingface", ("transformers", "accelerate", "torch")),
    Recipe("lightning", ("lightning", "torch"), metric="batch_loss"),
    Recipe("keras", ("keras", "jax")),
    Recipe("pytorch", ("torch",), script=ROOT / "examples/pytorch/train.py"),
    Recipe("ddp", ("torch",), ranks=2),
    Recipe("jax", ("jax", "flax", "optax")),
    Recipe("xgboost", ("xgboost",), metric="valid_rmse"),
    Recipe("lightgbm", ("lightgbm",), metric="valid_l2"),
    Recipe("sklearn", ("sklearn",)),
    Recipe("warm_start", ("sklearn",)),
    Recipe("sh", program="sh"),
    Recipe("busybox sh", program="busybox"),
    Recipe("c", program="cc"),
)


class Trial:
    """One trial: its checkpoint folder and its attempts, one process after another."""

    def __init__(self, recipe: Recipe, scratch: Path) -> None:
        if reason := recipe.missing():
            pytest.skip(reason)
        self.recipe = recipe
        self.folder = scratch / "ckpt"
        self.folder.mkdir()
        mounted = scratch / "python" / "podium"  # as the agent mounts it
        mounted.mkdir(parents=True)
        shutil.copy(ROOT / "sdk/podium/trial.py", mounted)
        self.command = recipe.command(scratch)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PODIUM_")},
            "PYTHONPATH": str(RECIPES),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "PODIUM_PYTHON": str(mounted.parent),
            "PODIUM_CHECKPOINT": str(self.folder),
            "RECIPES": str(RECIPES),
        }
        self.errors = scratch / "errors.txt"
        self.attempts = 0

    def attempt(self, *events: Callable[[subprocess.Popen[str]], None]) -> tuple[list[tuple[float, float]], int]:
        """Run one process and return the (step, value) points that Podium reads and its exit code.

        After each three points, the next event is called.
        """
        points: list[tuple[float, float]] = []
        read = line_reader(Metrics(self.recipe.metric))
        due = [(number, event) for number, event in enumerate(events, 1)]
        environment = {**self.environment, "PODIUM_ATTEMPT": str(self.attempts)}
        self.attempts += 1
        with (
            self.errors.open("a") as errors,
            subprocess.Popen(
                self.command,
                env=environment,
                cwd=self.folder.parent,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                for parsed in read(line):
                    assert parsed.step is not None
                    assert parsed.value is not None
                    points.append((parsed.step, parsed.value))
                if due and len(points) >= 3 * due[0][0]:
                    due.pop(0)[1](process)
            code = process.wait(timeout=SECONDS)
        return points, code

    def marker(self) -> dict[str, Any]:
        """Return the completion marker; empty before the first checkpoint."""
        try:
            marker: dict[str, Any] = json.loads((self.folder / MARKER).read_text())
        except FileNotFoundError:
            return {}
        return marker

    def request_checkpoint(self, _: object) -> None:
        """Request a checkpoint and wait for its completion marker, as Podium's hook does."""
        before = self.marker()
        (self.folder / "podium-checkpoint-request").touch()
        deadline = time.monotonic() + SECONDS
        while self.marker() == before:
            assert time.monotonic() < deadline, "no checkpoint was saved on request"
            time.sleep(0.005)
        self.answered = self.marker()


def terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM to the first process only, as the kubelet does."""
    process.send_signal(signal.SIGTERM)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill all processes of the trial at once, as the kubelet does after the grace period."""
    for pid in stop(process):
        os.kill(pid, signal.SIGKILL)


def suspend(process: subprocess.Popen[str]) -> None:
    """Stop all processes of the trial for a while, as the time slice of another trial does, and continue them."""
    stopped = stop(process)
    end = time.monotonic() + SUSPENDED
    while time.monotonic() < end:
        assert is_stopped(tree(process.pid))
        time.sleep(0.05)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)


def stop(process: subprocess.Popen[str]) -> list[int]:
    """Stop a process with all its descendants; return them."""
    deadline = time.monotonic() + SECONDS
    while not is_stopped(states := tree(process.pid)):
        assert process.poll() is None, "the trial ended"
        assert time.monotonic() < deadline, states
        for pid in states:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(0.005)
    return list(states)


def is_stopped(states: dict[int, str]) -> bool:
    """Return whether all processes are stopped; a shell whose child stopped before its exec waits for it (D)."""
    return "T" in states.values() and set(states.values()) <= {"T", "D"}


def tree(first: int) -> dict[int, str]:
    """Return the states of a process and its descendants by their ids, without those that ended."""
    parents, states = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, *_ = file.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                parents[int(file.parent.name)], states[int(file.parent.name)] = int(parent), state
    members = {first}
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return {pid: states[pid] for pid in members & states.keys()}


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.name)
def test_a_stopped_training_resumes_bit_for_bit(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "interrupted").mkdir()
    alone, code = Trial(recipe, tmp_path / "alone").attempt()
    assert code == 0
    assert [step for step, _ in alone] == list(range(1, len(alone) + 1))
    assert len({value for _, value in alone}) > 5

    trial = Trial(recipe, tmp_path / "interrupted")
    first, code = trial.attempt(trial.request_checkpoint, terminate)
    assert code == STOPPED or (recipe.ranks > 1 and code > 0), trial.errors.read_text()  # torchrun has its own status
    assert trial.answered["onRequest"] is True
    assert trial.marker()["step"] == first[-1][0] > trial.answered["step"], "after SIGTERM the last step is saved"
    assert not (trial.folder / "podium-checkpoint-request").exists()

    second, code = trial.attempt(trial.request_checkpoint, kill)
    assert code == -signal.SIGKILL
    saved = trial.marker()["step"]
    assert (trial.folder / trial.marker()["path"]).exists()
    third, code = trial.attempt(suspend)
    assert code == 0, trial.errors.read_text()

    assert second[0][0] == first[-1][0] + 1, "no step is repeated or missing"
    assert third[0][0] == saved + 1, "it resumes from the newest complete checkpoint"
    assert [*first, *[point for point in second if point[0] <= saved], *third] == alone
    assert set(second) <= set(alone), "the steps that the kill discarded have the same values"
    assert len(list(trial.folder.iterdir())) == 2, "the completion marker and the checkpoint that it names"


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.name)
def test_without_podium_a_recipe_only_trains(recipe: Recipe, tmp_path: Path) -> None:
    trial = Trial(recipe, tmp_path)
    del trial.environment["PODIUM_CHECKPOINT"]
    points, code = trial.attempt()
    assert code == 0, trial.errors.read_text()
    assert len(points) >= 20
    assert list(trial.folder.iterdir()) == []


def test_two_ranks_save_at_the_same_step(tmp_path: Path) -> None:
    """torchrun forwards SIGTERM to its workers, which may receive it, and see a request, one step apart."""
    (tmp_path / "alone").mkdir()
    (tmp_path / "interrupted").mkdir()
    alone, trial = (Trial(replace(ALL[0], ranks=2), tmp_path / name) for name in ("alone", "interrupted"))
    complete, code = alone.attempt()
    assert code == 0, alone.errors.read_text()
    first, code = trial.attempt(trial.request_checkpoint, terminate)
    assert code != 0
    assert trial.marker()["step"] == first[-1][0] > trial.answered["step"]
    second, code = trial.attempt()
    assert code == 0, trial.errors.read_text()
    assert first + second == complete


@pytest.mark.parametrize("shell", ["sh", "busybox sh"])
def test_sigterm_between_two_calls_of_the_shell_recipe_loses_no_step(shell: str, tmp_path: Path) -> None:
    """podium_stopping must not return yes after podium_wanted returned no: the step would be lost."""
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"{shell.split()[0]} is not installed")
    script = """
. "$RECIPES/podium.sh"
podium_wanted && echo wanted
kill -TERM $$
podium_stopping && echo stops
podium_wanted && echo wanted
podium_stopping && echo stops
"""
    environment = {"PATH": os.environ["PATH"], "RECIPES": str(RECIPES)}
    for folder, expected in (({"PODIUM_CHECKPOINT": str(tmp_path)}, "wanted stops"), ({}, "stops wanted stops")):
        done = subprocess.run(
            [*shell.split(), "-c", script], env={**environment, **folder}, capture_output=True, text=True
        )
        assert done.stdout.split() == expected.split(), done.stderr
