"""The envelope against fifo in its main metrics alone, each replay ended at the best trial of its sample.

This is many times quicker than the whole table: it allows many seeds on a small machine (`bench_hpo --until-best`).
"""

from __future__ import annotations

import math

from benchmarks.hpo.envelope_variants import WithoutSimilarConfigurations, until_best_entrant
from benchmarks.hpo.report import FAMILIES, RunsByEntrant, cell, metric_ratios, ratio, ratio_figures
from benchmarks.hpo.runs import ENTRANTS, MAIN_METRICS, SHORT, Source, by_entrant, replays_of, run_all
from podium_core.policies.base import Policy
from podium_core.policies.envelope import Envelope
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import by_task

NAME, ALIKE = "envelope", "envelope_without_similar_configurations"
TITLES = {NAME: "", ALIKE: ", without similar configurations"}


def until_best(source: Source, gpus: int, seeds: int, processes: int, outcome: dict[str, object]) -> str:
    """Return a Markdown row for each family and each task; add the families' figures to `outcome`."""
    variants: dict[str, Policy] = {NAME: Envelope(), ALIKE: WithoutSimilarConfigurations(Envelope())}
    entrants = {**ENTRANTS, **{name: until_best_entrant(policy) for name, policy in variants.items()}}
    runs = run_all(replays_of(source, seeds, ["fifo", *variants], Machine(gpus, SHORT)), processes, entrants)
    lines = [f"## `envelope` against `fifo`, until the best trial has completed ({gpus} GPUs, {source.size} trials)\n"]
    lines.append(
        f"Times as fast as fifo over {seeds} seeds a task: geometric means [95 % bootstrap] (worst single run).\n"
        "Without similar configurations, all unstarted trials are worth the same, whatever their parameters.\n"
    )
    lines += [f"| | {' | '.join(MAIN_METRICS)} | slower than fifo in time_to_best |", "| --- | --- | --- | --- | --- |"]
    for family in dict.fromkeys(run.family for run in runs):
        by_name = by_entrant(runs, family)
        outcome[family] = {name: _add_rows(lines, by_name, family, name) for name in variants}
    return "\n".join(lines) + "\n"


def _add_rows(lines: list[str], runs: RunsByEntrant, family: str, name: str) -> dict[str, float]:
    """Add the row of a family and those of its tasks to `lines`; return the family's figures."""
    values = {metric: ratio(runs, name, "fifo", metric) for metric in MAIN_METRICS}
    figures: dict[str, float] = {}
    for metric, value in values.items():
        if value is not None:  # None: no sample has a trial that reaches the target
            figures |= {key: round(figure, 3) for key, figure in ratio_figures(metric, value).items()}
    slower = f"{100 * figures['time_to_best_slower']:.0f} %"
    cells = " | ".join(cell(value) for value in values.values())
    lines.append(f"| **{FAMILIES.get(family, family)}**{TITLES[name]} | {cells} | {slower} |")
    lines += _task_rows(runs, name)
    return figures


def _task_rows(runs: RunsByEntrant, name: str) -> list[str]:
    values = [by_task(metric_ratios(runs, name, "fifo", metric)) for metric in MAIN_METRICS]
    tasks = dict.fromkeys(task for task, _ in runs[name])
    return [
        f"| {task}{TITLES[name]} | " + " | ".join(f"{value.get(task, math.nan):.2f}" for value in values) + " | |"
        for task in tasks
    ]
