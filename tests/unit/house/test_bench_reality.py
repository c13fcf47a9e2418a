"""What `make bench-reality` compares: a search is like itself; a shuffled or a slower one is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium.simulation.pools import draw
from podium.simulation.recorded import bundled
from podium.simulation.system.engine import simulate
from podium.simulation.system.scenario import Method, Scenario
from podium.simulation.system.searches import even_nodes, search
from podium_cli.samples import search_at

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def pods(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "reality_pods.py")


@pytest.fixture(scope="module")
def compare(load_script: Callable[[Path], ModuleType], pods: ModuleType) -> ModuleType:
    return load_script(BENCHMARKS / "reality_compare.py")  # imports the other by its name


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario(even_nodes(2, 2, 4), (search(draw(bundled(), 0, 8), "hermes", Method()),))


def test_a_search_is_like_itself_and_not_like_a_shuffled_one(compare: ModuleType, scenario: Scenario) -> None:
    outcome = simulate(scenario)
    turns, ends = compare.turns_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    same = compare.compared(compare.Search(scenario, turns, ends))
    assert (same.tau, same.matched, same.error(0.9), same.job_error, same.held) == (1.0, 1.0, 0.0, 0.0, True)
    assert same.counts[0] > 8, "somebody was suspended"
    backwards = dict(zip(turns, sorted(turns.values(), reverse=True), strict=True))
    assert compare.compared(compare.Search(scenario, backwards, ends)).tau < 0.5
    slower = compare.compared(compare.Search(scenario, turns, {n: end * 1.25 for n, end in ends.items()}))
    assert slower.error(0.5) == pytest.approx(0.2)
    assert not slower.held
    assert slower.row(0).endswith("| NO |")


def test_turns_that_one_side_lacks_are_told(compare: ModuleType, scenario: Scenario) -> None:
    outcome = simulate(scenario)
    turns, ends = compare.turns_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    half = dict(list(turns.items())[::2])
    assert compare.compared(compare.Search(scenario, half, ends)).matched == pytest.approx(2 / 3, abs=0.05)


def test_objects_of_a_cluster_are_read(compare: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"kind": "List", "items": search_at(600.0)}))
    found = compare.read_search(path)
    assert [(node.name, node.gpus) for node in found.scenario.nodes] == [("node-a", 1), ("node-b", 1)]
    (job,) = found.scenario.jobs
    assert len(job.curves) == job.view.max_trials == len(found.ends) == 12
    assert all(curve.steps[-1] == job.view.max_steps for curve in job.curves)
    assert compare.compared(found).counts[0] == len(found.turns)


def pod(trial: str, created: str, gate: str, attempt: str = "0") -> dict[str, Any]:
    containers = [
        {"name": "own-init", "state": {}},
        {"name": "podium-gate", "state": {"terminated": {"startedAt": gate}}},
    ]
    labels = {"podium.dev/trial": trial, "podium.dev/attempt": attempt}
    meta = {"labels": labels, "creationTimestamp": created}
    return {"kind": "Pod", "metadata": meta, "status": {"initContainerStatuses": containers}}


def test_each_trial_has_its_own_gate_time(compare: ModuleType, tmp_path: Path) -> None:
    """The sample's job is of 09:30:00; its second trial held a GPU before 09:30:07."""
    path, zone = tmp_path / "x.json", "2026-01-15T09:30"
    items = search_at(600.0)
    items += [
        pod("digits-8", f"{zone}:00Z", f"{zone}:12Z"),
        pod("digits-8", f"{zone}:30Z", f"{zone}:31Z", attempt="1"),
        {"kind": "Pod", "metadata": {"name": "dns", "creationTimestamp": f"{zone}:00Z"}, "status": {}},
    ]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    (job,) = compare.read_search(path).scenario.jobs
    gates = [fact.gate for fact in job.facts]
    assert gates[8] == 12.0  # from the middle of one second to the middle of the other
    assert set(gates[:8] + gates[9:]) == {None}


MOMENTS = [
    ("the middle of its second", 20.0, 0.0, 99.0, 20.5),
    ("not before what came first", 20.0, 20.5, 99.0, 20.75),
    ("not after what followed", 20.0, 0.0, 20.5, 20.25),
    ("clocks that disagree", 20.0, 30.0, 10.0, 30.0),
]


@pytest.mark.parametrize(
    ("second", "after", "before", "found"), [row[1:] for row in MOMENTS], ids=[r[0] for r in MOMENTS]
)
def test_a_moment_of_which_the_second_is_known(
    pods: ModuleType, second: float, after: float, before: float, found: float
) -> None:
    assert pods.moment(second, after, before) == found
