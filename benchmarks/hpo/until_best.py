"""The envelope against fifo in its main metrics alone, each replay ended at the best trial of its sample.

This is many times quicker than the whole table: it allows many seeds on a small machine (`bench_hpo --until-best`).
"""

from __future__ import annotations

import math

from benchmarks.hpo.envelope_variants import until_best_entrant
from benchmarks.hpo.report import FAMILIES, RunsByEntrant, cell, metric_ratios, ratio, ratio_figures
from benchmarks.hpo.runs import ENTRANTS, MAIN_METRICS, SHORT, Source, by_entrant, replays_of, run_all
from podium_core.policies.envelope import Envelope
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import by_task

NAME = "envelope"


def until_best(source: Source, gpus: int, seeds: int, processes: int, outcome: dict[str, object]) -> str:
    """Return a Markdown row for each family and each task; add the families' figures to `outcome`."""
    entrants = {**ENTRANTS, NAME: until_best_entrant(Envelope())}
    runs = run_all(replays_of(source, seeds, ["fifo", NAME], Machine(gpus, SHORT)), processes, entrants)
    lines = [f"## `envelope` against `fifo`, until the best trial has completed ({gpus} GPUs, {source.size} trials)\n"]
    lines.append(
        f"Times as fast as fifo over {seeds} seeds a task: geometric means [95 % bootstrap] (worst single run).\n"
    )
    lines += [f"| | {' | '.join(MAIN_METRICS)} | slower than fifo in time_to_best |", "| --- | --- | --- | --- | --- |"]
    for family in dict.fromkeys(run.family for run in runs):
        by_name = by_entrant(runs, family)
        values = {metric: ratio(by_name, NAME, "fifo", metric) for metric in MAIN_METRICS}
        figures: dict[str, float] = {}
        for metric, value in values.items():
            if value is not None:  # None: no sample has a trial that reaches the target
                figures |= {key: round(figure, 3) for key, figure in ratio_figures(metric, value).items()}
        slower = f"{100 * figures['time_to_best_slower']:.0f} %"
        cells = " | ".join(cell(value) for value in values.values())
        lines.append(f"| **{FAMILIES.get(family, family)}** | {cells} | {slower} |")
        outcome[family] = figures
        lines += _task_rows(by_name)
    return "\n".join(lines) + "\n"


def _task_rows(runs: RunsByEntrant) -> list[str]:
    values = [by_task(metric_ratios(runs, NAME, "fifo", metric)) for metric in MAIN_METRICS]
    tasks = dict.fromkeys(task for task, _ in runs[NAME])
    return [
        f"| {task} | " + " | ".join(f"{value.get(task, math.nan):.2f}" for value in values) + " | |" for task in tasks
    ]
