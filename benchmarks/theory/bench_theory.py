"""The optimisers against optima, formulas and one another: tables, plots, and each bar, held or missed.

    make bench-theory [TRACE=FILE] [OUT=FOLDER]
    python -m benchmarks.theory.bench_theory [--trace FILE]

The parts are the modules bench_*.py beside this one. Each writes its own tables into `--out` and can be run alone. Two
parts run at a time, in processes of their own. Seeds are fixed: all figures except seconds repeat. Writes
bench-theory.md into `--out`; the last line is RESULT {json}. The status is 1 where a bar is missed or a part failed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.inputs import PHILLY
from benchmarks.output import add_out, command, machine, result_line, write_page
from benchmarks.theory.bars import BARS, Bar, Figures
from benchmarks.theory.bench_preemption import Report, read_trace
from benchmarks.theory.part import page_path

PARTS = ("makespan", "preemption", "queueing", "learning", "online", "sharing")  # the longest first
ORDER = ("makespan", "sharing", "online", "preemption", "learning", "queueing")  # of the tables
PROCESSES = 2

BESIDE = (
    ("makespan", "heft_ratio", "HEFT over the optimum, mean"),
    ("sharing", "lp_over_fifo_own_model", "FIFO over the LP's makespan with Podium's own model of speeds"),
    ("sharing", "duality_gaps", "duality gaps"),
    ("preemption", "predicted_sjf_share_over_backfilled", "the same share, FIFO, SJF and predicted-SJF all backfilled"),
    ("preemption", "predicted_sjf_share_shifted", "smallest and largest with arrivals up to a minute later: strict"),
    ("preemption", "predicted_sjf_share_over_backfilled_shifted", "smallest and largest: backfilled"),
    ("learning", "rl_best", "best learned policy"),
    ("learning", "rl_over_sjf", "its mean completion over SJF's"),
    ("learning", "rl_over_best_heuristic", "and over that of the best heuristic, which preempts"),
)


def run_part(part: str, out: Path, options: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Run a part in this process; return its figures and its seconds."""
    start = time.perf_counter()
    figures: dict[str, Any] = importlib.import_module(f"benchmarks.theory.bench_{part}").run(out, **options)
    return figures, time.perf_counter() - start


def measure(out: Path, trace: str) -> tuple[Figures, dict[str, float], dict[str, str]]:
    """Run all parts; return figures and seconds of the parts that ended, and the errors of the others."""
    figures: Figures = {}
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes of the parts: one core each, small arrays
    options: dict[str, dict[str, Any]] = {"preemption": {"trace": trace}}
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as workers:
        futures = {part: workers.submit(run_part, part, out, options.get(part, {})) for part in PARTS}
        for part, future in futures.items():
            try:
                figures[part], seconds[part] = future.result()
            except Exception as error:
                failed[part] = f"{type(error).__name__}: {error}"
    return figures, seconds, failed


def result(figures: Figures) -> dict[str, Any]:
    """Return the figures for RESULT; null where a part failed."""

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


def page_text(figures: Figures, seconds: dict[str, float], failed: dict[str, str], total: float) -> str:
    """Return the page. `total`: seconds of the whole benchmark."""
    lines = [
        "# bench-theory\n",
        f"`{command()}` on {machine()}: {total / 60:.1f} minutes, {PROCESSES} parts at a time.\n",
        "| bar | limit | measured | |\n| --- | --- | --- | --- |",
        *(_bar_row(bar, figures) for bar in BARS),
        "\nBeside the bars:\n\n| figure | measured |\n| --- | --- |",
        *(f"| {name} | {figures.get(part, {}).get(key, 'not measured')} |" for part, key, name in BESIDE),
        "\n| part | seconds | tables |\n| --- | --- | --- |",
        *(_part_row(part, seconds.get(part)) for part in ORDER),
        *(f"\n**{part} failed:** {error}" for part, error in failed.items()),
        f"\n```\n{result_line(result(figures))}\n```\n",
    ]
    return "\n".join(lines)


def _bar_row(bar: Bar, figures: Figures) -> str:
    figure = figures.get(bar.part, {}).get(bar.key, "not measured")
    shown = f"{figure:.3g}" if isinstance(figure, float) and abs(figure) < 0.001 else str(figure)
    return f"| {bar.text} | {bar.sign} {bar.value} | {shown} | {'held' if bar.holds(figures) else '**missed**'} |"


def _part_row(part: str, seconds: float | None) -> str:
    spent = "failed" if seconds is None else f"{seconds:.0f}"
    return f"| {part} | {spent} | [tables](bench-theory-{part}.md), [plot](bench-theory-{part}.png) |"


def main() -> int:
    parser = Parser(__doc__)
    text = f"CSV of jobs for the part preemption, or `synthetic` (default: benchmarks/data/philly/{PHILLY.name})"
    parser.add_argument("--trace", default=str(PHILLY), metavar="FILE", help=text)
    add_out(parser)
    options = parser.parse_args()
    read_trace(Report(), options.trace)  # an unreadable file ends the program before the first part
    start = time.perf_counter()
    figures, seconds, failed = measure(options.out, options.trace)
    report = page_text(figures, seconds, failed, time.perf_counter() - start)
    write_page(options.out / "bench-theory.md", report)
    for part in ORDER:
        if part in figures:
            print(page_path(options.out, part).read_text(encoding="utf-8"))
    print(report)
    print(result_line(result(figures)))
    return 0 if all(bar.holds(figures) for bar in BARS) else 1


if __name__ == "__main__":
    sys.exit(main())
