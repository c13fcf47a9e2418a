"""A search with several objectives in Python: values, Pareto front, tables and figures, from objects and locally."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import podium
from podium_api import display
from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_api.figure import figure
from podium_api.results import front_of, rows_of, trials_of
from podium_api.search import Search
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial

PAIR = [{"metric": "podium.dev/gpu-seconds", "direction": "minimize"}, {"metric": "acc", "direction": "maximize"}]
SIZE = {"metric": "<size>", "direction": "minimize"}
RESULTS: dict[int, tuple[float, float, float | None]] = {  # accuracy, GPU-seconds, size
    0: (0.9, 20.0, 3.0),
    1: (0.8, 10.0, 2.0),
    2: (0.7, 15.0, 1.0),
    3: (0.99, 5.0, None),
}


def objects(objectives: list[dict[str, str]]) -> Objects:
    """Return a search with three complete trials, and one that runs and has reported half of its steps."""
    spec: dict[str, Any] = {
        "objectives": objectives,
        "policy": {"name": "pareto"},
        "parameters": [{"name": "lr", "min": 0.1, "max": 1.0}],
        "trials": {"max": 4, "maxSteps": 10},
        "template": {"spec": {"containers": [{"name": "train", "image": "a"}]}},
    }
    job = HyperParamJob.model_validate({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})
    return Objects(job, tuple(_trials(len(objectives) > 2)))


def _trials(sized: bool) -> Iterator[HyperParamTrial]:
    for number, (accuracy, seconds, size) in RESULTS.items():
        step = 5 if number == 3 else 10
        more = [{"metric": "<size>", "latest": size, "step": step}] if sized and size is not None else []
        yield HyperParamTrial.model_validate(
            {
                "metadata": {"name": f"s-{number}", "namespace": "n"},
                "spec": {"job": "s", "number": number, "parameters": {"lr": 0.5}},
                "status": {
                    "phase": "Running" if number == 3 else "Succeeded",
                    "rank": 1 if number == 3 else None,
                    "lastStep": step,
                    "lastValue": accuracy,
                    "best": {"step": 1, "value": 1.0},
                    "gpuSeconds": seconds,
                    "curve": {"points": [{"step": 1, "value": 1.0, "time": 0.0}]},
                    "additionalMetrics": more,
                },
            }
        )


class Stored:
    """A search that is stored as these objects; it cannot be changed."""

    place = "memory"

    def __init__(self, seen: Objects) -> None:
        self._seen = seen

    def read(self) -> Objects:
        return self._seen

    def log(self, trial: HyperParamTrial, lines: int) -> str:
        raise AssertionError(f"{lines} lines of {trial.metadata.name} were read")

    def suspend(self) -> None:
        raise AssertionError("suspended")

    resume = stop = suspend


def test_values_are_those_of_the_last_step() -> None:
    first, *_, running = trials_of(objects(PAIR))
    assert (first.value, first.step) == (None, 10)
    assert dict(first.values) == {"podium.dev/gpu-seconds": 20.0, "acc": 0.9}
    assert dict(running.values) == {"podium.dev/gpu-seconds": 10.0, "acc": 0.99}, "half of the steps took 5 s"


def test_the_front_begins_with_the_best_in_the_first_objective() -> None:
    assert [trial.number for trial in front_of(objects(PAIR))] == [3]
    assert [trial.number for trial in front_of(objects([*PAIR, SIZE]))] == [1, 2, 0], "the size of 3 is not known"
    nothing = Objects(objects(PAIR).job, ())
    assert front_of(nothing) == []
    assert "no trial has a value of every objective yet" in display.line("s", "here", nothing)


def test_there_is_no_best_trial() -> None:
    search = Search("s", Stored(objects(PAIR)))
    with pytest.raises(SearchError, match=r"SeveralObjectives: .*\(podium.dev/gpu-seconds, acc\).* use pareto_front"):
        search.best  # noqa: B018 -- reads it
    assert [trial.number for trial in search.pareto_front()] == [3]
    assert "Pareto front of 1 trial>" in repr(search)


def test_the_tables_have_all_objectives() -> None:
    table = rows_of(objects([*PAIR, SIZE]))
    assert [row["front"] for row in table] == [True, True, True, False]
    assert [row["values.acc"] for row in table] == [0.9, 0.8, 0.7, 0.99]
    assert [row["values.<size>"] for row in table] == [3.0, 2.0, 1.0, None]
    assert not any("value" in row for row in table)
    rows = display.rows(objects([*PAIR, SIZE]))
    assert [row[0] for row in rows] == ["s-1", "s-2", "s-0", "s-3"]
    assert [row[4] for row in rows] == ["yes", "yes", "yes", ""]
    assert "<th>&lt;size&gt;</th>" in display.html("s", objects([*PAIR, SIZE]))


@pytest.mark.parametrize("listed", [PAIR, [*PAIR, SIZE]])
def test_the_figure_has_a_panel_for_each_further_objective(listed: list[dict[str, str]], tmp_path: Path) -> None:
    made = figure("s", objects(listed), tmp_path / "front.png")
    assert [(panel.get_xlabel(), panel.get_ylabel()) for panel in made.axes] == [
        ("podium.dev/gpu-seconds", one["metric"]) for one in listed[1:]
    ]
    assert {text.get_text() for text in made.axes[0].texts} == ({"3"} if listed is PAIR else {"0", "1", "2"})
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_only_a_figure_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "podium_api.figure")
    search = Search("s", Stored(objects(PAIR)))
    assert len(search.trials) == 4
    with pytest.raises(SearchError, match=r"MatplotlibMissing: .*pip install matplotlib"):
        search.plot()


def train(width: int) -> None:
    from podium import trial

    for epoch in range(1, 4):
        trial.report(step=epoch, acc=width * epoch / 100, size=width)


def test_a_search_on_this_machine_ends_with_its_front(tmp_path: Path) -> None:
    search = podium.tune(
        train,
        {"width": [8, 16, 32]},
        metric=["acc", "size", podium.GPU_SECONDS],
        mode=["max", "min", "min"],
        algorithm="grid",
        trials=3,
        max_steps=3,
        folder=tmp_path / "run",
    ).wait(timeout=240, progress=False)
    assert [dict(trial.parameters) for trial in search.pareto_front()] == [{"width": width} for width in (32, 16, 8)]
    for trial in search.pareto_front():
        width = int(trial.parameters["width"])
        assert trial.values["acc"] == pytest.approx(width * 3 / 100)
        assert trial.values["size"] == width
        assert trial.values[podium.GPU_SECONDS] == trial.gpu_seconds > 0.0
    again = podium.Client(folder=tmp_path).get("run")
    assert again.pareto_front() == search.pareto_front()
