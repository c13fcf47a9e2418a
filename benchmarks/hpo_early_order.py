"""What early order says on each recorded task: how well it agrees with the final order, and where the trials stand that
end best. It bounds what any policy that ranks by values can do. Called by bench_hpo, and alone:

    python benchmarks/hpo_early_order.py [CURVES]     prints the table
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from podium_core.curves.aligned_curves import running_best
from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point
from podium_core.policies.envelope import kendall_tau
from podium_simulator.traces.trace import Trace, load_all

SHARES = (0.03, 0.06, 0.125, 0.25, 0.5, 0.75, 0.9)
TRIALS, BEST = 200, 0.1


def early_order_report(recordings: Iterable[Trace]) -> str:
    """Markdown: one row a task, one column a share of the longest trial."""
    lines = ["## What early order says\n"]
    lines.append(
        "Kendall's tau of the best values at this share of training with the final ones; in parentheses the mean"
    )
    lines.append(
        "place there, from 0 (best) to 1, of the tenth of the trials that ends best. 0.5 = nothing, above = misled.\n"
    )
    lines.append("| task | " + " | ".join(f"{100 * share:g} %" for share in SHARES) + " |")
    lines.append("| --- " * (len(SHARES) + 1) + "|")
    for recording in recordings:
        cells = [f"{tau:.2f} ({place:.2f})" for tau, place in early_order(recording)]
        lines.append(f"| {recording.task} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def early_order(recording: Trace) -> list[tuple[float, float]]:
    """For each share: tau, and the mean place of those that end best. A trial that ended sooner keeps its best."""
    sign = 1.0 if recording.maximize else -1.0
    trials = recording.trials[:TRIALS]
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
    found = []
    for column in table.T:
        there = known & np.isfinite(column)
        place = (-column[there]).argsort(kind="stable").argsort() / max(1, np.count_nonzero(there) - 1)
        found.append((kendall_tau(column[there], finals[there]), float(place[best[there]].mean())))
    return found


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]] or [Path(__file__).parents[2] / "shared" / "curves"]
    print(early_order_report(load_all(paths)))
