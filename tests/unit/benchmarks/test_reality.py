"""The comparison of bench_reality: a search equals itself, and a shuffled or a slower one differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.simulator import comparison, noise, pod_times, starts

from podium_cli.samples import search_at
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.replay.samples import draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, PodFacts, Scenario
from podium_simulator.system.inputs.searches import even_nodes, search_job
from podium_simulator.traces.trace import bundled_trace


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario(even_nodes(2, 2, 4), (search_job(draw_sample(bundled_trace(), 0, 8), "hermes", Method()),))


Compare = Callable[[dict[tuple[int, int], float], dict[int, Any]], comparison.Comparison]


@pytest.fixture(scope="module")
def compare(scenario: Scenario) -> Compare:
    """Compare the scenario with a run that has these time slices and ends, and no stopped trial."""
    return lambda slices, ends: comparison.compared(
        comparison.Search(scenario, slices, ends, frozenset(), None)  # type: ignore[arg-type]
    )


def test_a_search_equals_itself_and_not_a_shuffled_one(compare: Compare, scenario: Scenario) -> None:
    outcome = simulate(scenario)
    slices, ends = comparison.slices_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    same = compare(slices, ends)
    assert (same.matched, same.error(0.9), same.job_error, same.held) == (1.0, 0.0, 0.0, True)
    assert same.tau == pytest.approx(1.0)
    assert same.counts[0] > 8, "a trial was suspended"
    backwards = dict(zip(slices, sorted(slices.values(), reverse=True), strict=True))
    assert compare(backwards, ends).tau < 0.5
    slower = compare(slices, {n: end * 1.25 for n, end in ends.items()})
    assert slower.error(0.5) == pytest.approx(0.2)
    assert not slower.held
    assert slower.row(0).endswith("| NO |")
    assert comparison.error_of((same, slower), 0.9) == pytest.approx(0.2), "of all trials, not of all searches"
    assert comparison.error_of((same, slower), 0.5) == 0.0


def test_a_search_is_repeated_with_other_speeds(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noise.noisy(scenario, 0.0, 0) == scenario
    assert noise.noisy(scenario, 0.01, 0) == noise.noisy(scenario, 0.01, 0) != noise.noisy(scenario, 0.01, 1)
    monkeypatch.setattr(noise, "NOISES", (0.0, 0.2))
    monkeypatch.setattr(noise, "REPEATS", 3)
    search_of_scenario: Any = SimpleNamespace(scenario=scenario)
    found = noise.repeated(search_of_scenario)
    assert [(one.held, one.error(0.9)) for one in found.by_noise[0.0]] == [(True, 0.0)] * 3
    assert all(one.error(0.9) > 0.0 for one in found.by_noise[0.2])
    held = noise.result([found])["held"]
    assert isinstance(held, dict)
    assert held["0"] == 3


def test_time_slices_that_one_side_lacks_count_as_unmatched(compare: Compare, scenario: Scenario) -> None:
    outcome = simulate(scenario)
    slices, ends = comparison.slices_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    half = dict(list(slices.items())[::2])
    assert compare(half, ends).matched == pytest.approx(2 / 3, abs=0.05)


def test_objects_of_a_cluster_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"kind": "List", "items": search_at(600.0)}))
    (found,) = comparison.read_searches(tmp_path)
    assert [(node.name, node.gpus) for node in found.scenario.nodes] == [("node-a", 1), ("node-b", 1)]
    (job,) = found.scenario.jobs
    assert len(job.curves) == job.view.limits.max_trials == len(found.ends) == 12
    assert all(curve.steps[-1] == job.view.max_steps for curve in job.curves)
    assert comparison.compared(found).counts[0] == len(found.slices)


def pod(trial: str, gate: str, attempt: str = "0") -> dict[str, Any]:
    gates = [
        {"name": "own-init", "state": {}},
        {"name": "podium-gate", "state": {"terminated": {"startedAt": gate}}},
    ]
    meta = {"name": f"{trial}-{attempt}", "labels": {"podium.dev/trial": trial, "podium.dev/attempt": attempt}}
    return {
        "kind": "Pod",
        "metadata": meta,
        "status": {"initContainerStatuses": gates},
    }


def facts(folder: Path, pods: list[dict[str, Any]], gates: str = "") -> tuple[PodFacts, ...]:
    """Return the facts of the sample job of 09:30:00.

    Its first trials get their GPUs at once and report a value after 0.9 s of training.
    """
    path = folder / "x.json"
    path.write_text(json.dumps({"kind": "List", "items": [*search_at(600.0), *pods]}))
    path.with_suffix(comparison.GATES).write_text(gates)
    (one,) = comparison.read_searches(folder)
    (job,) = one.scenario.jobs
    found: tuple[PodFacts, ...] = job.facts
    return found


ZONE = "2026-01-15T09:30"


def test_gates_that_ask_within_one_check_of_their_agent_ask_together() -> None:
    """These are the first two of node-1; the gate of the other node belongs to another agent."""
    nodes = ("node-1", "node-1", "node-1", "node-2")
    trials: Any = [SimpleNamespace(status=SimpleNamespace(node=node)) for node in nodes]
    made = {0: 10.0, 1: 12.0, 2: 10.0, 3: 10.0}
    asked = starts.together({0: 3.001, 1: 1.006, 2: 3.030, 3: 3.002}, trials, made)
    assert asked == pytest.approx({0: 3.006, 1: 1.006, 2: 3.030, 3: 3.002})


def test_each_trial_has_its_own_gate_time(tmp_path: Path) -> None:
    """It comes from the trial's pod in whole seconds; later attempts and other pods are ignored."""
    others = [
        pod("digits-7", f"{ZONE}:31Z", attempt="1"),
        {"kind": "Pod", "metadata": {"name": "dns"}, "status": {}},
    ]
    found = facts(tmp_path, [pod("digits-7", f"{ZONE}:12Z"), *others])
    assert found[7].gate == pytest.approx(12.5 - 0.1), "its pod is created two reconciliations after the job"
    assert {one.gate for one in found[:7] + found[8:]} == {None}


