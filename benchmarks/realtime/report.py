"""Page of bench_realtime: the bars, then one section for each part (`result_sections`).

The parts need different machines: the simulated ones any machine, the one on real cores an idle one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import result_sections
from benchmarks.result_sections import Section

PARTS = ("simulated", "promises", "cpu", "gpu")
QUIET = 0.05  # share of the cores' time that other programs may use during a measurement on real cores


def write(path: Path, sections: dict[str, Section]) -> str:
    """Write the page, the bars first; return the RESULT line over all parts that have a section."""
    table = bars({name: sections[name].result for name in PARTS if name in sections})
    head = ["# bench-realtime", "", "`make bench-realtime`; each part names its own command.", "", *table, ""]
    return result_sections.write(path, [*head, "![figures](bench-realtime.png)", ""], sections, PARTS)


def bars(results: dict[str, Any]) -> list[str]:
    """Return a table of the bars and the measured figures; parts that did not run have no rows."""
    measured: list[tuple[str, object, bool]] = []
    if "simulated" in results:
        one = results["simulated"]
        ahead, best = one["launch_ahead_normalised"], one["daris_best_normalised"]
        in_time, theirs = one["launch_ahead_in_time_normalised"], one["daris_best_in_time_normalised"]
        measured += [
            ("no miss up to 24 +- 1 tasks", one["zero_miss_tasks"], abs(one["zero_miss_tasks"] - 24) <= 1),
            ("770 fps +- 5 % at 30 tasks", one["fps_at_30"], abs(one["fps_at_30"] / 770 - 1) <= 0.05),
            ("naive below 550 fps there", one["naive_fps_at_30"], one["naive_fps_at_30"] < 550),
            ("DARIS normalised >= 1.5", one["daris_normalised"], one["daris_normalised"] >= 1.5),
            (f"launch-ahead above DARIS in its best pool ({best}), all frames", ahead, ahead > best),
            (f"the same, frames in time ({theirs})", in_time, in_time > theirs),
            (
                f"frames in time, both in DARIS' published pool ({one['daris_normalised']} of all frames)",
                one["launch_ahead_in_time_same_pool_normalised"],
                one["launch_ahead_in_time_same_pool_normalised"] > one["daris_normalised"],
            ),
            (
                f"frames in time, one process for all contexts ({one['daris_in_time_in_one_process']})",
                one["launch_ahead_in_time_in_one_process"],
                one["launch_ahead_in_time_in_one_process"] > one["daris_in_time_in_one_process"],
            ),
        ]
    if "promises" in results:
        one = results["promises"]
        measured.append((f"promises kept in {one['sets']} sets", f"{one['missed']} broken", one["missed"] == 0))
    rows = [f"| {bar} | {value} | {'holds' if held else 'DOES NOT HOLD'} |" for bar, value, held in measured]
    if "cpu" in results:
        one = results["cpu"]
        for bar, key in (("tasks without a miss", "zero_miss_ratio"), ("fps at 1.5x the pivot", "fps_ratio")):
            verdict = "holds" if one[key] > 1 else "DOES NOT HOLD"
            if one["others_share"] > QUIET:
                verdict = f"NOT JUDGED: other programs used {100 * one['others_share']:.0f} % of the cores"
            rows.append(f"| cores: {bar}, over naive's | {one[key]} | {verdict} |")
    return ["| bar | measured | |", "| --- | ---: | --- |", *rows]
