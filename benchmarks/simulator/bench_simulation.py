"""Speed of the simulated system: the operator's own planner on virtual time, in one process.

    make bench-simulation [CURVES=FILE] [OUT=FOLDER]
    python -m benchmarks.simulator.bench_simulation [--curves FILE] [--samples 20]

Times are CPU seconds of this process, the smallest of three runs (as `timeit` reports it): other work on the machine
can only make a run longer. Settings:

- replay: the policy alone, as `podium simulate` and bench-hpo run it, 128 trials on 8 GPUs; bar: 2 s;
- searches: the whole system (`--system`), 128 trials on 8 GPUs, each policy, an evaluation a minute; bar: 2 s. Its GPUs
  have four slots each: 32 trials have a slot at a time, and the others are created as slots become free;
- exact: the same with `--exact`, where most evaluations make a plan of their own. It shows the speed of the planner,
  and whether searches that plan less often differ;
- traffic: many evaluations between two reports, as many short epochs make; bar: 10^6 events a minute.

Writes bench-simulation.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import process_time
from typing import TypeVar

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import TASKSET, add_curves, curve_files, load_curves, positive
from benchmarks.output import add_out, command, result_line, write_page
from podium_core.policies.registry import NAMES, create
from podium_core.testing.builders import make_job
from podium_simulator.replay.engine import replay
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.statistics import geometric_mean, summary
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob
from podium_simulator.system.results.comparison import ClusterSpec, compare
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial, Trace

TRIALS, GPUS, SAMPLES, RUNS = 128, 8, 20, 3
BAR_SECONDS, BAR_EVENTS = 2.0, 1e6
COMPARED = ("envelope", "hermes", "slaq")
NODES = (NodeSpec("node-a", GPUS // 2), NodeSpec("node-b", GPUS // 2))
SLOTS = sum(node.gpus * node.slots for node in NODES)
METHOD = Method(suspend=4.0, resume=4.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated search and the CPU seconds that it took."""

    name: str
    outcome: Outcome
    seconds: float

    @property
    def events_per_minute(self) -> float:
        return 60.0 * self.outcome.events / self.seconds

    @property
    def row(self) -> str:
        plans, rate = self.outcome.plans, self.events_per_minute / 1e6
        each = 1e3 * self.seconds / plans
        return f"| {self.name} | {self.seconds:.2f} | {self.outcome.events} | {plans} | {each:.2f} | {rate:.2f} |"


HEAD = "| | CPU seconds | events | plans | ms a plan | 10^6 events a minute |\n| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One replay of a policy alone and the CPU seconds that it took."""

    name: str
    decisions: int
    seconds: float

    @property
    def row(self) -> str:
        return f"| {self.name} | {self.seconds:.2f} | {self.decisions} | {1e3 * self.seconds / self.decisions:.2f} |"


def fastest(run: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `run`, and the CPU seconds of its fastest repetition."""
    seconds = []
    for _ in range(RUNS):
        start = process_time()
        result = run()
        seconds.append(process_time() - start)
    return result, min(seconds)


def replayed(name: str, sample: Sample) -> ReplayRun:
    """Time the replay of one policy."""
    history, seconds = fastest(lambda: replay(sample, create(name, {}), Machine(GPUS)))
    return ReplayRun(name, history.decisions, seconds)


def timed(name: str, scenario: Scenario) -> Run:
    """Time the simulation of one scenario."""
    return Run(name, *fastest(lambda: simulate(scenario)))


def search(policy: str, curves: Sequence[RecordedTrial], maximize: bool) -> Scenario:
    """Return a search of these curves under one policy."""
    longest = max((c.steps or c.seconds)[-1] for c in curves)
    view = make_job(policy=policy, max_trials=TRIALS, parallel=None, max_steps=longest, maximize=maximize)
    return Scenario(NODES, (SimJob(view, tuple(curves), METHOD),))


def exact(scenario: Scenario) -> Scenario:
    """Return the scenario as `--exact` simulates it: a plan at each value."""
    return replace(scenario, timing=replace(scenario.timing, progress=0.0))


@dataclass(frozen=True, slots=True)
class ExactRatios:
    """Ratios of one policy's figures without `exact` to those with it, one for each sample."""

    name: str
    near_best: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def row(self) -> str:
        def cell(ratios: tuple[float, ...]) -> str:
            interval = summary(ratios, np.random.default_rng(0))
            return (
                f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}] "
                f"({interval.worst:.2f} to {interval.best:.2f})"
                if interval
                else ""
            )

        return f"| {self.name} | {cell(self.near_best)} | {cell(self.ends)} |"


