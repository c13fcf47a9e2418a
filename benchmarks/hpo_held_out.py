"""What each fold's choice of the cross-validation is worth on the tasks that it has not seen, beside the rivals and the
bars. The rivals have nothing that is tuned: they are replayed on the same pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hpo_runs
from hpo_bars import SET_FOR, Figures, bars_table
from hpo_refitted import Refitted
from hpo_report import BASES, FAMILIES, floor_costs, measured, rounded, slowdown, table
from hpo_runs import DEFAULT_RULES, ENTRANTS, LONG, SHORT, Entrant, Job, Run, ratios, run_all
from hpo_until_won import entrant

from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import geometric_mean

OURS, NO_FLOOR, SHIPPED = "envelope", "envelope_no_floor", "envelope as shipped"

TOLD = ("a", "b", "c", "switch_share", "wait")  # how the figures begin that the RESULT keeps


@dataclass(frozen=True, slots=True)
class Choice:
    """A fold's held-out tasks, and what the others chose for them: `worth` and `shipped` (that of the shipped setting)
    are how far those others keep the bar that is nearest to failing, measured / bar.
    """

    tasks: tuple[str, ...]
    policy: Refitted
    said: str
    worth: float
    shipped: float

    def entrants(self) -> Mapping[str, Entrant]:
        """Dear replays end early: (b) is all that is read of those without a floor."""
        bare = replace(self.policy, inner=replace(self.policy.inner, min_share=0.0))
        return {OURS: Entrant(lambda _: self.policy, DEFAULT_RULES), NO_FLOOR: entrant(bare)}


def measure_held_out(
    curves: tuple[Path, ...],
    seeds: int,
    size: int,
    processes: int,
    choices: Sequence[Choice],
    rivals: Sequence[str],
    outcome: dict[str, object],
) -> str:
    """Markdown."""
    entrants: dict[str, Entrant] = {**ENTRANTS, SHIPPED: ENTRANTS[OURS]}
    plain: dict[str, str] = {}  # what a fold's entrant is called once all are put together
    for number, choice in enumerate(choices):
        for name, found in choice.entrants().items():
            entrants[f"{name} {number}"] = found
            plain[f"{name} {number}"] = name
    for number, choice in enumerate(choices):
        entrants[f"{OURS} {number} until won"] = entrant(choice.policy)
        plain[f"{OURS} {number} until won"] = OURS
    hpo_runs.ENTRANTS = entrants

    def runs_of(machine: Machine, names: Sequence[str]) -> list[Run]:
        """`names`: {} stands for the fold."""
        jobs = [
            Job(curves, task, "own", seed, size, name.format(number), machine)
            for number, choice in enumerate(choices)
            for task in choice.tasks
            for seed in range(seeds)
            for name in names
        ]
        return [replace(run, entrant=plain.get(run.entrant, run.entrant)) for run in run_all(jobs, processes)]

    base = list(dict.fromkeys(["fifo", *rivals]))
    near = runs_of(Machine(SET_FOR, SHORT), [*base, f"{OURS} {{}}", f"{NO_FLOOR} {{}}", SHIPPED])
    far = runs_of(Machine(SET_FOR, LONG), ["fifo", f"{OURS} {{}} until won"])
    return report(choices, near, far, base, outcome)


def report(
    choices: Sequence[Choice], near: Sequence[Run], far: Sequence[Run], base: Sequence[str], outcome: dict[str, object]
) -> str:
    figures = measured([run for run in near if run.entrant != NO_FLOOR])
    costs = floor_costs(near)
    for family in figures:
        lost = slowdown(near, far, family, OURS)
        if lost is not None:
            costs.setdefault(family, {})["lost_at_30s"] = lost
    bars = bars_table(figures, costs)
    outcome["held_out"] = {
        family: {key: value for key, value in policies[OURS].items() if key.startswith(TOLD)}
        for family, policies in rounded(figures).items()
    }
    outcome["costs"] = {name: {key: round(value, 3) for key, value in found.items()} for name, found in costs.items()}
    outcome["bars"] = {"held": bars.held, "of": bars.of}
    outcome["chosen"] = {task: choice.said for choice in choices for task in choice.tasks}
    text = [LEGEND.format(", ".join(base)), "### What each fold chose\n", chosen_table(choices, near, outcome)]
    text += ["\n### The bars, on held-out tasks\n", *bars.lines]
    text.append(f"\n{bars.held} of {bars.of} bars hold on tasks held out.\n")
    shown = [run for run in near if run.entrant != NO_FLOOR]
    for family in figures:
        text += [f"### {FAMILIES.get(family, family)}, held-out tasks together\n"]
        text += [against(figures[family]), "", table(shown, family), ""]
    return "\n".join(text)


def against(figures: Figures) -> str:
    """The folds' choices and what is shipped, against fifo and the bases, with the share of runs that are slower."""
    lines = ["| | a | b | c | slower in b |", "| --- " * 5 + "|"]
    for name in (OURS, SHIPPED):
        found = figures[name]
        for end, base in (("", "fifo"), *((f"_{base}", base) for base in BASES)):
            if f"b{end}" not in found:
                continue
            cells = [f"{name} against {base}"]
            cells += [_cell(found, f"{metric}{end}") for metric in "abc"]
            lines.append("| " + " | ".join([*cells, f"{100 * found[f'b{end}_slower']:.0f} %"]) + " |")
    return "\n".join(lines)


