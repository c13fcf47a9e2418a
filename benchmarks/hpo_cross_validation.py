"""Is the envelope tuned to its tasks? Its constants are chosen on all tasks but one and measured on that one, for each
task in turn.

The grid is small and around what is shipped: the question is how much of the figures the choice of constants buys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import hpo_runs
import numpy as np
from hpo_runs import ENTRANTS, SHORT, Run, jobs_of, run_all
from hpo_until_won import entrant

from podium.policies.envelope import Constants
from podium.simulation.compare import geometric_mean, ratios
from podium.simulation.pools import Machine

SHIPPED = Constants()
GRID = [  # what is shipped, and one constant at a time to either side
    SHIPPED,
    *(replace(SHIPPED, unit=SHIPPED.unit * factor) for factor in (0.7, 1.5)),
    *(replace(SHIPPED, prior=SHIPPED.prior * factor) for factor in (0.5, 2.0)),
    replace(SHIPPED, slope=0.5 * SHIPPED.slope),
]


def cross_validate(curves: tuple[Path, ...], seeds: int, size: int, processes: int, outcome: dict[str, object]) -> str:
    """Markdown; leaves the settings chosen for each held-out task in the report."""
    names = [f"envelope {number}" for number in range(len(GRID))]
    entrants = {name: entrant(constants) for name, constants in zip(names, GRID, strict=True)}
    hpo_runs.ENTRANTS = {**ENTRANTS, **entrants}
    runs = run_all(jobs_of(curves, "own", seeds, size, ["fifo", *names], Machine(4, SHORT)), processes)
    values = _values(runs, names)
    tasks = sorted({task for task, _ in values})
    lines = ["## Nested cross-validation of the envelope (4 GPUs)\n"]
    lines.append(f"{len(GRID)} settings, {seeds} seeds a task; ratios to fifo, geometric means.\n")
    lines.append("| held-out task | chosen unit, slope, prior | a | b | c | shipped: a | b | c |")
    lines.append("| --- " * 8 + "|")
    held: dict[str, dict[str, float]] = {}
    shipped_there: dict[str, dict[str, float]] = {}
    for task in tasks:
        others = [t for t in tasks if t != task]
        chosen = max(range(len(GRID)), key=lambda i: _worth(values, names[i], others))
        constants = GRID[chosen]
        shipped = names[GRID.index(SHIPPED)]
        found = {m: values[task, names[chosen]].get(m, float("nan")) for m in "abc"}
        there = {m: values[task, shipped].get(m, float("nan")) for m in "abc"}
        held[task] = {m: round(v, 3) for m, v in found.items() if not np.isnan(v)}
        shipped_there[task] = {m: round(v, 3) for m, v in there.items() if not np.isnan(v)}
        cells = [task, f"{constants.unit:g}, {constants.slope:g}, {constants.prior:g}"]
        cells += [f"{v:.2f}" for v in (*found.values(), *there.values())]
        lines.append("| " + " | ".join(cells) + " |")
    families = {run.key[0]: run.family for run in runs}
    for family in dict.fromkeys(families[task] for task in tasks):
        mine = [task for task in tasks if families[task] == family]
        means = [
            geometric_mean([table[t][m] for t in mine if m in table[t]])
            for table in (held, shipped_there)
            for m in "abc"
        ]
        lines.append(f"| **{family}** | | " + " | ".join(f"**{v:.2f}**" for v in means) + " |")
        outcome[f"cross_validation_{family}"] = dict(
            zip(("a", "b", "c"), (round(v, 3) for v in means[:3]), strict=True)
        )
    outcome["cross_validation"] = held
    return "\n".join(lines) + "\n"


def _values(runs: Sequence[Run], names: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """(task, entrant) -> metric -> geometric mean against fifo."""
    table: dict[tuple[str, str], dict[str, float]] = {}
    tasks = {run.key[0] for run in runs}
    for task in tasks:
        mine = {n: {r.key: r.score for r in runs if r.key[0] == task and r.entrant == n} for n in ("fifo", *names)}
        for name in names:
            for metric in "abc":
                pairs = list(ratios(mine[name], mine["fifo"], metric).values())
                if pairs:
                    table.setdefault((task, name), {})[metric] = geometric_mean(pairs)
    return table


def _worth(values: Mapping[tuple[str, str], Mapping[str, float]], name: str, tasks: Sequence[str]) -> float:
    """Mean log ratio over metrics and tasks, families alike by their number of tasks."""
    return float(np.mean([np.mean(np.log(list(values[task, name].values()))) for task in tasks]))
