"""Every ranking policy replayed on the same recorded learning curves: how much sooner does each find good trials?

    make bench-hpo [CURVES=folder-or-files] [GPUS=4,8] [SEEDS=15]
    python benchmarks/bench_hpo.py --curves ../shared/curves --gpus 4,8 --seeds 15

Definitions: docs/benchmarks/policies.md. Without a folder of curves it runs on the small set recorded from our
own example. `--check-reference` does nothing but hold this replay against the development table of an independent
replay, on that table's own pools (benchmarks/results/bench-hpo-reference.md);
`--cross-validate` does nothing but tune the envelope (`--seeds` pools a task) on all tasks but one and measure it on
that one (`--held-out-seeds`; beside it the rivals among `--policies`), for each task (bench-hpo-cross-validation.md;
`--folds 5` holds out a fifth of the tasks at a time, which takes half as long); `--until-won` does nothing but hold the
envelope against fifo, each replay ended at the best trial (bench-hpo-until-won.md). Writes
benchmarks/results/bench-hpo.md and .png after each part; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from hpo_bars import Figures, bars_beside, bars_report
from hpo_calibration import calibration_report
from hpo_cross_validation import Plan, cross_validate
from hpo_early_order import early_order_report
from hpo_reference import reference_check
from hpo_report import (
    BASES,
    FAMILIES,
    against_table,
    floor_cost,
    floor_costs,
    measured,
    plot,
    rounded,
    slowdown,
    table,
    task_table,
    uses_table,
)
from hpo_runs import ENTRANTS, LONG, SHORT, Run, jobs_of, recordings, run_all
from hpo_speed import BAR, over_the_bar, speed_report
from hpo_until_won import until_won

from podium_simulator.replay.samples import Machine

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "curves"
RESULTS = Path(__file__).parent / "results"
CLOSE = ("envelope", "hermes", "best_so_far", "median_stop", "asha", "oracle")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="*", type=Path, default=[SHARED] if SHARED.exists() else [])
    parser.add_argument("--gpus", default="4,8")
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--size", type=int, default=64, help="trials of a pool")
    parser.add_argument("--policies", default=",".join(ENTRANTS), help=f"some of: {', '.join(ENTRANTS)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--brief", action="store_true", help="the tables and bars of the runs, nothing further")
    parser.add_argument("--check-reference", action="store_true")
    parser.add_argument("--cross-validate", action="store_true")
    parser.add_argument("--held-out-seeds", type=int, default=5)
    parser.add_argument("--folds", type=int, default=0, help="0: each task is held out alone")
    parser.add_argument("--until-won", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "bench-hpo.md")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    curves = tuple(args.curves)
    names = list(dict.fromkeys(["fifo", *args.policies.split(",")]))
    unknown = [name for name in names if name not in ENTRANTS]
    if unknown:
        raise SystemExit(f"--policies: {unknown[0]!r} is not known; choose some of: {', '.join(ENTRANTS)}")
    start = perf_counter()
    outcome: dict[str, object] = {}
    title = f"# bench-hpo\n\n`python {' '.join(sys.argv)}` on {os.cpu_count()} cores.\n"
    if args.check_reference:
        return finish(args.out.with_name(f"{args.out.stem}-reference.md"), [title, reference(args, outcome)], outcome)
    if args.cross_validate:
        plan = Plan(curves, args.size, args.processes, args.seeds, args.held_out_seeds, args.folds, tuple(names))
        parts = [title, cross_validate(plan, outcome)]
        parts.append(f"Took {perf_counter() - start:.0f} s.\n")
        return finish(args.out.with_name(f"{args.out.stem}-cross-validation.md"), parts, outcome)
    if args.until_won:
        gpus = int(args.gpus.split(",")[0])
        parts = [title, until_won(curves, gpus, args.seeds, args.size, args.processes, outcome)]
        parts.append(f"Took {perf_counter() - start:.0f} s.\n")
        return finish(args.out.with_name(f"{args.out.stem}-until-won.md"), parts, outcome)
    parts = [title, LEGEND]
    outcome["gpus"] = {}
    for gpus in (int(count) for count in args.gpus.split(",")):
        runs = run_all(jobs_of(curves, "own", args.seeds, args.size, names, Machine(gpus, SHORT)), args.processes)
        figures = measured(runs)
        outcome["gpus"][str(gpus)] = rounded(figures)  # type: ignore[index]
        parts.append(section(runs, gpus, args.seeds, args.size))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        image = args.out.with_name(f"{args.out.stem}-{gpus}gpus.png")
        plot(runs, f"{gpus} GPUs, {args.size} trials, {args.seeds} seeds a task", image)
        parts.append(f"![{gpus} GPUs]({image.name})\n")
        print(parts[-2], flush=True)
        args.out.write_text("\n".join(parts))
        if gpus == int(args.gpus.split(",")[0]):
            costs: Figures = {}
            if not args.brief:
                text, costs = further(curves, runs, args, Machine(gpus, LONG), outcome)
                parts += text
            parts.append(bars_report(figures, costs, outcome))
        else:
            parts.append(bars_beside(figures, floor_costs(runs), gpus))
        print(parts[-1], flush=True)
        args.out.write_text("\n".join(parts))
    if not args.brief:
        parts.append(speed_report(outcome))
    if not (args.brief and curves):  # seconds, and our own example has no other report
        parts.append(calibration_report(recordings(curves).values(), outcome))
    if not args.brief:
        parts.append(early_order_report(recordings(curves).values()))
    parts.append(f"Took {perf_counter() - start:.0f} s.\n")
    return finish(args.out, parts, outcome)


def reference(args: argparse.Namespace, outcome: dict[str, object]) -> str:
    found = reference_check(tuple(args.curves), args.processes, outcome)
    print(found, flush=True)
    return found


def finish(path: Path, parts: Sequence[str], outcome: dict[str, object]) -> int:
    line = f"RESULT {json.dumps(outcome)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, f"```\n{line}\n```\n"]))
    print(line)
    over = over_the_bar(outcome)
    if over:
        print(f"MISSED: a tick of {', '.join(over)} takes {BAR} microseconds or more", file=sys.stderr)
    return 1 if over else 0


LEGEND = """Ratios are the time of fifo over the time of the policy: above 1 = faster than fifo; in the tables
"against round_robin" and "against slaq" the time of that one over the time of the policy. Geometric means over
tasks and seeds [95 % bootstrap interval over runs, not over tasks: what another task would give is not in it] (worst
single run). a: until a trial reaches the target (TaskSet: a1); a1: until a value within 1 % of the best; b: until the
best trial has completed; c: regret over time; GPU s to b: share of what fifo uses; plan: share of all training that the
policy's own plan takes; wait: longest wait of a live trial in lengths of the longest trial. Rivals are run by the rule
of their own definition (any better rank takes the GPU), `hermes_cluster` and `envelope` by the planner's switch rule,
`envelope_turns` by its minimum turns as well, which the definitions of this table do not have (at 4 s + 4 s: 80 s, and
267 s for a trial that has been suspended before).

