"""`podium.tune(where="local")` on real processes: results, failure with its traceback, stop and continue."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import podium

SPACE = {"x": podium.uniform(0.0, 1.0)}


def quadratic(x: float, epochs: int = 5) -> None:
    from podium import trial

    for epoch in range(1, epochs + 1):
        trial.report(step=epoch, loss=(x - 0.3) ** 2 + 1 / epoch)


def slow(x: float) -> None:
    import time

    from podium import trial

    for epoch in range(1, 10_000):
        trial.report(step=epoch, loss=x + 1 / epoch)
        time.sleep(0.05)


def broken(x: float) -> None:
    raise RuntimeError(f"cannot train with {x}")


def test_a_function_is_tuned(tmp_path: Path) -> None:
    search = podium.tune(
        quadratic, SPACE, metric="loss", mode="min", trials=4, max_steps=5, folder=tmp_path / "run"
    ).wait(timeout=240, progress=False)
    assert search.phase == "Succeeded"
    trials = search.trials
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    done = [trial for trial in trials if trial.phase == "Succeeded"]
    assert done
    for trial in done:
        assert trial.value == pytest.approx((float(trial.parameters["x"]) - 0.3) ** 2 + 1 / 5)
        assert [point.step for point in trial.curve] == [1, 2, 3, 4, 5]
    assert search.best is not None
    assert search.best.value == min(trial.value for trial in trials if trial.value is not None)
    assert re.fullmatch(r"<Search quadratic in .*: Succeeded, 4/4 trials done, best .*>", repr(search))
    assert search._repr_html_().count("<tr>") == 5
    search.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert podium.Client(folder=tmp_path).list() == ["run"]
    assert podium.Client(folder=tmp_path).get("run").best == search.best


def test_a_failure_shows_the_traceback(tmp_path: Path) -> None:
    search = podium.tune(
        broken,
        SPACE,
        metric="loss",
        mode="min",
        trials=1,
        max_steps=5,
        folder=tmp_path,
        spec={"trials": {"max": 1, "maxSteps": 5, "retries": 0, "maxFailed": 0}},
    )
    with pytest.raises(podium.SearchError, match=r"RuntimeError: cannot train with 0\."):
        search.wait(timeout=240, progress=False)


def test_a_stopped_search_continues(tmp_path: Path) -> None:
    search = podium.tune(slow, SPACE, metric="loss", mode="min", trials=2, max_steps=100_000, folder=tmp_path)
    with pytest.raises(TimeoutError, match="it continues"):
        search.wait(timeout=0.1, progress=False)
    _until_longer_than(search, 3)
    search.suspend()
    before = _points(search)
    assert "Running" not in {trial.phase for trial in search.trials}
    search.resume()
    _until_longer_than(search, before + 3)
    search.stop()
    assert search.phase != "Failed"


def _points(search: podium.Search) -> float:
    return sum(trial.last_step or 0.0 for trial in search.trials)


def _until_longer_than(search: podium.Search, steps: float) -> None:
    end = time.monotonic() + 120
    while _points(search) <= steps:
        assert time.monotonic() < end, f"no more than {_points(search)} steps within 120 s"
        time.sleep(0.1)
