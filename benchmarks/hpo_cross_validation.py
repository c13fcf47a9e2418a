"""Is the envelope tuned to its tasks? Its table of final values is fitted and its constants are chosen on all tasks but
those held out, then measured on those, for each fold in turn. Called by bench_hpo (`--cross-validate`).

The grid is small and around what is shipped: the question is how much of the figures the choice of constants buys.
`hpo_held_out.py` measures and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import hpo_runs
import numpy as np
from hpo_bars import BARS, RIVALS, SET_FOR
from hpo_held_out import Choice, measure_held_out
from hpo_questions import Asked, fit, questions
from hpo_refitted import Refitted
from hpo_runs import ENTRANTS, SHORT, Job, Run, ratios, recordings, run_all
from hpo_until_won import entrant

from podium_core.curves.final_value import interval_widths
from podium_core.policies.envelope import Envelope
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import geometric_mean

METRICS = ("a", "b", "c")  # against fifo
LEAST = {(bar.family, bar.figure): bar.least for bar in BARS if bar.figure in METRICS}
SHIPPED = Envelope()
HYSTERESES = (0.5, 0.6, 0.7)
FACTORS: Mapping[str, tuple[float, ...]] = {  # of a constant
    "unit": (0.7, 1.5),
    "prior": (0.5, 2.0),
    "slope": (0.5,),
    "spread": (0.5, 1.5),
    "newcomer": (0.5, 2.0),
    "trust": (0.5, 2.0),
}
GRID = [  # what is shipped, first, and one constant at a time to either side
    SHIPPED,
    *(replace(SHIPPED, hysteresis_ratio=h) for h in HYSTERESES if h != SHIPPED.hysteresis_ratio),
    *(
        replace(SHIPPED, constants=replace(SHIPPED.constants, **{name: factor * getattr(SHIPPED.constants, name)}))
        for name, factors in FACTORS.items()
        for factor in factors
    ),
]


@dataclass(frozen=True, slots=True)
class Plan:
    """`seeds` pools of a task to tune on, `held_out_seeds` to measure on; `folds`: 0 holds each task out alone."""

    curves: tuple[Path, ...]
    size: int
    processes: int
    seeds: int
    held_out_seeds: int
    folds: int
    policies: tuple[str, ...]

    def held_out(self) -> list[tuple[str, ...]]:
        """The tasks of each fold, those of a family spread over the folds."""
        tasks = sorted(recordings(self.curves), key=lambda task: (recordings(self.curves)[task].family, task))
        if len(tasks) < 2 or self.folds == 1:
            raise SystemExit("--cross-validate needs tasks to tune on: two at least, in two folds or more")
        count = self.folds or len(tasks)
        return [found for found in (tuple(tasks[i::count]) for i in range(count)) if found]


def label(policy: Envelope) -> str:
    """What differs from the shipped one."""
    mine, theirs = policy.constants, SHIPPED.constants
    found = [f.name for f in fields(mine) if getattr(mine, f.name) != getattr(theirs, f.name)]
    said = [f"{name} {getattr(mine, name):g}" for name in found]
    if policy.hysteresis_ratio != SHIPPED.hysteresis_ratio:
        said.append(f"hysteresis {policy.hysteresis_ratio:g}")
    return ", ".join(said) or "as shipped"


def cross_validate(plan: Plan, outcome: dict[str, object]) -> str:
    """Markdown; leaves what was chosen and measured in the report."""
    choices = tuned(plan)
    policies = [name for name in plan.policies if name in RIVALS]
    text = measure_held_out(plan.curves, plan.held_out_seeds, plan.size, plan.processes, choices, policies, outcome)
    head = f"{len(GRID)} settings: {'; '.join(label(policy) for policy in GRID)}. Pools of {plan.size} trials; "
    head += f"seeds a task: {plan.seeds} to tune on, {plan.held_out_seeds} to measure on; {len(choices)} folds.\n"
    return "\n".join([f"## Nested cross-validation of the envelope ({SET_FOR} GPUs)\n", head, text])


def tuned(plan: Plan) -> list[Choice]:
    """For each fold the table and the setting that the other tasks chose; no replay here sees the fold's own tasks, nor
    a table that was fitted on them.
    """
    folds = plan.held_out()
    tasks = [task for fold in folds for task in fold]
    asked: Mapping[str, list[Asked]] = {task: questions(recordings(plan.curves)[task]) for task in tasks}
    tables = [interval_widths(fit([a for t in tasks if t not in fold for a in asked[t]])) for fold in folds]
    settings = [[Refitted(policy, table) for policy in GRID] for table in tables]
    names = [[f"fold {number}: {label(policy)}" for policy in GRID] for number in range(len(folds))]
    entrants = {
        name: entrant(setting)
        for some, others in zip(names, settings, strict=True)
        for name, setting in zip(some, others, strict=True)
    }
    hpo_runs.ENTRANTS = {**ENTRANTS, **entrants}
    jobs = [
        Job(plan.curves, task, "own", seed, plan.size, name, Machine(SET_FOR, SHORT))
        for task in tasks
        for seed in range(plan.seeds)
        for name in (
            "fifo",
            *(name for fold, some in zip(folds, names, strict=True) if task not in fold for name in some),
        )
    ]
    values = against_fifo(run_all(jobs, plan.processes))
    found = []
    for fold, some, others in zip(folds, names, settings, strict=True):
        tuned_on = {task: recordings(plan.curves)[task].family for task in tasks if task not in fold}
        worths = [worth(values, name, tuned_on) for name in some]
        best = int(np.argmax(worths))  # the first of equals: what is shipped
        found.append(Choice(fold, others[best], label(GRID[best]), worths[best], worths[0]))
    return found


def against_fifo(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, float]]:
    """(task, entrant) -> metric -> geometric mean against fifo."""
    scores: dict[tuple[str, str], dict[tuple[str, int], Run]] = {}
    for run in runs:
        scores.setdefault((run.key[0], run.entrant), {})[run.key] = run
    table: dict[tuple[str, str], dict[str, float]] = {}
    for (task, name), mine in scores.items():
        ours = {key: run.score for key, run in mine.items()}
        base = {key: run.score for key, run in scores[task, "fifo"].items()}
        for metric in METRICS:
            pairs = list(ratios(ours, base, metric).values())
            if pairs:
                table.setdefault((task, name), {})[metric] = geometric_mean(pairs)
    return table


def worth(values: Mapping[tuple[str, str], Mapping[str, float]], name: str, tasks: Mapping[str, str]) -> float:
    """How far the bar nearest to failing is kept, of those on (a), (b) and (c) against fifo: the least measured / bar,
    1 where no bar is set, each measured as the geometric mean over the tasks (name -> family) of a family.
    """
    measured: dict[tuple[str, str], list[float]] = {}
    for task, family in tasks.items():
        for metric, value in values[task, name].items():
            measured.setdefault((family, metric), []).append(value)
    return min(geometric_mean(cells) / LEAST.get(which, 1.0) for which, cells in measured.items())
