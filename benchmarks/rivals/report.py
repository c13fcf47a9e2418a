"""Page and plot of bench-rivals, from the contenders' logs: best value at equal core-hours, wins and losses."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.output import result_line, write_page
from benchmarks.rivals.tasks import TASKS

mpl.use("Agg")
import matplotlib.pyplot as plt

RESAMPLES = 10_000
ABOUT = {  # contenders, for the page
    "optuna": "TPE (its default) with the Hyperband pruner, one thread a core.",
    "ray-asha": "Ray Tune's ASHA with its default settings over random points, actors reused.",
    "ray-asha-optuna": "the same with Ray's OptunaSearch (TPE).",
    "podium-random": "the default policy `envelope` with `random`: the same points as ray-asha, in the same order.",
    "podium-auto": "the default policy with `auto`. Podium is the cluster's planner on processes; SIGSTOP suspends.",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One search of one contender, in seconds from the start of its process.

    `start`: until its first trial started; `watched`: how long it ran; `started`: trials that it started; `cut`: trials
    that it ended before their last epoch; `values`: time and value of each epoch, in order.
    """

    start: float
    watched: float
    values: tuple[tuple[float, float], ...]
    started: int
    cut: int

    def best(self, at: float) -> float:
        """Return the best value known `at` seconds after the start; 0 before any (it is an accuracy)."""
        return max((value for when, value in self.values if when <= at), default=0.0)

    def best_trained(self, seconds: float) -> float:
        """Return the same, counted from the first trial: without the start of the contender itself."""
        return self.best(self.start + seconds)


@dataclass(frozen=True, slots=True)
class Duel:
    """Two contenders: seeds that the first one won, drew and lost.

    The mean difference has a 95 % bootstrap interval.
    """

    won: int
    drawn: int
    lost: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        share = f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"
        return f"{self.won} / {self.drawn} / {self.lost} | {share}"


def read_run(log: Path, begun: float, watched: float, epochs: int) -> Run:
    """Read a run from its log.

    `begun`: when the contender's process was started, on the log's clock. Lines later than `watched` do not count.
    """
    notes = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    notes = [note for note in notes if note["time"] - begun <= watched]
    starts = [note["time"] - begun for note in notes if note["event"] == "start"]
    values = sorted((note["time"] - begun, note["value"]) for note in notes if note["event"] == "value")
    whole = {note["trial"] for note in notes if note["event"] == "value" and note["epoch"] == epochs}
    cut = sum(note["event"] == "cut" and note["trial"] not in whole for note in notes)
    return Run(min(starts, default=watched), watched, tuple(values), len(starts), cut)


