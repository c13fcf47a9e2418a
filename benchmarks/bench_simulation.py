"""How fast the simulated system is: the operator's own planner on virtual time, in one process.

`make bench-simulation` (CURVES=FILE) writes benchmarks/results/bench-simulation.md and prints
`RESULT {json}`. Times are CPU seconds of this process, the least of three runs (as `timeit` has it): the machine may be
busy with something else, which makes a run longer and never shorter. Settings:

- replay: the policy alone, as `podium simulate` and bench-hpo have it, 128 trials on 8 GPUs; bar: 2 s;
- searches: the whole system (`--system`), 128 trials on 8 GPUs, each policy, an evaluation a minute; bar: 2 s. Its GPUs
  have four shares each: 32 trials have a place at a time, and the others are created as places come free;
- exact: the same with `--exact`, where most evaluations make a plan of their own: the speed of the planner, and whether
  searches that plan less often are others;
- traffic: many evaluations between two reports, as many short epochs make; bar: 10^6 events a minute.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import TypeVar

import numpy as np

from podium_core.policies.registry import NAMES, create
from podium_core.testing.builders import make_job
from podium_simulator.replay.engine import replay
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.statistics import geometric_mean, summary
from podium_simulator.system.comparison import ClusterSpec, compare
from podium_simulator.system.engine import simulate
from podium_simulator.system.outcome import Outcome
from podium_simulator.system.scenario import Method, NodeSpec, Scenario, SimJob
from podium_simulator.traces.trace import RecordedTrial, Trace, bundled_trace, load

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "bench-simulation.md"
TRIALS, GPUS, POOLS, RUNS = 128, 8, 20, 3
BAR_SECONDS, BAR_EVENTS = 2.0, 1e6
LIKENED = ("envelope", "hermes", "slaq")
NODES = (NodeSpec("node-a", GPUS // 2), NodeSpec("node-b", GPUS // 2))
PLACES = sum(node.gpus * node.shares for node in NODES)
METHOD = Method(suspend=4.0, resume=4.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    outcome: Outcome
    seconds: float

    @property
    def events_a_minute(self) -> float:
        return 60.0 * self.outcome.events / self.seconds

    @property
    def row(self) -> str:
        plans, rate = self.outcome.plans, self.events_a_minute / 1e6
        each = 1e3 * self.seconds / plans
        return f"| {self.name} | {self.seconds:.2f} | {self.outcome.events} | {plans} | {each:.2f} | {rate:.2f} |"


HEAD = "| | CPU seconds | events | plans | ms a plan | 10^6 events a minute |\n| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True)
class Replay:
    name: str
    decisions: int
    seconds: float

    @property
    def row(self) -> str:
        return f"| {self.name} | {self.seconds:.2f} | {self.decisions} | {1e3 * self.seconds / self.decisions:.2f} |"


def least(run: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds of the fastest run."""
    seconds = []
    for _ in range(RUNS):
        begun = process_time()
        found = run()
        seconds.append(process_time() - begun)
    return found, min(seconds)


def replayed(name: str, pool: Sample) -> Replay:
    history, seconds = least(lambda: replay(pool, create(name, {}), Machine(GPUS)))
    return Replay(name, history.decisions, seconds)


def timed(name: str, scenario: Scenario) -> Run:
    return Run(name, *least(lambda: simulate(scenario)))


def search(policy: str, curves: Sequence[RecordedTrial], maximize: bool) -> Scenario:
    longest = max((c.steps or c.seconds)[-1] for c in curves)
    view = make_job(policy=policy, max_trials=TRIALS, parallel=None, max_steps=longest, maximize=maximize)
    return Scenario(NODES, (SimJob(view, tuple(curves), METHOD),))


def exact(scenario: Scenario) -> Scenario:
    return replace(scenario, timing=replace(scenario.timing, progress=0.0))


@dataclass(frozen=True, slots=True)
class Alike:
    """Of one policy on some pools: what was measured without `exact` over what was measured with it, a ratio a pool."""

    name: str
    near_best: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def row(self) -> str:
        def cell(ratios: tuple[float, ...]) -> str:
            found = summary(ratios, np.random.default_rng(0))
            return (
                f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] ({found.worst:.2f} to {found.best:.2f})"
                if found
                else ""
            )

        return f"| {self.name} | {cell(self.near_best)} | {cell(self.ends)} |"


def alike(name: str, recording: Trace, pools: int) -> Alike:
    """As `podium simulate --system` with and without `--exact`."""
    place = ClusterSpec(NODES, METHOD)
    at_once = replace(place, timing=replace(place.timing, progress=0.0))
    ours, theirs = (
        [run.score for run in compare(recording, [name], where, pools, TRIALS).runs[name]] for where in (place, at_once)
    )
    pairs = list(zip(ours, theirs, strict=True))
    near = [(a.near_best, b.near_best) for a, b in pairs]
    return Alike(name, tuple(a / b for a, b in near if a and b), tuple(a.end / b.end for a, b in pairs))


