"""`podium.tune(where="local")` on real processes: results, failure with its traceback, stop and continue."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import podium
from podium_searchers.search import propose, warm_start_results

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


def shifted(x: float) -> None:
    from podium import trial

    for epoch in range(1, 6):
        trial.report(step=epoch, loss=1 + (x - 0.3) ** 2 + 1 / epoch)


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


def test_what_may_not_work_here_is_a_python_warning(tmp_path: Path) -> None:
    """It names the line of the caller. A warning about nodes is not issued."""
    with pytest.warns(podium.SearchWarning) as issued:
        search = podium.tune(
            *(quadratic, {"x": [0.25]}),
            metric="loss",
            mode="max",
            trials=1,
            max_steps=5,
            folder=tmp_path,
            spec={"checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}}},
        )
    texts = [str(one.message) for one in issued]
    assert [text.partition(":")[0] for text in texts] == ["DirectionUnusual", "SingleValue"]
    assert "spec.objective.direction: maximize loss looks reversed: use minimize" in texts[0]
    assert {one.filename for one in issued} == {__file__}
    assert search.wait(timeout=240, progress=False).phase == "Succeeded"


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


def test_a_changed_function_is_refused_until_a_restart(tmp_path: Path) -> None:
    def tuned(train: Callable[..., None], **more: Any) -> podium.Search:
        return podium.tune(
            *(train, SPACE),
            **{"metric": "loss", "mode": "min", "trials": 1, "max_steps": 5, "name": "job", "folder": tmp_path, **more},
        ).wait(timeout=240, progress=False)

    first = tuned(quadratic)
    assert tuned(quadratic).best == first.best  # it has ended, and nothing runs again
    refusal = r"JobChanged: the search in .* has results, and this call differs from it in the function or command; "
    with pytest.raises(podium.SearchError, match=f"{refusal}restart=True"):
        tuned(shifted)
    with pytest.raises(podium.SearchError, match=r"JobChanged.* in search;"):
        tuned(quadratic, seed=1)
    assert first.best is not None
    before = first.best.value
    again = tuned(shifted, restart=True)
    assert again.best is not None
    assert before is not None
    assert again.best.value == pytest.approx(before + 1)
    more = tuned(shifted, trials=2)
    assert [trial.phase for trial in more.trials] == ["Succeeded", "Succeeded"]
    fewer = tuned(shifted)
    assert len(fewer.trials) == 2
    assert "2/2 trials done (1 more than asked for)" in repr(fewer)


def test_every_handle_of_a_folder_has_the_same_process(tmp_path: Path) -> None:
    def tuned(**more: Any) -> podium.Search:
        given = {"metric": "loss", "mode": "min", "trials": 1, "max_steps": 100_000, "folder": tmp_path / "slow"}
        return podium.tune(slow, SPACE, **{**given, **more})

    search, again = tuned(), tuned()
    with pytest.raises(podium.SearchError, match=r"JobChanged: .* still runs, and this call differs from it in trials"):
        tuned(trials=2)
    found = podium.Client(folder=tmp_path).get("slow")
    with pytest.raises(TimeoutError, match="it continues"):
        found.wait(timeout=0.1, progress=False)
    _until_longer_than(found, 1)
    again.stop()
    assert not search.read().running
    assert not found.read().running


def test_a_search_starts_from_an_earlier_one_and_from_a_file(tmp_path: Path) -> None:
    def tuned(name: str, **more: Any) -> podium.Search:
        given = {"metric": "loss", "mode": "min", "trials": 2, "max_steps": 5, "name": name, "folder": tmp_path / name}
        return podium.tune(quadratic, SPACE, **{**given, **more})

    first = tuned("first").wait(timeout=240, progress=False)
    table = tmp_path / "old.csv"
    table.write_text("trial,step,value,seconds,x\na,5,0.3,1,0.25\nb,5,9,1,7\n")
    learns: dict[str, Any] = {
        "algorithm": "tpe",
        "spec": {"search": {"algorithm": "tpe", "settings": {"startupTrials": 3}}},
    }
    with pytest.raises(podium.SearchError, match=r"FileUnreadable: warm_start: .*none\.csv"):
        tuned("second", **learns, warm_start=tmp_path / "none.csv")
    second = tuned("second", **learns, warm_start=[first, table]).wait(timeout=240, progress=False)
    job = second.read().job
    assert job.status.warm_start is not None
    known = [float(trial.parameters["x"]) for trial in first.trials]
    *earlier, from_file = [one.parameters["x"] for one in job.status.warm_start.trials]
    assert (sorted(earlier), from_file) == (sorted(known), 0.25), "those of the first search in the order of their ends"
    warm = propose(job.spec, 0, warm_start_results(job))
    assert warm is not None
    assert second.trials[0].parameters["x"] == warm["x"]
    assert warm != propose(job.spec, 0), "without them it is random"


def _points(search: podium.Search) -> float:
    return sum(trial.last_step or 0.0 for trial in search.trials)


def _until_longer_than(search: podium.Search, steps: float) -> None:
    end = time.monotonic() + 120
    while _points(search) <= steps:
        assert time.monotonic() < end, f"no more than {_points(search)} steps within 120 s"
        time.sleep(0.1)
