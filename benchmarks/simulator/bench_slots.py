"""Effect of slots: how much of a policy's gain is left where GPUs have fewer slots than a search has trials?

    make bench-slots [CURVES="PATH ..."] [SEEDS=4] [OUT=FOLDER]
    python -m benchmarks.simulator.bench_slots [--curves PATH ...] [--seeds 4]

The whole system is simulated (as `podium simulate --system`): 64 trials on 4 GPUs of one node, with 4 slots a GPU, the
chart's default, and with 16, one for each trial. The methods are `freeze` alone, where a trial keeps its slot until it
ends, `freeze` with checkpoints, and checkpoints alone. A switch takes 4 s + 4 s, a pod's first step comes after 5 s, a
checkpoint takes 2 s. The figure of a policy is its time_to_near_best against `fifo` in the same setting (above 1:
sooner).

Writes bench-slots.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import TASKSET, add_curves, curve_files, load_curves, positive
from benchmarks.output import add_out, command, result_line, write_page
from podium_simulator.replay.statistics import Ratio, summary
from podium_simulator.system.inputs.scenario import Method, Timing
from podium_simulator.system.inputs.searches import even_nodes
from podium_simulator.system.inputs.switch_times import consistent, switch_method
from podium_simulator.system.results.comparison import BASE, ClusterSpec, compare
from podium_simulator.traces.trace import Trace

GPUS, TRIALS, SEEDS, SWITCH = 4, 64, 4, 4.0
POLICIES = ("envelope", "hermes", "round_robin")
TIMING = Timing(load=5.0, save=2.0)
FREEZE = switch_method("freeze", None, SWITCH, SWITCH, SWITCH)
METHODS: Mapping[str, Method] = {
    "freeze": FREEZE,
    "freeze, app-checkpoint": replace(FREEZE, checkpoints=True),
    "app-checkpoint": switch_method("app-checkpoint", None, TIMING.save, None, SWITCH),
}
CASES = (*((4, name) for name in METHODS), (16, "freeze"), (16, "app-checkpoint"))
Measured = Mapping[str, tuple[Ratio | None, float]]  # policy -> time_to_near_best against fifo, its end over fifo's


def measured(slots: int, name: str, traces: tuple[Trace, ...], seeds: int) -> Measured:
    """Simulate all policies with this many slots a GPU and these methods."""
    chosen, timing = consistent(METHODS[name], TIMING)
    place = ClusterSpec(even_nodes(GPUS, 1, slots), chosen, timing)
    gains: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    ends: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for trace in traces:
        comparison = compare(trace, POLICIES, place, seeds, TRIALS)
        for policy in POLICIES:
            for mine, base in zip(comparison.runs[policy], comparison.runs[BASE], strict=True):
                ends[policy].append(mine.score.end / base.score.end)
                if mine.score.near_best and base.score.near_best:
                    gains[policy].append(base.score.near_best / mine.score.near_best)
    return {p: (summary(gains[p], np.random.default_rng(0)), fmean(ends[p])) for p in POLICIES}


def row(slots: int, name: str, figures: Measured) -> str:
    """Return one row of the table."""
    cells = []
    for policy in POLICIES:
        ratio, end = figures[policy]
        gain = f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] ({ratio.worst:.2f})" if ratio else "never"
        cells.append(f"{gain}, {100 * (end - 1):+.1f} %")
    return f"| {slots} | {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = Parser(__doc__)
    add_curves(parser, TASKSET, "the TaskSet files of benchmarks/data/curves")
    parser.add_argument("--seeds", type=positive, default=SEEDS, help=f"searches of each task (default: {SEEDS})")
    add_out(parser)
    options = parser.parse_args()
    traces = load_curves(curve_files(options.curves))
    figures = {case: measured(*case, traces, options.seeds) for case in CASES}
    result = {
        f"{slots} slots, {name}": {p: None if r is None else round(r.mean, 2) for p, (r, _) in policies.items()}
        for (slots, name), policies in figures.items()
    }
    text = f"""# Slots: what is left of the gain where GPUs have few slots

`{command()}`: {len(traces)} tasks, {options.seeds} searches each of {TRIALS} trials on {GPUS} GPUs, the
whole system simulated ({SWITCH:g} s + {SWITCH:g} s a switch, {TIMING.load:g} s from a pod's open gate to its first
step, {TIMING.save:g} s a checkpoint).

Cells: time_to_near_best against `fifo` in the same setting, geometric mean [95 % bootstrap interval over searches, not
over tasks] (worst search); how much later than with `fifo` the search ends.

| slots | methods | {" | ".join(POLICIES)} |
| --- | --- | {" | ".join("---" for _ in POLICIES)} |
{chr(10).join(row(*case, policies) for case, policies in figures.items())}

With `freeze` alone a trial keeps its slot until it ends: with 4 slots at most 16 of the 64 trials have started at a
time. Where trials write checkpoints that any node can load, trials with a worse rank release their slots to trials with
a better rank ([slots](../../docs/explanation/slots.md)).

{result_line({"bench": "slots", "time_to_near_best_against_fifo": result})}
"""
    write_page(options.out / "bench-slots.md", text)
    print(text, end="")


if __name__ == "__main__":
    main()