def _cell(found: Mapping[str, float], key: str) -> str:
    if key not in found:
        return ""
    return f"{found[key]:.2f} [{found[f'{key}_low']:.2f}, {found[f'{key}_high']:.2f}] ({found[f'{key}_worst']:.2f})"


def chosen_table(choices: Sequence[Choice], runs: Sequence[Run], outcome: dict[str, object]) -> str:
    """A row a task: what was chosen for it, what that was worth on the others, and what it is worth here."""
    lines = ["| held-out task | chosen | nearest bar on the others: chosen, shipped | a | b | c | shipped: a | b | c |"]
    lines.append("| --- " * 9 + "|")
    held: dict[str, dict[str, float]] = {}
    for choice in choices:
        for task in choice.tasks:
            ours, theirs = (_means(runs, task, name) for name in (OURS, SHIPPED))
            held[task] = {metric: round(value, 3) for metric, value in ours.items()}
            cells = [task, choice.said, f"{choice.worth:.3f}, {choice.shipped:.3f}"]
            cells += [f"{found[m]:.2f}" if m in found else "" for found in (ours, theirs) for m in "abc"]
            lines.append("| " + " | ".join(cells) + " |")
    outcome["cross_validation"] = held
    return "\n".join(lines)


def _means(runs: Sequence[Run], task: str, name: str) -> dict[str, float]:
    ours, base = (
        {run.key: run.score for run in runs if run.key[0] == task and run.entrant == which} for which in (name, "fifo")
    )
    pairs = {metric: list(ratios(ours, base, metric).values()) for metric in "abc"}
    return {metric: geometric_mean(found) for metric, found in pairs.items() if found}


LEGEND = """Each fold: the table of final values (`core/podium_core/curves/final_value.py`) is fitted, and one setting
of the
grid chosen, on the tasks that are not held out, with that table. The choice is the setting whose bar nearest to failing
is kept farthest (measured / bar, of the bars on (a), (b) and (c) against fifo, each replay ended at the best trial); it
is then replayed to its end on the held-out tasks. `envelope` is that choice, a different one for each fold; `envelope
as shipped` has the shipped constants and table, which have seen every task. Cells: geometric mean over tasks and seeds
[95 % bootstrap interval over runs, not over tasks] (worst single run).
Losses at 30 s + 30 s and by the floor are in (b), of the fold's choice. Rivals, which have nothing that is tuned here,
on the same pools: {}. "The best rival" is the best of these.

Not nested: the form of the policy, which was found with all tasks in view; the constants that are not in the grid
(`look`, `evaluations`, `min_share`, those of `core/podium_core/curves/` such as PEERS and the levels and bins of the
table); the centre of the grid, which is what all tasks together chose, so that a fold can move one constant at a time
only, one step away from it. The tasks of a family are kin (one code base, one set of configurations): a fold that holds
one out still tunes on its siblings.
"""
