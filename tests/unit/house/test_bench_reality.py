"""The comparison in `make bench-reality`: a search equals itself, and differs if shuffled or slowed down."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from podium_cli.samples import search_at
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.replay.samples import draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.scenario import Method, PodFacts, Scenario
from podium_simulator.system.searches import even_nodes, search_job
from podium_simulator.traces.trace import bundled_trace

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def pods(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "reality_pods.py")


@pytest.fixture(scope="module")
def starts(load_script: Callable[[Path], ModuleType], pods: ModuleType) -> ModuleType:
    return load_script(BENCHMARKS / "reality_starts.py")  # imports reality_pods by name


@pytest.fixture(scope="module")
def compare(load_script: Callable[[Path], ModuleType], starts: ModuleType) -> ModuleType:
    load_script(BENCHMARKS / "reality_curves.py")
    load_script(BENCHMARKS / "reality_forecast.py")
    return load_script(BENCHMARKS / "reality_compare.py")  # imports all of them by name


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario(even_nodes(2, 2, 4), (search_job(draw_sample(bundled_trace(), 0, 8), "hermes", Method()),))


Likened = Callable[[dict[tuple[int, int], float], dict[int, float]], Any]


@pytest.fixture(scope="module")
def likened(compare: ModuleType, scenario: Scenario) -> Likened:
    """Compare the scenario with a run that has these time slices and ends, in which no trial was stopped."""
    return lambda turns, ends: compare.compared(compare.Search(scenario, turns, ends, frozenset(), None))


def test_a_search_equals_itself_and_not_a_shuffled_one(
    compare: ModuleType, likened: Likened, scenario: Scenario
) -> None:
    outcome = simulate(scenario)
    turns, ends = compare.turns_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    same = likened(turns, ends)
    assert (same.matched, same.error(0.9), same.job_error, same.held) == (1.0, 0.0, 0.0, True)
    assert same.tau == pytest.approx(1.0)
    assert same.counts[0] > 8, "some trials must be suspended"
    backwards = dict(zip(turns, sorted(turns.values(), reverse=True), strict=True))
    assert likened(backwards, ends).tau < 0.5
    slower = likened(turns, {n: end * 1.25 for n, end in ends.items()})
    assert slower.error(0.5) == pytest.approx(0.2)
    assert not slower.held
    assert slower.row(0).endswith("| NO |")
    assert compare.error_of((same, slower), 0.9) == pytest.approx(0.2), (
        "the quantile is over all trials, not over all searches"
    )
    assert compare.error_of((same, slower), 0.5) == 0.0


def test_a_search_is_repeated_with_random_speeds(
    compare: ModuleType, load_script: Callable[[Path], ModuleType], scenario: Scenario
) -> None:
    noise = load_script(BENCHMARKS / "reality_noise.py")  # imports reality_compare by name
    assert noise.noisy(scenario, 0.0, 0) == scenario
    assert noise.noisy(scenario, 0.01, 0) == noise.noisy(scenario, 0.01, 0) != noise.noisy(scenario, 0.01, 1)
    noise.NOISES, noise.REPEATS = (0.0, 0.2), 3
    repeated = noise.repeated(compare.Search(scenario, {}, {}, frozenset(), None))
    assert [(run.held, run.error(0.9)) for run in repeated.again[0.0]] == [(True, 0.0)] * 3
    assert all(run.error(0.9) > 0.0 for run in repeated.again[0.2])
    assert noise.result([repeated])["held"]["0"] == 3


def test_missing_time_slices_lower_the_match(compare: ModuleType, likened: Likened, scenario: Scenario) -> None:
    outcome = simulate(scenario)
    turns, ends = compare.turns_of(outcome), {trial.number: trial.ended for trial in outcome.trials}
    half = dict(list(turns.items())[::2])
    assert likened(half, ends).matched == pytest.approx(2 / 3, abs=0.05)


def test_objects_exported_from_a_cluster_are_read(compare: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"kind": "List", "items": search_at(600.0)}))
    (real,) = compare.read_searches(tmp_path)
    assert [(node.name, node.gpus) for node in real.scenario.nodes] == [("node-a", 1), ("node-b", 1)]
    (job,) = real.scenario.jobs
    assert len(job.curves) == job.view.max_trials == len(real.ends) == 12
    assert all(curve.steps[-1] == job.view.max_steps for curve in job.curves)
    assert compare.compared(real).counts[0] == len(real.turns)


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


def facts(compare: ModuleType, folder: Path, pods: list[dict[str, Any]], gates: str = "") -> tuple[PodFacts, ...]:
    """Return the facts of the sample job, which starts at 09:30:00.

    Its first trials receive their GPUs at once and show a value after 0.9 s of training.
    """
    path = folder / "x.json"
    path.write_text(json.dumps({"kind": "List", "items": [*search_at(600.0), *pods]}))
    path.with_suffix(compare.GATES).write_text(gates)
    (run,) = compare.read_searches(folder)
    (job,) = run.scenario.jobs
    pod_facts: tuple[PodFacts, ...] = job.facts
    return pod_facts


ZONE = "2026-01-15T09:30"


def test_gates_within_one_poll_of_their_agent_count_as_simultaneous(starts: ModuleType) -> None:
    """The first two gates on node-1 are in one poll; the gate on the other node has another agent."""
    nodes = ("node-1", "node-1", "node-1", "node-2")
    trials = [SimpleNamespace(status=SimpleNamespace(node=node)) for node in nodes]
    made = {0: 10.0, 1: 12.0, 2: 10.0, 3: 10.0}
    asked = starts.in_looks({0: 3.001, 1: 1.006, 2: 3.030, 3: 3.002}, trials, made)
    assert asked == pytest.approx({0: 3.006, 1: 1.006, 2: 3.030, 3: 3.002})


def test_each_trial_has_its_own_gate_time(compare: ModuleType, tmp_path: Path) -> None:
    """The pod gives it in whole seconds; later attempts and other pods do not count."""
    others = [
        pod("digits-7", f"{ZONE}:31Z", attempt="1"),
        {"kind": "Pod", "metadata": {"name": "dns"}, "status": {}},
    ]
    times = facts(compare, tmp_path, [pod("digits-7", f"{ZONE}:12Z"), *others])
    assert times[7].gate == pytest.approx(12.5 - 0.1), "the pod is created two cycles after the job"
    assert {trial.gate for trial in times[:7] + times[8:]} == {None}


def test_the_gates_log_is_more_precise_than_its_pod(compare: ModuleType, tmp_path: Path) -> None:
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
    times = facts(compare, tmp_path, pods, f"{log}\nerror: something else\n")
    assert [times[n].gate for n in (5, 6, 7)] == pytest.approx([10.4, 10.9, 12.15])


def test_the_agents_log_gives_the_times_of_records_and_processes(pods: ModuleType) -> None:
    words = ("Gated > Starting (Granted)", "its record begins", "Starting > Running (Started)", "its record begins")
    log = "\n".join(
        f'[pod/podium-agent-7x/agent] {ZONE}:{18 + n}.25Z {{"level": "INFO", "message": "digits-7-0: {word}"}}'
        for n, word in enumerate(words)
    )
    real = pods.first_pods([pod("digits-7", f"{ZONE}:10Z")], "", f"{log}\nmore")["digits-7"]
    zero = datetime(2026, 1, 15, 9, 30, tzinfo=UTC).timestamp()
    assert (real.recorded, real.found, real.asked) == (zero + 19.25, zero + 20.25, None)


@pytest.fixture(scope="module")
def trial() -> HyperParamTrial:
    """Return a trial whose gate opens at 10 s.

    Its first value is at 13 s and a step takes half a second, so its first step starts at 12.5 s.
    """
    points = [{"step": n + 1, "value": 0.1, "time": 13.0 + 0.5 * n} for n in range(4)]
    holds = [{"gpus": ["g"], "node": "a", "start": datetime.fromtimestamp(10, UTC)}]
    meta = {"name": "t-0", "namespace": "n", "uid": "u"}
    status = {"curve": {"points": points}, "allocations": holds}
    spec = {"job": "t", "number": 0, "parameters": {}}
    return HyperParamTrial.model_validate({"metadata": meta, "spec": spec, "status": status})


def test_the_start_of_the_containers_is_relative_to_the_gate(starts: ModuleType, trial: HyperParamTrial) -> None:
    assert starts.after_grant(trial, 10.7) == pytest.approx(0.7)
    assert starts.after_grant(trial, 9.9) == 0.0, "the containers cannot start before the gate opens"
    assert starts.after_grant(trial, None) is None, "unknown without a start time"
    assert starts.first_step(trial, 9.0) == 12.5


INSTANTS = [
    ("the middle of its second", 20.0, 0.0, 99.0, 20.5),
    ("not before the preceding event", 20.0, 20.5, 99.0, 20.75),
    ("not after the following event", 20.0, 0.0, 20.5, 20.25),
    ("clocks that disagree", 20.0, 30.0, 10.0, 30.0),
]


@pytest.mark.parametrize(
    ("second", "after", "before", "expected"), [row[1:] for row in INSTANTS], ids=[row[0] for row in INSTANTS]
)
def test_an_instant_known_to_the_second_is_estimated(
    pods: ModuleType, second: float, after: float, before: float, expected: float
) -> None:
    assert pods.moment(second, after, before) == expected
