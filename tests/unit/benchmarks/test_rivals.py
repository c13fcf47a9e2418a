"""Podium's contender in bench-rivals with real processes, and the figures from the logs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.rivals import local_runner, report, training

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, JobView
from podium_core.testing.builders import make_job

SCRIPT = """
import json, pathlib, sys, time
given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
folder = pathlib.Path(given["folder"])
(folder / given["me"]).touch()
print(json.dumps({"epoch": 1, "val_acc": 0.5}))
while not (folder / given["waits_for"]).exists():
    time.sleep(0.005)
print(json.dumps({"epoch": 2, "val_acc": float(given["last"])}))
"""


def off_the_core(pid: int) -> bool:
    """Return whether the process is stopped, or has ended and is not yet waited for."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state in "TZ"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """A search of scripted trials on one core with time slices of 20 ms; at each start no other trial may run."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    fixed = {"python": sys.executable, "script": str(script), "job": "", "log": str(tmp_path / "log"), "scratch": ""}
    some = {
        "policy": "",
        "search": "",
        "seed": 0,
        "cores": 1,
        "trials": 0,
        "epochs": 2,
        "work": 1,
        "space": [],
        "drawn": [],
    }
    setup = training.Setup(**fixed, **some)

    def search(view: JobView, waits_for: list[str], last: list[float]) -> tuple[Any, list[Any]]:
        started: list[Any] = []

        def propose(number: int) -> Mapping[str, Any]:
            own = {"me": f"t{number}", "waits_for": waits_for[number], "last": last[number]}
            return {"folder": str(tmp_path), **own}

        def launch(name: str, parameters: Mapping[str, Any]) -> Any:
            assert all(t.process.poll() is not None or off_the_core(t.process.pid) for t in started)
            started.append(training.Training(setup, name, parameters))
            return started[-1]

        machine = local_runner.Machine(1, 4, usual=Costs(1e-3, 1e-3), cycle=0.02)
        runner = local_runner.LocalRunner(view, machine, propose, launch)
        ended = runner.run()
        assert all(t.process.returncode is not None for t in started), "no process remains"
        return ended, list(runner.trials.values())

    return search


def job(trials: int, **more: Any) -> JobView:
    return make_job(
        "search", policy="round_robin", settings={"quantum": 0.02}, max_trials=trials, max_steps=2.0, **more
    )


def test_trials_alternate_on_a_core(run: Callable[..., Any], tmp_path: Path) -> None:
    """The first cannot continue before the last has started: it must be suspended for it and continue later."""
    ended, trials = run(job(3), ["t2", "t0", "t0"], [0.7, 0.8, 0.9])
    assert (ended.succeeded, ended.reason) == (True, "AllTrialsEnded")
    assert [t.phase for t in trials] == [TrialPhase.SUCCEEDED] * 3
    assert [[point.value for point in t.points] for t in trials] == [[0.5, 0.7], [0.5, 0.8], [0.5, 0.9]]
    assert trials[0].suspends
    assert trials[0].resumes
    notes = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(note["event"] for note in notes) == ["end"] * 3 + ["start"] * 3 + ["value"] * 6


def test_a_stopped_process_ends_with_the_search(run: Callable[..., Any]) -> None:
    """The first would never end; the second reaches the target."""
    ended, trials = run(job(2, target=0.9), ["none", "t0"], [0.0, 0.95])
    assert ended.reason == "TargetReached"
    assert [t.phase for t in trials] == [TrialPhase.EARLY_STOPPED, TrialPhase.SUCCEEDED]


def test_a_run_is_read_from_its_log(tmp_path: Path) -> None:
    notes = [
        {"time": 103.0, "trial": "a", "event": "start"},
        {"time": 105.0, "trial": "a", "event": "value", "epoch": 1, "value": 0.4},
        {"time": 106.0, "trial": "b", "event": "start"},
        {"time": 108.0, "trial": "b", "event": "value", "epoch": 1, "value": 0.7},
        {"time": 108.5, "trial": "a", "event": "value", "epoch": 2, "value": 0.6},
        {"time": 108.6, "trial": "a", "event": "cut"},  # the trial had ended, but not its process
        {"time": 108.7, "trial": "b", "event": "cut"},
        {"time": 111.0, "trial": "c", "event": "value", "epoch": 1, "value": 0.9},
    ]
    (tmp_path / "log").write_text("".join(json.dumps(note) + "\n" for note in notes))
    run = report.read_run(tmp_path / "log", 100.0, 10.0, epochs=2)
    assert (run.start, run.started, run.cut, len(run.values)) == (3.0, 2, 1, 3)
    assert [run.best(at) for at in (4.9, 5.0, 8.0, 99.0)] == [0.0, 0.4, 0.7, 0.7]
    assert [run.best_trained(seconds) for seconds in (1.9, 2.0, 5.0)] == [0.0, 0.4, 0.7]


def test_wins_and_losses_are_both_counted() -> None:
    duel = report.duel([0.9, 0.8, 0.7, 0.5], [0.8, 0.8, 0.8, 0.8])
    assert (duel.won, duel.drawn, duel.lost) == (1, 1, 2)
    assert duel.mean == pytest.approx(-0.075)
    assert duel.low < duel.mean < duel.high


def test_a_trial_is_as_old_as_it_is(run: Callable[..., Any]) -> None:
    """A policy that serves trials which wait too long must not take a new one for a very old one."""
    begun = time.monotonic()
    _, trials = run(job(2), ["t0", "t1"], [0.7, 0.8])
    assert all(begun <= trial.created <= time.monotonic() for trial in trials)
