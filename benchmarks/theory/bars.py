"""The bars of bench-theory: the limits that the figures of each part have to keep."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}

Figures = dict[str, dict[str, Any]]
"""By part, then by the key that its `run()` gives."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One limit: figure `key` of a part compared with `value`. `text` describes the figure."""

    part: str
    key: str
    sign: str
    value: float | bool
    text: str

    def holds(self, figures: Figures) -> bool:
        """Return whether the bar is kept; False also where the figure was not measured."""
        figure = figures.get(self.part, {}).get(self.key)
        return figure is not None and HOLDS[self.sign](figure, self.value)


BARS = (
    Bar("makespan", "dual_mean_ratio", "<", 1.03, "dual approximation with local search over the optimum, mean"),
    Bar("makespan", "dual_max_over_certified", "<", 1.5015, "over its certified bound, largest (proven: 4/3 + 1/(3k))"),
    Bar("makespan", "n1000_m64_k8_s", "<", 10.0, "seconds at n = 1000, m = 64, k = 8"),
    Bar("makespan", "ga_sa_max_ratio", "<=", 1.02, "genetic algorithm and annealing over the optimum, largest"),
    Bar("makespan", "ga_sa_max_s", "<=", 5.0, "their seconds, largest"),
    Bar("sharing", "lp_over_fifo", ">=", 2.5, "FIFO over the LP's makespan, 500 jobs"),
    Bar("sharing", "max_residual", "<", 1e-6, "largest violation of a constraint"),
    Bar("online", "largest_part_of_a_proven_ratio", "<=", 1.0, "ratio over the proven one, all rules and streams"),
    Bar("queueing", "srpt_error", "<=", 0.03, "M/M/1 under SRPT at load 0.9 against 3.5521"),
    Bar("queueing", "erlang_c_error_to_0.9", "<=", 0.02, "Erlang C up to load 0.9"),
    Bar("queueing", "erlang_c_error_at_0.95", "<=", 0.05, "Erlang C at load 0.95"),
    Bar("queueing", "million_jobs_s", "<", 30.0, "seconds for 10^6 jobs, slowest"),
    Bar("preemption", "srpt_error", "<=", 0.03, "M/M/1 under SRPT on the engine, the worst of three runs"),
    Bar("preemption", "philly", "=", True, "the Philly trace was used"),
    Bar("preemption", "sjf_over_srtf", ">", 1.0, "SJF over SRTF, mean completion, restarts charged"),
    Bar("preemption", "fifo_over_sjf", ">", 1.0, "FIFO over SJF, both backfilled"),
    Bar(
        "preemption",
        "predicted_sjf_share",
        ">=",
        0.95,
        "share of SJF's gain over FIFO kept by predicted-SJF, all strict",
    ),
    Bar("learning", "rl_beats_fifo", "=", True, "all three methods beat FIFO, strict and backfilled, 95 % interval"),
    Bar("learning", "rl_beats_random", "=", True, "all three methods beat random"),
    Bar("learning", "rl_training_s", "<", 300.0, "seconds of a core to train all three"),
)


def missed(part: str, figures: dict[str, Any]) -> list[str]:
    """Return a line for each bar of this part that its figures do not keep."""
    return [
        f"missed: {bar.text}: {figures.get(bar.key, 'not measured')}, asked {bar.sign} {bar.value}"
        for bar in BARS
        if bar.part == part and not bar.holds({part: figures})
    ]
