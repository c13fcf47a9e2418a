"""What each fold's choice of the cross-validation is worth on its held-out tasks, beside the rivals and the bars.

The rivals have nothing that is tuned: they are replayed on the same samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.hpo.bars import SET_FOR, Figures, bars_table
from benchmarks.hpo.envelope_variants import Refitted, until_best_entrant
from benchmarks.hpo.report import (
    BASES,
    FAMILIES,
    guard_costs,
    measured,
    metric_ratios,
    rounded,
    slowdown,
    table,
)
from benchmarks.hpo.runs import (
    ENTRANTS,
    LONG,
    MAIN_METRICS,
    SHORT,
    Entrant,
    Replay,
    Run,
    Source,
    run_all,
)
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.state import DEFAULT_RULES
from podium_simulator.replay.statistics import geometric_mean

CHOSEN, NO_GUARD, SHIPPED = "envelope", "envelope_no_guard", "envelope as shipped"

KEPT = (*MAIN_METRICS, "switch_share", "wait")  # prefixes of the figures that RESULT keeps


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The samples to measure on: `seeds` a task."""

    source: Source
    seeds: int
    processes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A fold's held-out tasks, and the setting that the other tasks chose for them.

    `worth` and `shipped_worth` (of the shipped setting): how far those other tasks keep the bar that is nearest to
    failing, measured / bar.
    """

    tasks: tuple[str, ...]
    policy: Refitted
    label: str
    worth: float
    shipped_worth: float

    def entrants(self) -> Mapping[str, Entrant]:
        """Return the choice, and the choice without its starvation guard, of which only time_to_best is read."""
        bare = replace(self.policy, inner=replace(self.policy.inner, min_share=0.0))
        return {CHOSEN: Entrant(lambda _: self.policy, DEFAULT_RULES), NO_GUARD: until_best_entrant(bare)}


def measure_held_out(
    samples: HeldOut, choices: Sequence[Choice], rivals: Sequence[str], outcome: dict[str, object]
) -> str:
    """Replay all choices and rivals on the held-out tasks; return the report as Markdown."""
    entrants: dict[str, Entrant] = {**ENTRANTS, SHIPPED: ENTRANTS[CHOSEN]}
    common: dict[str, str] = {}  # entrant of a fold -> its name once the folds are put together
    for number, choice in enumerate(choices):
        for name, entrant in choice.entrants().items():
            entrants[f"{name} {number}"] = entrant
            common[f"{name} {number}"] = name
        entrants[f"{CHOSEN} {number} until best"] = until_best_entrant(choice.policy)
        common[f"{CHOSEN} {number} until best"] = CHOSEN

    def runs_of(machine: Machine, names: Sequence[str]) -> list[Run]:
        """Run these entrants on the held-out tasks of each fold; {} in a name stands for the fold."""
        replays = [
            Replay(samples.source, task, seed, name.format(number), machine)
            for number, choice in enumerate(choices)
            for task in choice.tasks
            for seed in range(samples.seeds)
            for name in names
        ]
        runs = run_all(replays, samples.processes, entrants)
        return [replace(run, entrant=common.get(run.entrant, run.entrant)) for run in runs]

    base = list(dict.fromkeys(["fifo", *rivals]))
    short = runs_of(Machine(SET_FOR, SHORT), [*base, f"{CHOSEN} {{}}", f"{NO_GUARD} {{}}", SHIPPED])
    long = runs_of(Machine(SET_FOR, LONG), ["fifo", f"{CHOSEN} {{}} until best"])
    return report(choices, short, long, base, outcome)


def report(
    choices: Sequence[Choice],
    short: Sequence[Run],
    long: Sequence[Run],
    base: Sequence[str],
    outcome: dict[str, object],
) -> str:
    """Return the report as Markdown, from the runs with short and with long switches."""
    shown = [run for run in short if run.entrant != NO_GUARD]
    figures = measured(shown)
    costs = guard_costs(short)
    for family in figures:
        lost = slowdown(short, long, family, CHOSEN)
        if lost is not None:
            costs.setdefault(family, {})["lost_at_30s"] = lost
    bars = bars_table(figures, costs)
    outcome["held_out"] = {
        family: {key: value for key, value in policies[CHOSEN].items() if key.startswith(KEPT)}
        for family, policies in rounded(figures).items()
    }
    outcome["costs"] = {
        name: {key: round(value, 3) for key, value in family_costs.items()} for name, family_costs in costs.items()
    }
    outcome["bars"] = {"held": bars.held, "of": bars.total}
    outcome["chosen"] = {task: choice.label for choice in choices for task in choice.tasks}
    text = [LEGEND.format(", ".join(base)), "### What each fold chose\n", chosen_table(choices, short, outcome)]
    text += ["\n### The bars, on held-out tasks\n", *bars.lines]
    text.append(f"\n{bars.held} of {bars.total} bars hold on held-out tasks.\n")
    for family in figures:
        text += [f"### {FAMILIES.get(family, family)}, held-out tasks together\n"]
        text += [against(figures[family]), "", table(shown, family), ""]
    return "\n".join(text)


def against(figures: Figures) -> str:
    """Return the folds' choices and the shipped setting against fifo and the bases.

    The last column is the share of slower runs.
    """
    lines = [f"| | {' | '.join(MAIN_METRICS)} | slower in time_to_best |", "| --- " * 5 + "|"]
    for name in (CHOSEN, SHIPPED):
        metrics = figures[name]
        for suffix, base in (("", "fifo"), *((f"_vs_{base}", base) for base in BASES)):
            if f"time_to_best{suffix}" not in metrics:
                continue
            cells = [f"{name} against {base}"]
            cells += [_cell(metrics, f"{metric}{suffix}") for metric in MAIN_METRICS]
            slower = f"{100 * metrics[f'time_to_best{suffix}_slower']:.0f} %"
            lines.append("| " + " | ".join([*cells, slower]) + " |")
    return "\n".join(lines)


def _cell(figures: Mapping[str, float], key: str) -> str:
    if key not in figures:
        return ""
    mean, low, high, worst = (figures[f"{key}{end}"] for end in ("", "_low", "_high", "_worst"))
    return f"{mean:.2f} [{low:.2f}, {high:.2f}] ({worst:.2f})"


def chosen_table(choices: Sequence[Choice], runs: Sequence[Run], outcome: dict[str, object]) -> str:
    """Return one row for each task: its fold's choice, the worth on the other tasks, and the metrics here."""
    lines = [
        (
            f"| held-out task | chosen | nearest bar on the others: chosen, shipped | {' | '.join(MAIN_METRICS)} "
            f"| shipped: {' | '.join(MAIN_METRICS)} |"
        ),
        "| --- " * 9 + "|",
    ]
    held: dict[str, dict[str, float]] = {}
    for choice in choices:
        for task in choice.tasks:
            chosen, shipped = (_means(runs, task, name) for name in (CHOSEN, SHIPPED))
            held[task] = {metric: round(value, 3) for metric, value in chosen.items()}
            cells = [task, choice.label, f"{choice.worth:.3f}, {choice.shipped_worth:.3f}"]
            cells += [f"{means[m]:.2f}" if m in means else "" for means in (chosen, shipped) for m in MAIN_METRICS]
            lines.append("| " + " | ".join(cells) + " |")
    outcome["cross_validation"] = held
    return "\n".join(lines)


