"""The envelope against fifo in (a), (b) and (c) alone, each replay ended at the pool's best trial: many times quicker
than the whole table, for many seeds on a small machine.

Called by bench_hpo (`--until-won`) and, for its entrant, by the cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hpo_runs
from hpo_report import FAMILIES, ratio
from hpo_runs import ENTRANTS, SHORT, Entrant, Run, by_entrant, jobs_of, ratios, run_all
from hpo_wrapped import Wrapped

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.policies.base import Policy, Ranked
from podium_core.policies.envelope import Envelope
from podium_core.policies.fifo import Fifo
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.state import DEFAULT_RULES
from podium_simulator.replay.statistics import RunKey, by_task

NAME = "envelope"


@dataclass(frozen=True, slots=True)
class UntilWon(Wrapped):
    """The envelope until the pool's best trial has completed; then nothing that is measured here can change, and the
    rest goes in order, which is quicker to replay.
    """

    winner: int  # its place in the pool

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        won = snapshot.trials[self.winner].phase is TrialPhase.SUCCEEDED
        return (Fifo() if won else self.inner).rank(job, trials, snapshot)


def entrant(policy: Policy) -> Entrant:
    """`policy`, an envelope."""
    return Entrant(lambda pool: UntilWon(policy, pool.winner), DEFAULT_RULES)


def until_won(
    curves: tuple[Path, ...], gpus: int, seeds: int, size: int, processes: int, outcome: dict[str, object]
) -> str:
    """Markdown: a row a family and a row a task."""
    hpo_runs.ENTRANTS = {**ENTRANTS, NAME: entrant(Envelope())}
    runs = run_all(jobs_of(curves, "own", seeds, size, ["fifo", NAME], Machine(gpus, SHORT)), processes)
    lines = [f"## `envelope` against `fifo`, until the best trial has completed ({gpus} GPUs, {size} trials)\n"]
    lines.append(
        f"Times as fast as fifo over {seeds} seeds a task: geometric means [95 % bootstrap] (worst single run).\n"
    )
    lines += ["| | a | b | c | slower than fifo in b |", "| --- | --- | --- | --- | --- |"]
    for family in dict.fromkeys(run.family for run in runs):
        found = by_entrant(runs, family)
        cells: list[str] = []
        figures: dict[str, float] = {}
        for metric in "abc":
            value = ratio(found, NAME, "fifo", metric)
            if value is None:  # no pool has a trial that reaches the target
                cells.append("")
                continue
            cells.append(f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}] ({value.worst:.2f})")
            more = {
                "": value.mean,
                "_low": value.low,
                "_high": value.high,
                "_worst": value.worst,
                "_slower": value.slower,
            }
            figures |= {f"{metric}{end}": round(figure, 3) for end, figure in more.items()}
        slower = f"{100 * figures['b_slower']:.0f} %"
        lines.append(f"| **{FAMILIES.get(family, family)}** | {' | '.join(cells)} | {slower} |")
        outcome[family] = figures
        lines += _tasks(found)
    return "\n".join(lines) + "\n"


def _tasks(found: Mapping[str, Mapping[RunKey, Run]]) -> list[str]:
    scores = {name: {key: run.score for key, run in found[name].items()} for name in ("fifo", NAME)}
    values = [by_task(ratios(scores[NAME], scores["fifo"], metric)) for metric in "abc"]
    tasks = dict.fromkeys(task for task, _ in found[NAME])
    return [
        f"| {task} | " + " | ".join(f"{value.get(task, math.nan):.2f}" for value in values) + " | |" for task in tasks
    ]