def test_the_log_of_a_gate_has_fractions_of_a_second(tmp_path: Path) -> None:
    log = "\n".join(
        f"[pod/{name}/podium-gate] {when} wait"
        for name, when in (
            ("digits-7-0", f"{ZONE}:12.250000123Z"),
            ("digits-7-0", f"{ZONE}:13.5Z"),
            ("digits-6-0", f"{ZONE}:11Z"),
            ("digits-5-1", f"{ZONE}:09.1Z"),
        )
    )
    pods = [pod(f"digits-{n}", f"{ZONE}:10Z") for n in (5, 6, 7)]
    found = facts(tmp_path, pods, f"{log}\nerror: something else\n")
    assert [found[n].gate for n in (5, 6, 7)] == pytest.approx([10.4, 10.9, 12.15])


def test_the_log_of_an_agent_has_the_start_of_a_record_and_the_discovery_of_processes() -> None:
    words = ("Gated > Starting (Granted)", "its record begins", "Starting > Running (Started)", "its record begins")
    log = "\n".join(
        f'[pod/podium-agent-7x/agent] {ZONE}:{18 + n}.25Z {{"level": "INFO", "message": "digits-7-0: {word}"}}'
        for n, word in enumerate(words)
    )
    found = pod_times.first_pods([pod("digits-7", f"{ZONE}:10Z")], "", f"{log}\nmore")["digits-7"]
    zero = datetime(2026, 1, 15, 9, 30, tzinfo=UTC).timestamp()
    assert (found.recorded, found.processes, found.asked) == (zero + 19.25, zero + 20.25, None)


@pytest.fixture(scope="module")
def trial() -> HyperParamTrial:
    """A trial that gets its GPU at 10 s and reports every half second from 13 s: its first step begins at 12.5 s."""
    points = [{"step": n + 1, "value": 0.1, "time": 13.0 + 0.5 * n} for n in range(4)]
    holds = [{"gpus": ["g"], "node": "a", "start": datetime.fromtimestamp(10, UTC)}]
    meta = {"name": "t-0", "namespace": "n", "uid": "u"}
    status = {"curve": {"points": points}, "allocations": holds}
    spec = {"job": "t", "number": 0, "parameters": {}}
    return HyperParamTrial.model_validate({"metadata": meta, "spec": spec, "status": status})


def test_times_count_from_the_open_gate(trial: HyperParamTrial) -> None:
    assert starts.after_grant(trial, 10.7) == pytest.approx(0.7)
    assert starts.after_grant(trial, 9.9) == 0.0, "not before its gate is open"
    assert starts.after_grant(trial, None) is None, "the usual time is used then"
    assert starts.first_step(trial, 9.0) == 12.5


MOMENTS = [
    ("the middle of its second", 20.0, 0.0, 99.0, 20.5),
    ("not before the earlier event", 20.0, 20.5, 99.0, 20.75),
    ("not after the later event", 20.0, 0.0, 20.5, 20.25),
    ("clocks that disagree", 20.0, 30.0, 10.0, 30.0),
]


@pytest.mark.parametrize(
    ("second", "after", "before", "found"), [row[1:] for row in MOMENTS], ids=[r[0] for r in MOMENTS]
)
def test_a_moment_of_which_only_the_second_is_known(second: float, after: float, before: float, found: float) -> None:
    assert pod_times.moment(second, after, before) == found