(d): GPU seconds until (b), of fifo's, and their shares by use (means of the runs): trained = best (the best trial) +
completed (those that had completed by then) + begun (those that had not, those that the policy had ended among them:
a replay does not keep these two apart); thrown away: training of trials that the policy had ended and that had to
begin again; switches: suspensions and resumptions. idle: share of the GPUs' time until (b) in which nothing used them,
beside the others. A replay has no start-up, no checkpoint that fails and no work that a suspension loses: these uses
are not known here.
"""


def section(runs: Sequence[Run], gpus: int, seeds: int, size: int) -> str:
    text = [f"## {gpus} GPUs, {size} trials, suspend + resume 4 s + 4 s, {seeds} seeds a task\n"]
    for family in dict.fromkeys(run.family for run in runs):
        text += [f"### {FAMILIES.get(family, family)}\n", table(runs, family), ""]
        for against in (against_table(runs, family, base) for base in BASES):
            text += [against, ""] if against else []
        text += [uses_table(runs, family), ""]
        for metric in ("a", "b"):
            text += [f"({metric}) by task:\n", task_table(runs, family, CLOSE, metric), ""]
    return "\n".join(text)


def further(
    curves: tuple[Path, ...], runs: Sequence[Run], args: argparse.Namespace, dear: Machine, outcome: dict[str, object]
) -> tuple[list[str], Figures]:
    """Dear switches, the floor's price, and pools in which no configuration repeats; beside the text what those cost,
    by family, as measured.
    """
    names = ["fifo", "hermes", "envelope"]
    slow = run_all(jobs_of(curves, "own", args.seeds, args.size, names, dear), args.processes)
    text = ["## What a switch and the floor cost\n"]
    text.append("| family | (b) lost at 30 s + 30 s | hermes | (b) lost by the floor |")
    text.append("| --- | --- | --- | --- |")
    costs: dict[str, dict[str, float]] = {}
    for family in dict.fromkeys(run.family for run in runs):
        lost = [slowdown(runs, slow, family, name) for name in ("envelope", "hermes")]
        floor = floor_cost(runs, family)
        shown = ["" if value is None else f"{100 * value:.1f} %" for value in (*lost, floor)]
        text.append(f"| {family} | " + " | ".join(shown) + " |")
        pairs = zip(("lost_at_30s", "hermes_lost_at_30s", "lost_by_floor"), (*lost, floor), strict=True)
        costs[family] = {key: value for key, value in pairs if value is not None}
    outcome["costs"] = {name: {key: round(value, 3) for key, value in found.items()} for name, found in costs.items()}
    if any(len(r.distinct().trials) < len(r.trials) for r in recordings(curves).values()):
        machine = Machine(dear.gpus, SHORT)
        chosen = [name for name in (*CLOSE, "fifo", "slaq") if name in ENTRANTS]
        alike = jobs_of(curves, "distinct", args.seeds, args.size, chosen, machine, "algoperf")
        if alike:
            distinct = run_all(alike, args.processes)
            outcome["distinct"] = rounded(measured(distinct))
            text += ["\n## AlgoPerf without repeated configurations\n", table(distinct, "algoperf")]
    return ["\n".join(text), ""], costs


if __name__ == "__main__":
    raise SystemExit(main())