def traffic() -> Scenario:
    """256 trials on 64 GPUs, 400 evaluations each, one each 20 ms."""
    random = np.random.default_rng(0)
    curves = []
    for number in range(256):
        seconds = 0.02 * np.arange(1, 401)
        values = random.uniform(0.5, 0.9) * (1.0 - np.exp(-seconds))
        curves.append(RecordedTrial(f"t{number}", {}, tuple(seconds.tolist()), tuple(values.tolist())))
    view = make_job(policy="hermes", max_trials=256, parallel=None, max_steps=curves[0].length)
    nodes = tuple(NodeSpec(f"node-{i}", 8) for i in range(8))
    return Scenario(nodes, (SimJob(view, tuple(curves)),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=Path, help="a recording with 128 trials or more (default: the example's)")
    parser.add_argument("--pools", type=int, default=POOLS, help=f"searches with and without --exact ({POOLS})")
    arguments = parser.parse_args()
    recording = bundled_trace() if arguments.curves is None else load(arguments.curves)
    pool = draw_sample(recording, 0, TRIALS)
    curves = pool.trials
    replays = [replayed(name, pool) for name in NAMES]
    searches = [timed(name, search(name, curves, recording.maximize)) for name in NAMES]
    all_planned = [timed(name, exact(search(name, curves, recording.maximize))) for name in LIKENED]
    likened = [alike(name, recording, arguments.pools) for name in LIKENED]
    busy = timed("traffic", traffic())
    again = simulate(traffic()) == busy.outcome
    below = ", ".join(run.name for run in searches if run.events_a_minute < BAR_EVENTS)
    slow = [run.name for run in searches if run.seconds >= BAR_SECONDS]
    result = {
        "bench": "simulation",
        "curves": recording.task,
        "replay_cpu_seconds": {run.name: round(run.seconds, 2) for run in replays},
        "replays_over_the_bar": [run.name for run in replays if run.seconds >= BAR_SECONDS],
        "search_cpu_seconds": {run.name: round(run.seconds, 2) for run in searches},
        "search_bar_seconds": BAR_SECONDS,
        "exact_cpu_seconds": {run.name: round(run.seconds, 2) for run in all_planned},
        "near_best_over_exact": {one.name: round(geometric_mean(one.near_best), 3) for one in likened},
        "end_over_exact": {one.name: round(geometric_mean(one.ends), 3) for one in likened},
        "policies_over_the_bar": slow,
        "events_a_minute_searches": {run.name: round(run.events_a_minute) for run in searches},
        "events_a_minute_traffic": round(busy.events_a_minute),
        "events_bar": BAR_EVENTS,
        "events_bar_held_in_traffic": busy.events_a_minute >= BAR_EVENTS,
        "same_bits_twice": again,
    }
    command = "python benchmarks/bench_simulation.py"
    command += f" --curves {arguments.curves.name}" if arguments.curves else ""
    text = f"""# Speed of the simulated system

`{command}`, Python {platform.python_version()}, {platform.machine()}. CPU seconds of one process, the least of
{RUNS} runs; an event is something that happened in the simulated system (an evaluation, a report, a cycle of the
operator, a change of a pod).

## Replay of {len(curves)} trials on {GPUS} GPUs ({recording.task}, 4 s + 4 s a switch); bar {BAR_SECONDS:g} s

| | CPU seconds | decisions | ms a decision |
| --- | --- | --- | --- |
{chr(10).join(run.row for run in replays)}

Over the bar: {", ".join(run.name for run in replays if run.seconds >= BAR_SECONDS) or "none"}.

## The whole system: {TRIALS} trials on {GPUS} GPUs (an evaluation a minute, 4 s + 4 s a switch); bar {BAR_SECONDS:g} s

The GPUs have {NODES[0].shares} shares each, {PLACES} places: as many of the trials are there at a time, not all
{TRIALS} as in the replay, and a plan ranks these.

{HEAD}
{chr(10).join(run.row for run in searches)}

Over the bar: {", ".join(slow) or "none"}. Below 10^6 events a minute, the bar of the traffic below: {below or "none"}
(a search has few events, and each may be a plan).

## The same with `--exact`: a plan at each value and each step of a hand-over, as the operator makes

{HEAD}
{chr(10).join(run.row for run in all_planned)}

Without it over with it, {arguments.pools} searches; geometric mean [95 % interval] (lowest to highest):

| | time to within 1 % of the best | end |
| --- | --- | --- |
{chr(10).join(one.row for one in likened)}

## Traffic: 256 trials on 64 GPUs, an evaluation each 20 ms; bar 10^6 events a minute

{HEAD}
{busy.row}

The same run twice gave the same bits: {again}.

RESULT {json.dumps(result)}
"""
    RESULTS.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