def _means(runs: Sequence[Run], task: str, name: str) -> dict[str, float]:
    mine = {
        which: {run.key: run for run in runs if run.key[0] == task and run.entrant == which} for which in (name, "fifo")
    }
    pairs = {metric: list(metric_ratios(mine, name, "fifo", metric).values()) for metric in MAIN_METRICS}
    return {metric: geometric_mean(ratios) for metric, ratios in pairs.items() if ratios}


LEGEND = """For each fold, the table of final values (`core/podium_core/curves/prediction/multiples.py`) is fitted and
one setting of the grid is chosen, both on the tasks that are not held out. The choice is the setting whose bar nearest
to failing is kept farthest: measured / bar, of the bars on time_to_target, time_to_best and mean_regret against fifo,
each replay ended at the best trial. The choice is then replayed to its end on the held-out tasks. `envelope` is that
choice, a different one for each fold. `envelope as shipped` has the shipped constants and table, which were chosen on
every task. Cells: geometric mean over tasks and seeds [95 % bootstrap interval over runs, not over tasks] (worst single
run). Losses at 30 s + 30 s and by the starvation guard are in time_to_best, of the fold's choice. The rivals have
nothing that is tuned here; they run on the same samples: {}. "The best rival" is the best of these.

Not nested: the form of the policy, which was designed with all tasks known; the constants outside of the grid
(`look`, `evaluations`, `min_share`, those of `core/podium_core/curves/` such as PEERS, and the levels and bins of the
table); the centre of the grid, which all tasks together chose, so that a fold can move only one constant by one step.
The tasks of a family are related (one code base, one set of configurations): a fold that holds one task out is still
tuned on the others of its family.
"""
