"""How much of a policy's gain is left on a cluster, where GPUs have fewer shares than a search has trials?

`make bench-places` (CURVES=files) writes benchmarks/results/bench-places.md and prints `RESULT {json}`. The whole
system (as `podium simulate --system`): 64 trials on 4 GPUs of one node with 4 shares, the chart's default, and with 16,
as many as there are trials; by `freeze` alone, where who has a place keeps it to its end, with saves beside it, and by
saves alone. 4 s + 4 s a switch, 5 s until a pod's first step, 2 s a save. Per policy: the time to within 1 % of the
pool's best against `fifo` on the same place (above 1: sooner).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from podium_simulator.replay.statistics import Ratio, summary
from podium_simulator.system.comparison import BASE, ClusterSpec, compare
from podium_simulator.system.scenario import Method, Timing
from podium_simulator.system.searches import even_nodes
from podium_simulator.system.switch_times import consistent, switch_method
from podium_simulator.traces.trace import Trace, bundled_trace, load_all

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "bench-places.md"
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
Found = Mapping[str, tuple[Ratio | None, float]]  # policy: against fifo, its end over fifo's


def measured(shares: int, name: str, recordings: tuple[Trace, ...], seeds: int) -> Found:
    how, timing = consistent(METHODS[name], TIMING)
    place = ClusterSpec(even_nodes(GPUS, 1, shares), how, timing)
    gains: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    ends: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for recording in recordings:
        found = compare(recording, POLICIES, place, seeds, TRIALS)
        for policy in POLICIES:
            for mine, base in zip(found.runs[policy], found.runs[BASE], strict=True):
                ends[policy].append(mine.score.end / base.score.end)
                if mine.score.near_best and base.score.near_best:
                    gains[policy].append(base.score.near_best / mine.score.near_best)
    return {p: (summary(gains[p], np.random.default_rng(0)), fmean(ends[p])) for p in POLICIES}


def row(shares: int, name: str, found: Found) -> str:
    cells = []
    for policy in POLICIES:
        ratio, end = found[policy]
        said = f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] ({ratio.worst:.2f})" if ratio else "never"
        cells.append(f"{said}, {100 * (end - 1):+.1f} %")
    return f"| {shares} | {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="*", type=Path, help="files or folders (default: the example's curves)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"searches a task ({SEEDS})")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    recordings = load_all(arguments.curves) if arguments.curves else (bundled_trace(),)
    found = {case: measured(*case, recordings, arguments.seeds) for case in CASES}
    result = {
        f"{shares} shares, {name}": {p: None if r is None else round(r.mean, 2) for p, (r, _) in policies.items()}
        for (shares, name), policies in found.items()
    }
    given = (
        f" --curves {' '.join(f'../shared/curves/{path.name}' for path in arguments.curves)}"
        if arguments.curves
        else ""
    )
    text = f"""# Places: what is left of the gain where GPUs have few shares

`python benchmarks/bench_places.py{given} --seeds {arguments.seeds}`:
{len(recordings)} tasks, {arguments.seeds} searches each of {TRIALS} trials on {GPUS} GPUs, the whole system simulated
({SWITCH:g} s + {SWITCH:g} s a switch, {TIMING.load:g} s from a pod's open gate to its first step,
{TIMING.save:g} s a save).

Cells: time to within 1 % of the best against `fifo` on the same place, geometric mean [95 % bootstrap interval over
searches, not over tasks] (worst search); how much later than `fifo`'s the search ends.

| shares | methods | {" | ".join(POLICIES)} |
| --- | --- | {" | ".join("---" for _ in POLICIES)} |
{chr(10).join(row(*case, policies) for case, policies in found.items())}

By `freeze` alone a trial that has a place keeps it until it ends: with 4 shares no more than 16 of the 64 are open at a
time. Where trials save for any node, those that rank behind give their places to those that rank before them
([places](../../docs/explanation/slots.md)).

RESULT {json.dumps({"bench": "places", "near_best_against_fifo": result})}
"""
    arguments.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
