"""Every ranking policy replayed on the same recorded learning curves: how much sooner does each reach good trials?

    make bench-hpo [CURVES="PATH ..."] [GPUS=4,8] [SEEDS=15] [CHECK=1] [OUT=FOLDER]
    python -m benchmarks.hpo.bench_hpo [--curves PATH ...] [--gpus 4,8] [--seeds 15]

The metrics are defined in docs/benchmarks/policies.md. Other modes, each instead of the main tables:

- `--check-reference` compares this replay with an independent one, on the samples of that one (NAME-reference.md).
- `--cross-validate` tunes the envelope (`--seeds` samples a task) on all tasks but one, and measures it on that one
  (`--held-out-seeds`) beside the rivals among `--policies`, for each task (NAME-cross-validation.md). `--folds 5` holds
  a fifth of the tasks out at a time, which takes half as long.
- `--until-best` compares the envelope, with and without similar configurations, with fifo alone. Each replay ends at
  the best trial (NAME-until-best.md).

Writes NAME.md and NAME-Ngpus.png into `--out` after each part; NAME is `--name`, by default bench-hpo. The last line is
RESULT {json}.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.command_line import Parser
from benchmarks.hpo.bars import Figures, bars_beside, bars_report
from benchmarks.hpo.calibration import calibration_report
from benchmarks.hpo.cross_validation import Plan, cross_validate
from benchmarks.hpo.early_order import early_order_report
from benchmarks.hpo.reference import reference_check
from benchmarks.hpo.report import (
    BASES,
    FAMILIES,
    against_table,
    guard_cost,
    guard_costs,
    measured,
    plot,
    rounded,
    slowdown,
    table,
    task_table,
    uses_table,
)
from benchmarks.hpo.runs import ENTRANTS, LONG, SHORT, Run, Source, replays_of, run_all, traces
from benchmarks.hpo.speed import BAR, over_the_bar, speed_report
from benchmarks.hpo.until_best import until_best
from benchmarks.inputs import CURVES, add_curves, curve_files
from benchmarks.output import add_out, command, result_line, write_page
from podium_simulator.replay.samples import Machine

MODES = {"reference": "check_reference", "cross-validation": "cross_validate", "until-best": "until_best"}  # option
BY_TASK = ("envelope", "hermes", "best_so_far", "median_stop", "asha", "oracle")  # policies of the tables by task


def arguments() -> argparse.Namespace:
    """Return the options; ends the program where one of them is wrong."""
    parser = Parser(__doc__)
    add_curves(parser, [CURVES], "benchmarks/data/curves")
    add_out(parser)
    parser.add_argument("--name", default="bench-hpo", help="stem of the result files (default: bench-hpo)")
    parser.add_argument("--gpus", default="4,8", help="numbers of GPUs, with commas between (default: 4,8)")
    parser.add_argument("--seeds", type=int, default=15, help="samples of each task (default: 15)")
    parser.add_argument("--size", type=int, default=64, help="trials of a sample (default: 64)")
    parser.add_argument("--policies", default=",".join(ENTRANTS), help=f"some of: {', '.join(ENTRANTS)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="(default: one for each core)")
    parser.add_argument("--brief", action="store_true", help="only the tables and bars of the main runs")
    parser.add_argument("--check-reference", action="store_true", help="compare with an independent replay")
    parser.add_argument("--cross-validate", action="store_true", help="tune and measure on different tasks")
    parser.add_argument("--held-out-seeds", type=int, default=5, help="samples of each held-out task (default: 5)")
    parser.add_argument("--folds", type=int, default=0, help="of the cross-validation; 0: one for each task (default)")
    parser.add_argument("--until-best", action="store_true", help="the envelope against fifo alone")
    options = parser.parse_args()
    options.policies = list(dict.fromkeys(["fifo", *options.policies.split(",")]))
    unknown = [name for name in options.policies if name not in ENTRANTS]
    if unknown:
        raise SystemExit(f"--policies: {unknown[0]!r} is not known; choose some of: {', '.join(ENTRANTS)}")
    try:
        options.gpus = [int(count) for count in options.gpus.split(",")]
    except ValueError:
        raise SystemExit(f"--gpus: {options.gpus!r}; give whole numbers with commas between, for example 4,8") from None
    for name, least in (("seeds", 1), ("size", 1), ("processes", 1), ("held_out_seeds", 1), ("folds", 0)):
        if getattr(options, name) < least:
            raise SystemExit(f"--{name.replace('_', '-')}: {getattr(options, name)}; give {least} or more")
    if min(options.gpus) < 1:
        raise SystemExit(f"--gpus: {min(options.gpus)}; give 1 or more")
    return options


def main() -> int:
    options = arguments()
    source = Source(curve_files(options.curves), "random", options.size)
    traces(source.curves)  # an unreadable file ends the program before the first replay
    start = perf_counter()
    outcome: dict[str, object] = {}
    title = f"# bench-hpo\n\n`{command()}` on {os.cpu_count()} cores.\n"
    for mode, report in (("reference", check), ("cross-validation", validate), ("until-best", until)):
        if getattr(options, MODES[mode]):
            parts = [title, report(source, options, outcome), f"Took {perf_counter() - start:.0f} s.\n"]
            return finish(options.out / f"{options.name}-{mode}.md", parts, outcome)
    parts = [title, LEGEND]
    main_tables(source, options, parts, outcome)
    if not options.brief:
        parts.append(speed_report(outcome))
    if not (options.brief and source.curves):  # it takes seconds, and the example has no other report
        parts.append(calibration_report(traces(source.curves).values(), outcome))
    if not options.brief:
        parts.append(early_order_report(traces(source.curves).values()))
    parts.append(f"Took {perf_counter() - start:.0f} s.\n")
    return finish(options.out / f"{options.name}.md", parts, outcome)


def check(source: Source, options: argparse.Namespace, outcome: dict[str, object]) -> str:
    """Return the comparison with the independent replay."""
    text = reference_check(source.curves, options.processes, outcome)
    print(text, flush=True)
    return text


def validate(source: Source, options: argparse.Namespace, outcome: dict[str, object]) -> str:
    """Return the cross-validation."""
    seeds, held_out_seeds, folds = options.seeds, options.held_out_seeds, options.folds
    return cross_validate(
        Plan(source, options.processes, seeds, held_out_seeds, folds, tuple(options.policies)), outcome
    )


def until(source: Source, options: argparse.Namespace, outcome: dict[str, object]) -> str:
    """Return the comparison of the envelope with fifo alone."""
    return until_best(source, options.gpus[0], options.seeds, options.processes, outcome)


def main_tables(source: Source, options: argparse.Namespace, parts: list[str], outcome: dict[str, object]) -> None:
    """Add the tables, plots and bars of each number of GPUs to `parts`; write the page after each."""
    by_gpus: dict[str, object] = {}
    outcome["gpus"] = by_gpus
    path: Path = options.out / f"{options.name}.md"
    for gpus in options.gpus:
        machine = Machine(gpus, SHORT)
        runs = run_all(replays_of(source, options.seeds, options.policies, machine), options.processes)
        figures = measured(runs)
        by_gpus[str(gpus)] = rounded(figures)
        parts.append(section(runs, gpus, options.seeds, options.size))
        image = path.with_name(f"{options.name}-{gpus}gpus.png")
        write_page(path, "\n".join(parts))
        plot(runs, f"{gpus} GPUs, {options.size} trials, {options.seeds} seeds a task", image)
        parts.append(f"![{gpus} GPUs]({image.name})\n")
        print(parts[-2], flush=True)
        if gpus == options.gpus[0]:
            costs: Figures = {}
            if not options.brief:
                text, costs = further(source, runs, options, Machine(gpus, LONG), outcome)
                parts += text
            parts.append(bars_report(figures, costs, outcome))
        else:
            parts.append(bars_beside(figures, guard_costs(runs), gpus))
        print(parts[-1], flush=True)
        write_page(path, "\n".join(parts))


def finish(path: Path, parts: Sequence[str], outcome: dict[str, object]) -> int:
    """Write the page, print the RESULT line, and return the exit status."""
    line = result_line(outcome)
    write_page(path, "\n".join([*parts, f"```\n{line}\n```\n"]))
    over = over_the_bar(outcome)
    if over:
        print(f"MISSED: a tick of {', '.join(over)} takes {BAR} microseconds or more", file=sys.stderr)
    print(line)
    return 1 if over else 0


LEGEND = """Ratios are the time of fifo over the time of the policy: above 1 means faster than fifo. In the tables
"against round_robin" and "against slaq" they are the time of that policy over the time of the row's. Cells: geometric
mean over tasks and seeds [95 % bootstrap interval over runs, not over tasks: it does not cover what another task would
give] (worst single run).

