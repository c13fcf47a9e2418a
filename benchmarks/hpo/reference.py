"""Comparison of this replay with an independent one, on the samples of the independent one.

TABLE holds the figures of the independent replay (4 GPUs, 4 s + 4 s a switch, 5 seeds). Its samples are numpy's
default_rng(1000 + seed).permutation: the same trial numbers in every task of one source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.hpo.report import ratio
from benchmarks.hpo.runs import MAIN_METRICS, SHORT, Source, by_entrant, replays_of, run_all
from podium_simulator.replay.samples import Machine

TOLERANCE = 0.10
# family -> policy -> geometric means against fifo, in the order of MAIN_METRICS
TABLE: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "algoperf": {
        "hermes": (0.69, 0.88, 0.54),
        "best_so_far": (0.65, 1.23, 0.56),
        "median_stop": (1.01, 1.09, 1.02),
        "asha": (0.80, 1.34, 0.78),
        "oracle": (2.14, 6.77, 1.42),
    },
    "taskset": {
        "hermes": (2.38, 2.24, 2.66),
        "best_so_far": (2.36, 2.33, 2.48),
        "median_stop": (1.43, 1.43, 1.40),
        "asha": (0.92, 0.94, 1.06),
        "oracle": (8.43, 6.72, 13.63),
    },
}


def reference_check(curves: tuple[Path, ...], processes: int, outcome: dict[str, object]) -> str:
    """Return a Markdown table of both replays' figures, and how many of them agree within TOLERANCE."""
    names = ["fifo", *TABLE["taskset"]]
    runs = run_all(replays_of(Source(curves, "reference", 64), 5, names, Machine(4, SHORT)), processes)
    lines = ["## Against the independent replay\n"]
    lines.append("| family | policy | metric | independent replay | this replay | difference |")
    lines.append("| --- | --- | --- | --- | --- | --- |")
    outside = total = 0
    for family, policies in TABLE.items():
        entrants = by_entrant(runs, family)
        if not entrants:
            continue
        for name, figures in policies.items():
            for metric, expected in zip(MAIN_METRICS, figures, strict=True):
                value = ratio(entrants, name, "fifo", metric)
                assert value is not None
                difference = value.mean / expected - 1.0
                total += 1
                outside += abs(difference) > TOLERANCE
                row = (family, name, metric, f"{expected:.2f}", f"{value.mean:.2f}", f"{100 * difference:+.1f} %")
                lines.append("| " + " | ".join(row) + " |")
    outcome["reference"] = {"agree": total - outside, "of": total}
    lines.append(f"\n{total - outside} of {total} figures agree within {100 * TOLERANCE:.0f} %.\n")
    return "\n".join(lines)
