"""Is the yardstick right? This replay against the development table of an independent one, on that table's own pools.

The figures are those of ../shared/research/refsim.md section 2 (G = 4, 4 s + 4 s, 5 seeds); its pools are
numpy's default_rng(1000 + seed).permutation, the same trial numbers in every task of one source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpo_report import ratio
from hpo_runs import SHORT, by_entrant, jobs_of, run_all

from podium_simulator.replay.samples import Machine

TOLERANCE = 0.10
# family -> policy -> metric -> geometric mean against fifo
TABLE: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "algoperf": {
        "hermes": {"a": 0.69, "b": 0.88, "c": 0.54},
        "best_so_far": {"a": 0.65, "b": 1.23, "c": 0.56},
        "median_stop": {"a": 1.01, "b": 1.09, "c": 1.02},
        "asha": {"a": 0.80, "b": 1.34, "c": 0.78},
        "oracle": {"a": 2.14, "b": 6.77, "c": 1.42},
    },
    "taskset": {
        "hermes": {"a": 2.38, "b": 2.24, "c": 2.66},
        "best_so_far": {"a": 2.36, "b": 2.33, "c": 2.48},
        "median_stop": {"a": 1.43, "b": 1.43, "c": 1.40},
        "asha": {"a": 0.92, "b": 0.94, "c": 1.06},
        "oracle": {"a": 8.43, "b": 6.72, "c": 13.63},
    },
}


def reference_check(curves: tuple[Path, ...], processes: int, outcome: dict[str, object]) -> str:
    """Markdown: theirs, ours, difference; the sentence after it counts what lies outside of the tolerance."""
    names = ["fifo", *TABLE["taskset"]]
    runs = run_all(jobs_of(curves, "reference", 5, 64, names, Machine(4, SHORT)), processes)
    lines = ["## Against the independent replay\n", "| family | policy | metric | theirs | ours | difference |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    outside = total = 0
    for family, policies in TABLE.items():
        found = by_entrant(runs, family)
        if not found:
            continue
        for name, metrics in policies.items():
            for metric, theirs in metrics.items():
                value = ratio(found, name, "fifo", metric)
                assert value is not None
                difference = value.mean / theirs - 1.0
                total += 1
                outside += abs(difference) > TOLERANCE
                row = (family, name, metric, f"{theirs:.2f}", f"{value.mean:.2f}", f"{100 * difference:+.1f} %")
                lines.append("| " + " | ".join(row) + " |")
    outcome["reference"] = {"agree": total - outside, "of": total}
    lines.append(f"\n{total - outside} of {total} figures agree within {100 * TOLERANCE:.0f} %.\n")
    return "\n".join(lines)