def exact_ratios(name: str, trace: Trace, samples: int) -> ExactRatios:
    """Compare `podium simulate --system` with and without `--exact` on some samples."""
    place = ClusterSpec(NODES, METHOD)
    exact_place = replace(place, timing=replace(place.timing, progress=0.0))
    usual, precise = (
        [run.score for run in compare(trace, [name], where, samples, TRIALS).runs[name]]
        for where in (place, exact_place)
    )
    pairs = list(zip(usual, precise, strict=True))
    near = [(a.near_best, b.near_best) for a, b in pairs]
    return ExactRatios(name, tuple(a / b for a, b in near if a and b), tuple(a.end / b.end for a, b in pairs))


def traffic() -> Scenario:
    """Return 256 trials on 64 GPUs with 400 evaluations each, one every 20 ms."""
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
    parser = Parser(__doc__)
    add_curves(parser, TASKSET[:1], f"benchmarks/data/curves/{TASKSET[0].name}")
    parser.add_argument(
        "--samples", type=positive, default=SAMPLES, help=f"searches with and without --exact ({SAMPLES})"
    )
    add_out(parser)
    options = parser.parse_args()
    traces = load_curves(curve_files(options.curves))
    if len(traces) != 1:
        parser.error(f"--curves: {len(traces)} tasks; give one file")
    trace = traces[0]
    sample = draw_sample(trace, 0, TRIALS)
    curves = sample.trials
    replays = [replayed(name, sample) for name in NAMES]
    searches = [timed(name, search(name, curves, trace.maximize)) for name in NAMES]
    exact_searches = [timed(name, exact(search(name, curves, trace.maximize))) for name in COMPARED]
    ratios = [exact_ratios(name, trace, options.samples) for name in COMPARED]
    busy = timed("traffic", traffic())
    repeats = simulate(traffic()) == busy.outcome
    below = ", ".join(run.name for run in searches if run.events_per_minute < BAR_EVENTS)
    slow = [run.name for run in searches if run.seconds >= BAR_SECONDS]
    slow_replays = [run.name for run in replays if run.seconds >= BAR_SECONDS]
    result = {
        "bench": "simulation",
        "curves": trace.task,
        "replay_cpu_seconds": {run.name: round(run.seconds, 2) for run in replays},
        "replays_over_the_bar": slow_replays,
        "search_cpu_seconds": {run.name: round(run.seconds, 2) for run in searches},
        "search_bar_seconds": BAR_SECONDS,
        "exact_cpu_seconds": {run.name: round(run.seconds, 2) for run in exact_searches},
        "time_to_near_best_over_exact": {one.name: round(geometric_mean(one.near_best), 3) for one in ratios},
        "end_over_exact": {one.name: round(geometric_mean(one.ends), 3) for one in ratios},
        "policies_over_the_bar": slow,
        "events_per_minute_searches": {run.name: round(run.events_per_minute) for run in searches},
        "events_per_minute_traffic": round(busy.events_per_minute),
        "events_bar": BAR_EVENTS,
        "events_bar_held_in_traffic": busy.events_per_minute >= BAR_EVENTS,
        "same_bits_twice": repeats,
    }
    text = f"""# Speed of the simulated system

`{command()}`, Python {platform.python_version()}, {platform.machine()}. CPU seconds of one process, the
smallest of {RUNS} runs. An event is something that happened in the simulated system: an evaluation, a report, a
reconciliation of the operator, a change of a pod.

## Replay of {len(curves)} trials on {GPUS} GPUs ({trace.task}, 4 s + 4 s a switch); bar {BAR_SECONDS:g} s

| | CPU seconds | decisions | ms a decision |
| --- | --- | --- | --- |
{chr(10).join(run.row for run in replays)}

Over the bar: {", ".join(slow_replays) or "none"}.

## The whole system: {TRIALS} trials on {GPUS} GPUs (an evaluation a minute, 4 s + 4 s a switch); bar {BAR_SECONDS:g} s

The GPUs have {NODES[0].slots} slots each, {SLOTS} together. That many trials exist at a time, not all {TRIALS} as in
the replay, and a plan ranks these.

{HEAD}
{chr(10).join(run.row for run in searches)}

Over the bar: {", ".join(slow) or "none"}. Below 10^6 events a minute, the bar of the traffic below: {below or "none"}
(a search has few events, and each can be a plan).

## The same with `--exact`: a plan at each value and each step of a switch, as the operator makes them

{HEAD}
{chr(10).join(run.row for run in exact_searches)}

Without it over with it, {options.samples} searches; geometric mean [95 % interval] (lowest to highest):

| | time_to_near_best | end |
| --- | --- | --- |
{chr(10).join(one.row for one in ratios)}

## Traffic: 256 trials on 64 GPUs, an evaluation every 20 ms; bar 10^6 events a minute

{HEAD}
{busy.row}

The same run twice gave the same bits: {repeats}.

{result_line(result)}
"""
    write_page(options.out / "bench-simulation.md", text)
    print(text, end="")


if __name__ == "__main__":
    main()
