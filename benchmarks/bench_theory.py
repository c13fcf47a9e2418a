"""What the optimisers claim, measured by one command: tables, plots, and each bar of issue 8, held or missed.

    python benchmarks/bench_theory.py        (or: make bench-theory)

The parts are the scripts bench_theory_*.py; each writes its own tables to benchmarks/results/ and can be run alone. Two
run at a time, in processes of their own. Seeds are fixed: all figures but seconds repeat. The exit code is 1 where a
bar is missed or a part broke off.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "bench-theory.md"
PARTS = ("makespan", "preemption", "queueing", "learning", "online", "sharing")  # the longest first
ORDER = ("makespan", "sharing", "online", "preemption", "learning", "queueing")  # of the tables, as in the issue
ABREAST = 2
HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}

Figures = dict[str, dict[str, Any]]  # by part, then by the key that its `run()` gives


@dataclass(frozen=True, slots=True)
class Bar:
    part: str
    key: str
    sign: str
    value: float | bool
    says: str

    def holds(self, figures: Figures) -> bool:
        found = figures.get(self.part, {}).get(self.key)
        return found is not None and HOLDS[self.sign](found, self.value)


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
    Bar("preemption", "philly", "=", True, "the Philly trace was there"),
    Bar("preemption", "sjf_over_srtf", ">", 1.0, "SJF over SRTF, mean completion, restarts charged"),
    Bar("preemption", "fifo_over_sjf", ">", 1.0, "FIFO over SJF, mean completion"),
    Bar("preemption", "predicted_sjf_share", ">=", 0.95, "share of SJF's gain over FIFO that predicted-SJF keeps"),
    Bar("learning", "rl_beats_fifo", "=", True, "all three methods beat FIFO, strict and backfilled, 95 % interval"),
    Bar("learning", "rl_beats_random", "=", True, "all three methods beat chance"),
)

BESIDE = (
    ("makespan", "heft_ratio", "HEFT over the optimum, mean (research note: 1.11 to 1.39 by size)"),
    ("sharing", "lp_over_fifo_own_model", "FIFO over the LP's makespan with our own model of speeds"),
    ("sharing", "duality_gaps", "duality gaps"),
    ("preemption", "predicted_sjf_share_over_backfilled", "share kept of SJF's gain over *backfilled* FIFO"),
    ("learning", "rl_best", "best learned policy"),
    ("learning", "rl_over_sjf", "its mean completion over SJF's"),
    ("learning", "rl_over_best_heuristic", "and over that of the best heuristic, which preempts"),
)


def measured(part: str) -> tuple[dict[str, Any], float]:
    """In a process of its own: what the part's `run()` gives, and its seconds."""
    begun = time.perf_counter()
    found: dict[str, Any] = importlib.import_module(f"bench_theory_{part}").run()
    return found, time.perf_counter() - begun


def measure() -> tuple[Figures, dict[str, float], dict[str, str]]:
    """Figures and seconds of the parts that ended, and what broke the others off."""
    figures: Figures = {}
    seconds: dict[str, float] = {}
    broken: dict[str, str] = {}
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read by the parts' processes; small arrays, a part a core
    with ProcessPoolExecutor(ABREAST, mp_context=get_context("spawn")) as pool:
        for part, going in {part: pool.submit(measured, part) for part in PARTS}.items():
            try:
                figures[part], seconds[part] = going.result()
            except Exception as error:
                broken[part] = f"{type(error).__name__}: {error}"
    return figures, seconds, broken


def result(figures: Figures) -> dict[str, Any]:
    """The line that issue 8 asks for; null where a part broke off."""

    def of(part: str, key: str) -> Any:
        return figures.get(part, {}).get(key)

    keys = ("dual_mean_ratio", "dual_max_over_certified", "n1000_m64_k8_s", "ga_ratio", "sa_ratio")
    return {
        "makespan": {key: of("makespan", key) for key in keys},
        "lp_over_fifo": of("sharing", "lp_over_fifo"),
        "srpt_error": of("queueing", "srpt_error"),
        "predicted_sjf_share": of("preemption", "predicted_sjf_share"),
        "predicted_sjf_share_over_backfilled": of("preemption", "predicted_sjf_share_over_backfilled"),
        "rl_beats_fifo": of("learning", "rl_beats_fifo"),
    }


def text(figures: Figures, seconds: dict[str, float], broken: dict[str, str], total: float) -> str:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
    lines = [
        "# bench-theory\n",
        f"`make bench-theory` on {machine}: {total / 60:.1f} minutes, {ABREAST} parts at a time.\n",
        "| bar | asked | measured | |\n| --- | --- | --- | --- |",
        *(_bar_row(bar, figures) for bar in BARS),
        "\nBeside the bars:\n\n| figure | measured |\n| --- | --- |",
        *(f"| {says} | {figures.get(part, {}).get(key, 'not measured')} |" for part, key, says in BESIDE),
        "\n| part | seconds | tables |\n| --- | --- | --- |",
        *(_part_row(part, seconds.get(part)) for part in ORDER),
        *(f"\n**{part} broke off:** {why}" for part, why in broken.items()),
        f"\n```\nRESULT {json.dumps(result(figures))}\n```\n",
    ]
    return "\n".join(lines)


def _bar_row(bar: Bar, figures: Figures) -> str:
    found = figures.get(bar.part, {}).get(bar.key, "not measured")
    shown = f"{found:.3g}" if isinstance(found, float) and abs(found) < 0.001 else str(found)
    return f"| {bar.says} | {bar.sign} {bar.value} | {shown} | {'held' if bar.holds(figures) else '**missed**'} |"


def _part_row(part: str, seconds: float | None) -> str:
    spent = "broke off" if seconds is None else f"{seconds:.0f}"
    return f"| {part} | {spent} | [tables](bench-theory-{part}.md), [plot](bench-theory-{part}.png) |"


def main() -> int:
    begun = time.perf_counter()
    figures, seconds, broken = measure()
    report = text(figures, seconds, broken, time.perf_counter() - begun)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(report)
    for part in ORDER:
        if part in figures:
            print((RESULTS.parent / f"bench-theory-{part}.md").read_text())
    print(report)
    print(f"RESULT {json.dumps(result(figures))}")
    return 0 if all(bar.holds(figures) for bar in BARS) else 1


if __name__ == "__main__":
    sys.exit(main())
