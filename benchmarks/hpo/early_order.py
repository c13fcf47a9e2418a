"""How well the early order of trials agrees with their final order, on each recorded task.

It bounds what a policy that ranks by values can reach. A part of bench_hpo; alone:

    python -m benchmarks.hpo.early_order [--curves PATH ...]
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import CURVES, add_curves, curve_files, load_curves
from podium_core.curves.alignment import running_best
from podium_core.curves.non_finite import diverged
from podium_core.curves.statistics import kendall_tau
from podium_core.domain.snapshot import Point
from podium_simulator.traces.trace import Trace

SHARES = (0.03, 0.06, 0.125, 0.25, 0.5, 0.75, 0.9)
TRIALS, BEST = 200, 0.1


def early_order_report(traces: Iterable[Trace]) -> str:
    """Return Markdown: one row for each task, one column for each share of the longest trial."""
    lines = ["## What the early order says\n"]
    lines.append(
        "Kendall's tau of the best values at this share of training with the final ones. In parentheses: the mean"
    )
    lines.append(
        "position there, from 0 (best) to 1, of the tenth of the trials that ends best. 0.5 means no information, more"
    )
    lines.append("means that the early order misleads.\n")
    lines.append("| task | " + " | ".join(f"{100 * share:g} %" for share in SHARES) + " |")
    lines.append("| --- " * (len(SHARES) + 1) + "|")
    for trace in traces:
        cells = [f"{tau:.2f} ({position:.2f})" for tau, position in early_order(trace)]
        lines.append(f"| {trace.task} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def early_order(trace: Trace) -> list[tuple[float, float]]:
    """Return for each share: tau, and the mean position of the trials that end best.

    A trial that ended before a share keeps its best value there.
    """
    sign = 1.0 if trace.maximize else -1.0
    trials = trace.trials[:TRIALS]
    grid = np.array(SHARES) * max(trial.length for trial in trials)
    rows, ends = [], []
    for trial in trials:
        curve = [Point(s, v, s) for s, v in zip(trial.seconds, trial.values, strict=True)]
        final = max((sign * p.value for p in curve if not diverged(p.value)), default=-np.inf)
        best = running_best(curve, sign, grid)
        best[grid > curve[-1].step] = final
        rows.append(best)
        ends.append(final)
    table, finals = np.array(rows), np.array(ends)
    known = np.isfinite(finals)
    best = finals >= np.quantile(finals[known], 1.0 - BEST)
    order = []
    for column in table.T:
        there = known & np.isfinite(column)
        position = (-column[there]).argsort(kind="stable").argsort() / max(1, np.count_nonzero(there) - 1)
        order.append((kendall_tau(column[there], finals[there]), float(position[best[there]].mean())))
    return order


def main() -> None:
    parser = Parser(__doc__)
    add_curves(parser, [CURVES], "benchmarks/data/curves")
    print(early_order_report(load_curves(curve_files(parser.parse_args().curves))))


if __name__ == "__main__":
    main()
