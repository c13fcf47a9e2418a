"""What the optimisers claim, measured by one command: tables, plots, and each bar of issue 8, held or missed.

    python benchmarks/bench_theory.py        (or: make bench-theory)

The parts are the scripts bench_theory_*.py; each writes its own tables to benchmarks/results/ and can be run alone. Two
run at a time, in processes of their own. Seeds are fixed: all figures but seconds repeat. The exit code is 1 where a
bar is missed or a part broke off.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from theory_bars import BARS, Bar, Figures

RESULTS = Path(__file__).resolve().parent / "results" / "bench-theory.md"
PARTS = ("makespan", "preemption", "queueing", "learning", "online", "sharing")  # the longest first
ORDER = ("makespan", "sharing", "online", "preemption", "learning", "queueing")  # of the tables, as in the issue
ABREAST = 2

BESIDE = (
    ("makespan", "heft_ratio", "HEFT over the optimum, mean (research note: 1.11 to 1.39 by size)"),
    ("sharing", "lp_over_fifo_own_model", "FIFO over the LP's makespan with our own model of speeds"),
    ("sharing", "duality_gaps", "duality gaps"),
    ("preemption", "predicted_sjf_share_over_backfilled", "the same share, FIFO, SJF and predicted-SJF all backfilled"),
    ("preemption", "predicted_sjf_share_shifted", "least and largest with arrivals up to a minute later: strict"),
    ("preemption", "predicted_sjf_share_over_backfilled_shifted", "least and largest: backfilled"),
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
