"""Nested cross-validation of the envelope: is it tuned to its tasks? (`bench_hpo --cross-validate`)

For each fold, the table of final values is fitted and the constants are chosen on all tasks outside of the fold. Then
the result is measured on the fold's own tasks (`held_out`). The grid is small and centred on the shipped setting: the
question is how much of the figures the choice of constants explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from benchmarks.hpo.bars import BARS, RIVALS, SET_FOR
from benchmarks.hpo.envelope_variants import Refitted, until_best_entrant
from benchmarks.hpo.held_out import Choice, HeldOut, measure_held_out
from benchmarks.hpo.questions import Question, fit, questions
from benchmarks.hpo.report import metric_ratios
from benchmarks.hpo.runs import ENTRANTS, MAIN_METRICS, SHORT, Replay, Run, Source, run_all, traces
from podium_core.curves.prediction.multiples import interval_widths
from podium_core.policies.envelope import Envelope
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import geometric_mean

LEAST = {(bar.family, bar.figure): bar.least for bar in BARS if bar.figure in MAIN_METRICS}
SHIPPED = Envelope()
HYSTERESES = (0.5, 0.6, 0.7)
FACTORS: Mapping[str, tuple[float, ...]] = {  # of a constant
    "unit": (0.7, 1.5),
    "prior": (0.5, 2.0),
    "slope": (0.5,),
    "spread": (0.5, 1.5),
    "less_trained": (0.5, 2.0),
    "trust": (0.5, 2.0),
}
GRID = [  # the shipped setting first, then one constant at a time to either side
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
    """What to validate: `seeds` samples a task to tune on, `held_out_seeds` to measure on.

    `folds`: how many; 0 holds each task out alone.
    """

    source: Source
    processes: int
    seeds: int
    held_out_seeds: int
    folds: int
    policies: tuple[str, ...]

    def held_out(self) -> list[tuple[str, ...]]:
        """Return the tasks of each fold; those of a family are spread over the folds."""
        known = traces(self.source.curves)
        tasks = sorted(known, key=lambda task: (known[task].family, task))
        if len(tasks) < 2 or self.folds == 1:
            text = f"{len(tasks)} tasks in {self.folds or len(tasks)} folds"
            raise SystemExit(f"--cross-validate: {text}; give curves of at least two tasks, and two folds or more")
        count = self.folds or len(tasks)
        return [fold for fold in (tuple(tasks[i::count]) for i in range(count)) if fold]


def label(policy: Envelope) -> str:
    """Return how `policy` differs from the shipped setting."""
    mine, shipped = policy.constants, SHIPPED.constants
    changed = [f.name for f in fields(mine) if getattr(mine, f.name) != getattr(shipped, f.name)]
    parts = [f"{name} {getattr(mine, name):g}" for name in changed]
    if policy.hysteresis_ratio != SHIPPED.hysteresis_ratio:
        parts.append(f"hysteresis {policy.hysteresis_ratio:g}")
    return ", ".join(parts) or "as shipped"


def cross_validate(plan: Plan, outcome: dict[str, object]) -> str:
    """Return the report as Markdown; add the choices and their figures to `outcome`."""
    choices = tuned(plan)
    policies = tuple(name for name in plan.policies if name in RIVALS)
    text = measure_held_out(HeldOut(plan.source, plan.held_out_seeds, plan.processes), choices, policies, outcome)
    head = (
        f"{len(GRID)} settings: {'; '.join(label(policy) for policy in GRID)}. Samples of {plan.source.size} trials; "
    )
    head += f"seeds a task: {plan.seeds} to tune on, {plan.held_out_seeds} to measure on; {len(choices)} folds.\n"
    return "\n".join([f"## Nested cross-validation of the envelope ({SET_FOR} GPUs)\n", head, text])


def tuned(plan: Plan) -> list[Choice]:
    """Return for each fold the table and the setting that the other tasks chose.

    No replay here reads the fold's own tasks, or a table that was fitted on them.
    """
    folds = plan.held_out()
    known = traces(plan.source.curves)
    tasks = [task for fold in folds for task in fold]
    asked: Mapping[str, list[Question]] = {task: questions(known[task]) for task in tasks}
    tables = [interval_widths(fit([q for task in tasks if task not in fold for q in asked[task]])) for fold in folds]
    settings = [[Refitted(policy, table) for policy in GRID] for table in tables]
    names = [[f"fold {number}: {label(policy)}" for policy in GRID] for number in range(len(folds))]
    entrants = {
        name: until_best_entrant(setting)
        for some, others in zip(names, settings, strict=True)
        for name, setting in zip(some, others, strict=True)
    }
    replays = [
        Replay(plan.source, task, seed, name, Machine(SET_FOR, SHORT))
        for task in tasks
        for seed in range(plan.seeds)
        for name in (
            "fifo",
            *(name for fold, some in zip(folds, names, strict=True) if task not in fold for name in some),
        )
    ]
    values = against_fifo(run_all(replays, plan.processes, {**ENTRANTS, **entrants}))
    choices = []
    for fold, some, others in zip(folds, names, settings, strict=True):
        tuned_on = {task: known[task].family for task in tasks if task not in fold}
        worths = [worth(values, name, tuned_on) for name in some]
        best = int(np.argmax(worths))  # the first of equals, so the shipped setting wins a tie
        choices.append(Choice(fold, others[best], label(GRID[best]), worths[best], worths[0]))
    return choices


def against_fifo(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, float]]:
    """Return (task, entrant) -> metric -> geometric mean against fifo."""
    by_task: dict[str, dict[str, dict[tuple[str, int], Run]]] = {}
    for run in runs:
        by_task.setdefault(run.key[0], {}).setdefault(run.entrant, {})[run.key] = run
    table: dict[tuple[str, str], dict[str, float]] = {}
    for task, entrants in by_task.items():
        for name in entrants:
            for metric in MAIN_METRICS:
                pairs = list(metric_ratios(entrants, name, "fifo", metric).values())
                if pairs:
                    table.setdefault((task, name), {})[metric] = geometric_mean(pairs)
    return table


def worth(values: Mapping[tuple[str, str], Mapping[str, float]], name: str, tasks: Mapping[str, str]) -> float:
    """Return how far the bar nearest to failing is kept, of the bars on the main metrics against fifo.

    It is the least measured / bar, with 1 where no bar is set. A metric is measured as the geometric mean over the
    tasks (task -> family) of a family.
    """
    measured: dict[tuple[str, str], list[float]] = {}
    for task, family in tasks.items():
        for metric, value in values[task, name].items():
            measured.setdefault((family, metric), []).append(value)
    return min(geometric_mean(cells) / LEAST.get(which, 1.0) for which, cells in measured.items())
