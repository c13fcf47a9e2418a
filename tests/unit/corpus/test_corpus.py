"""Inputs as other tools and people write them, each with its expected outcome in `expected.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from podium_core.acceptance.findings import findings
from podium_core.curves.non_finite import diverged
from podium_core.logs.line_reader import line_reader
from podium_core.schema.job import Direction
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.tables.text_file import TextFileError, text_lines
from podium_optimisers.queueing.trace import read_trace
from podium_optimisers.validation import InputError
from podium_simulator.traces.sources import ReadOptions, read_all
from podium_simulator.traces.trace import TraceError

HERE = Path(__file__).parent
EXPECTED: dict[str, dict[str, dict[str, Any]]] = YAML(typ="safe").load(HERE / "expected.yaml")
Outcome = tuple[Any, str]  # what was read (None: refused), and what was said


def curves(path: Path) -> Outcome:
    said: list[str] = []
    try:
        (trace,) = read_all([path], ReadOptions(metric="acc" if path.is_dir() else None), said.append)
    except TraceError as error:
        return None, str(error)
    values = {
        trial.name: [None if diverged(v) else pytest.approx(v, abs=1e-6) for v in trial.values]
        for trial in trace.trials
    }
    return values, "\n".join(said)


def loads(path: Path) -> Outcome:
    try:
        return read_trace(text_lines(path)).services.tolist(), ""
    except (InputError, TextFileError) as error:
        return None, str(error)


def logs(case: dict[str, Any]) -> Outcome:
    given = {"step_key": "step", "format": "text", "direction": Direction.MAXIMIZE, "container": "train"} | case[
        "given"
    ]
    read = line_reader(MetricsConfig(**given))
    return [[one.step, one.value] for line in case["lines"] for one in read(line)], ""


def jobs(case: dict[str, Any]) -> Outcome:
    container = {"name": "train", "image": "x:1", "args": ["$(podium.args)"]} | case.get("container", {})
    spec = {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.01, "max": 0.1}],
        "trials": {"max": 3, "maxSteps": 3},
        "template": {"spec": {"containers": [container]}},
    }
    manifest = {"metadata": {"name": "job"}, "spec": spec | case.get("spec", {})}
    return None, "; ".join(f"{one.severity} {one.code}" for one in findings(manifest))


FILES: dict[str, Callable[[Path], Outcome]] = {"curves": curves, "loads": loads}
INLINE: dict[str, Callable[[dict[str, Any]], Outcome]] = {"logs": logs, "jobs": jobs}
CASES = [(kind, name) for kind, by_name in EXPECTED.items() for name in by_name]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_an_input_has_its_expected_outcome(kind: str, name: str) -> None:
    expected = EXPECTED[kind][name]
    read, said = FILES[kind](HERE / kind / name) if kind in FILES else INLINE[kind](expected)
    assert read == expected.get("read")
    assert expected.get("says", "") in said
    assert bool(said) == ("says" in expected)
    assert read is not None or "\n" not in said, "a refusal is one line"


def test_every_input_has_an_expected_outcome() -> None:
    found = {(kind, path.name) for kind in FILES for path in (HERE / kind).iterdir()}
    assert found == {case for case in CASES if case[0] in FILES}