- time_to_target: until a trial reaches the target; TaskSet has no target, there it is time_to_near_best.
- time_to_near_best: until a value within 1 % of the best.
- time_to_best: until the best trial has completed.
- mean_regret: regret over time.
- GPU s to best: share of the GPU seconds that fifo uses until its best trial has completed.
- planned: share of all training that the policy's own plan takes.
- wait in H: longest wait of a live trial, in lengths of the longest trial.

Rivals run by the rule of their own definition (any better rank takes the GPU). `hermes_cluster` and `envelope` run by
the planner's switch rule. `envelope_min_time_slice` also keeps its minimum time slices, which the definitions of this
table do not have (at 4 s + 4 s: 80 s, and 267 s for a trial that has been suspended before). `envelope_no_guard` has no
starvation guard.

The second table of a family shows what the GPU seconds until the best trial were used for, as means of the runs'
shares: trained = best (the best trial) + completed (trials that had completed by then) + started (trials that had
not; a replay does not keep those apart that the policy had ended). Discarded: training of trials that the policy had
ended and that started again. Switches: suspensions and resumptions. Idle: share of the GPUs' time in which nothing
used them, beside the others. A replay has no start-up, no failed checkpoint and no lost work: these uses are not
known here.
"""


def section(runs: Sequence[Run], gpus: int, seeds: int, size: int) -> str:
    """Return the tables of one number of GPUs."""
    text = [f"## {gpus} GPUs, {size} trials, suspend + resume 4 s + 4 s, {seeds} seeds a task\n"]
    for family in dict.fromkeys(run.family for run in runs):
        text += [f"### {FAMILIES.get(family, family)}\n", table(runs, family), ""]
        for against in (against_table(runs, family, base) for base in BASES):
            text += [against, ""] if against else []
        text += [uses_table(runs, family), ""]
        for metric in ("time_to_target", "time_to_best"):
            text += [f"{metric} by task:\n", task_table(runs, family, BY_TASK, metric), ""]
    return "\n".join(text)


def further(
    source: Source, runs: Sequence[Run], options: argparse.Namespace, machine: Machine, outcome: dict[str, object]
) -> tuple[list[str], Figures]:
    """Measure long switches, the starvation guard, and samples in which no configuration repeats.

    `machine`: with long switches. Returns the text, and by family what these cost, unrounded.
    """
    names = ["fifo", "hermes", "envelope"]
    slow = run_all(replays_of(source, options.seeds, names, machine), options.processes)
    text = ["## What a switch and the starvation guard cost\n"]
    text.append("| family | time_to_best lost at 30 s + 30 s | hermes | time_to_best lost by the starvation guard |")
    text.append("| --- | --- | --- | --- |")
    costs: dict[str, dict[str, float]] = {}
    for family in dict.fromkeys(run.family for run in runs):
        lost = [slowdown(runs, slow, family, name) for name in ("envelope", "hermes")]
        guard = guard_cost(runs, family)
        cells = ["" if value is None else f"{100 * value:.1f} %" for value in (*lost, guard)]
        text.append(f"| {family} | " + " | ".join(cells) + " |")
        pairs = zip(("lost_at_30s", "hermes_lost_at_30s", "lost_by_guard"), (*lost, guard), strict=True)
        costs[family] = {key: value for key, value in pairs if value is not None}
    outcome["costs"] = {
        name: {key: round(value, 3) for key, value in family_costs.items()} for name, family_costs in costs.items()
    }
    if any(len(r.distinct().trials) < len(r.trials) for r in traces(source.curves).values()):
        chosen = [*BY_TASK, "fifo", "slaq"]
        distinct_source = source._replace(draw="distinct")
        short = Machine(machine.gpus, SHORT)
        replays = replays_of(distinct_source, options.seeds, chosen, short, "algoperf")
        if replays:
            distinct = run_all(replays, options.processes)
            outcome["distinct"] = rounded(measured(distinct))
            text += ["\n## AlgoPerf without repeated configurations\n", table(distinct, "algoperf")]
    return ["\n".join(text), ""], costs


if __name__ == "__main__":
    raise SystemExit(main())