def duel(mine: Sequence[float], theirs: Sequence[float]) -> Duel:
    """Compare two contenders, in pairs by seed."""
    gaps = np.subtract(mine, theirs)
    random = np.random.default_rng(0)
    means = random.choice(gaps, (RESAMPLES, len(gaps))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    won, lost = int((gaps > 0).sum()), int((gaps < 0).sum())
    return Duel(won, len(gaps) - won - lost, lost, float(gaps.mean()), float(low), float(high))


def publish(
    runs: Mapping[str, Mapping[str, Sequence[Run]]], options: Mapping[str, Any], versions: Mapping[str, str]
) -> None:
    """Write the page and a plot for each task; print the page.

    `runs`: by task and contender, one for each seed.
    """
    budget, cores, name = options["budget"], options["cores"], options["name"]
    system = f"{platform.system()} {platform.release()}"
    packages = f"Ray {versions['ray']}, Optuna {versions['optuna']}"
    size = f"{options['seeds']} searches of {options['trials']} trials at most"
    lines = [
        "# Two searches by Optuna, Ray Tune and Podium on one machine\n",
        f"`{options['command']}` on {cores} of {os.cpu_count()} cores, {system}; {packages}.",
        f"{size}, {budget:g} s on {cores} cores = {budget * cores:g} core-seconds each.",
        "The clock starts with the contender's process, so imports, Ray's own cluster, searcher and planner count.\n",
        *(f"- {contender}: {about}" for contender, about in ABOUT.items()),
        *([f"\n{options['note']}"] if options["note"] else []),
    ]
    result: dict[str, Any] = {
        "bench": "rivals",
        "budget_core_seconds": budget * cores,
        "seeds": options["seeds"],
        "versions": dict(versions),
        "tasks": {},
    }
    for task, contenders in runs.items():
        section, result["tasks"][task] = _task(contenders, budget)
        lines += [f"\n## {task.capitalize()}: {TASKS[task].about}\n", *section]
        lines.append(f"\n![best value against core-seconds, {task}]({name}-{task}.png)")
    text = "\n".join([*lines, f"\n{result_line(result)}\n"])
    write_page(options["out"] / f"{name}.md", text)
    for task, contenders in runs.items():
        plot(contenders, budget, cores, options["out"] / f"{name}-{task}.png")
    print(text, end="")


def _task(runs: Mapping[str, Sequence[Run]], budget: float) -> tuple[list[str], dict[str, Any]]:
    """Return a task's part of the page, and its part of the result."""
    half = {name: [run.best(budget / 2) for run in searches] for name, searches in runs.items()}
    end = {name: [run.best(budget) for run in searches] for name, searches in runs.items()}
    trained = {name: [run.best_trained(budget) for run in searches] for name, searches in runs.items()}
    mine = [name for name in runs if name.startswith("podium")]
    pairs = [(a, b) for a in mine for b in runs if b not in mine]
    duels = {(a, b): [duel(bests[a], bests[b]) for bests in (half, end, trained)] for a, b in pairs}
    versus = [f"| {a} | {b} | {' | '.join(map(str, three))} |" for (a, b), three in duels.items()]
    section = [
        "Means over the searches; in parentheses counted from the contender's first trial.\n",
        "| contender | best at half | best at the end | first trial after | started | ended early | epochs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(name, searches, budget) for name, searches in runs.items()),
        "\nPodium against each rival, seed by seed: won / drawn / lost, mean difference with its 95 % interval.\n",
        "| | against | at half | difference | at the end | difference | from the first trial | difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *versus,
        "\nBest value at the end, search by search (losses included; the best in bold):\n",
        f"| seed | {' | '.join(runs)} |",
        f"| --- |{' --- |' * len(runs)}",
        *(_seed(seed, end) for seed in range(len(next(iter(end.values()))))),
    ]
    return section, {
        "best_at_half": _rounded(half),
        "best": _rounded(end),
        "best_from_first_trial": _rounded(trained),
        "seconds_to_first_trial": {name: round(fmean(r.start for r in searches), 2) for name, searches in runs.items()},
        "won_drawn_lost": {f"{a} - {b}": [d[1].won, d[1].drawn, d[1].lost] for (a, b), d in duels.items()},
        "mean_difference_at_half": {f"{a} - {b}": round(d[0].mean, 4) for (a, b), d in duels.items()},
        "mean_difference": {f"{a} - {b}": round(d[1].mean, 4) for (a, b), d in duels.items()},
    }


def _rounded(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [round(value, 4) for value in of_it] for name, of_it in values.items()}


def _row(name: str, searches: Sequence[Run], budget: float) -> str:
    half = (
        f"{fmean(r.best(budget / 2) for r in searches):.4f} ({fmean(r.best_trained(budget / 2) for r in searches):.4f})"
    )
    end = f"{fmean(r.best(budget) for r in searches):.4f} ({fmean(r.best_trained(budget) for r in searches):.4f})"
    counts = (
        fmean(r.started for r in searches),
        fmean(r.cut for r in searches),
        fmean(len(r.values) for r in searches),
    )
    started, cut, epochs = (f"{count:.0f}" for count in counts)
    start = fmean(r.start for r in searches)
    return f"| {name} | {half} | {end} | {start:.1f} s | {started} | {cut} | {epochs} |"


def _seed(seed: int, values: Mapping[str, Sequence[float]]) -> str:
    most = max(bests[seed] for bests in values.values())
    cells = (f"**{bests[seed]:.4f}**" if bests[seed] == most else f"{bests[seed]:.4f}" for bests in values.values())
    return f"| {seed} | {' | '.join(cells)} |"


def plot(runs: Mapping[str, Sequence[Run]], budget: float, cores: int, path: Path) -> None:
    """Draw the mean of the best value so far, with the range from the lowest to the highest search shaded."""
    figure, axis = plt.subplots(figsize=(8, 4.6))
    times = np.linspace(0.0, budget, 200)
    for name, searches in runs.items():
        bests = np.array([[run.best(at) for at in times] for run in searches])
        (line,) = axis.plot(times * cores, bests.mean(axis=0), label=name)
        axis.fill_between(times * cores, bests.min(axis=0), bests.max(axis=0), color=line.get_color(), alpha=0.08)
    lowest = min(run.best(budget / 4) for searches in runs.values() for run in searches)
    axis.set(xlabel="core-seconds since the contender's start", ylabel="best validation accuracy so far")
    axis.set_ylim(bottom=max(0.0, lowest - 0.05))
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
