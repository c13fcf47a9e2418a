"""Memory and time of `podium dashboard` with 50 searches of 10,000 trials in all, and 200 browsers.

    make bench-dashboard [OUT=FOLDER]
    python -m benchmarks.dashboard.bench_dashboard [--searches 50] [--trials 10000] [--browsers 200]

The command runs in a process of its own, twice: on a cluster, with the real client, on generated objects that an HTTP
server lists and watches; and on a folder with the same objects as runs of `podium run`, a file each. The first page is
the page of searches, then that of one search. Wall time depends on what else runs on the machine; CPU time much less.
Memory is the peak of the resident set until the end of the run.

While all browsers look at pages of searches, trials change once a second for `--seconds`.

Limits of both: first page 1 s of CPU time, memory 300 MiB, every browser gets the last change; on the cluster also one
watch for each kind of object. Writes bench-dashboard.md into `--out`; the last line is RESULT {json}. The status is 1
if a limit is exceeded.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.dashboard.browsers import Browsers
from benchmarks.dashboard.object_folder import ObjectFolder
from benchmarks.dashboard.object_server import ObjectServer
from benchmarks.dashboard.objects import Manifest, Size, jobs, namespace_of, nodes, trial, trials
from benchmarks.dashboard.shown import DEADLINE, Cost, Shown, dashboard, timed_page
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page

MAX_PAGE_SECONDS, MAX_MIB = 1.0, 300.0
CHANGED = 5  # trials that change at once
Change = Callable[[Sequence[Manifest]], None]


@dataclass(frozen=True, slots=True)
class Load:
    """What is shown: the sizes, the browsers, and the seconds for which trials change."""

    size: Size
    browsers: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured on one source.

    `reached`: browsers that got the last change. `busy`, `idle`: cores in use with changes and without.
    """

    costs: tuple[Cost, ...]
    after_start: float
    peak: float
    reached: int
    busy: float
    idle: float

    @property
    def wall(self) -> float:
        """Return the wall seconds of the slower one of the two first pages."""
        return max(one.wall for one in self.costs[1:3])

    @property
    def cpu(self) -> float:
        """Return the CPU seconds of the dearer one of the two first pages."""
        return max(one.cpu for one in self.costs[1:3])

    def kept(self, browsers: int) -> bool:
        """Return whether the limits are kept."""
        return self.cpu <= MAX_PAGE_SECONDS and self.peak <= MAX_MIB and self.reached == browsers


def on_cluster(load: Load, objects: Mapping[str, list[Manifest]]) -> tuple[Figures, int]:
    """Return the figures on a cluster, and the most watches of one kind that were open at a time."""
    server = ObjectServer(objects)
    with tempfile.TemporaryDirectory() as name, server.serving():
        words = ["-A", "--kubeconfig", str(server.kubeconfig(Path(name) / "kubeconfig"))]
        return measure(load, words, partial(server.change, "hyperparamtrials")), max(server.most.values())


def on_folder(load: Load, objects: Mapping[str, list[Manifest]]) -> Figures:
    """Return the figures on a folder of runs."""
    with tempfile.TemporaryDirectory() as name:
        return measure(load, [name], ObjectFolder(Path(name), objects).change)


def measure(load: Load, words: Sequence[str], change: Change) -> Figures:
    """Return the figures of the command with these arguments.

    `change` stores changed trials where the command finds them.
    """
    size = load.size
    began = time.perf_counter()
    with dashboard(words) as shown:
        costs = [Cost("start, until all objects are read", time.perf_counter() - began, shown.cpu())]
        after_start = shown.mib("VmRSS")
        first = f"/searches/{namespace_of(0)}/search-0"
        costs += [timed_page(shown, "page of all searches", "/"), timed_page(shown, "page of one search", first)]
        costs.append(timed_page(shown, "page of one trial", f"/trials/{namespace_of(0)}/search-0-0"))
        costs.append(timed_page(shown, "page of the GPUs", "/gpus"))
        idle = _cores(shown, lambda: time.sleep(5.0))
        with Browsers(shown.base, shown.headers, _paths(load)).looking() as looking:
            looking.wait_connected(DEADLINE)
            busy = _cores(shown, lambda: _change_each_second(load, change))
            last = [trial(search, 0, load.seconds + 1) for search in range(size.searches)]
            looking.expect(f"further {load.seconds + 1};")
            change(last)
            reached = looking.wait_reached(DEADLINE)
        return Figures(tuple(costs), after_start, shown.mib("VmHWM"), reached, busy, idle)


def _cores(shown: Shown, act: Callable[[], None]) -> float:
    used, began = shown.cpu(), time.perf_counter()
    act()
    return (shown.cpu() - used) / (time.perf_counter() - began)


def _change_each_second(load: Load, change: Change) -> None:
    some = range(0, load.size.searches, max(1, load.size.searches // CHANGED))
    for further in range(1, load.seconds + 1):
        change([trial(search, 0, further) for search in some])
        time.sleep(1.0)


def _paths(load: Load) -> list[str]:
    searches = [number % load.size.searches for number in range(load.browsers)]
    return [f"/live/searches/{namespace_of(one)}/search-{one}" for one in searches]


def page(load: Load, cluster: Figures, watches: int, folder: Figures) -> str:
    """Return the result page without its RESULT line."""
    pairs = zip(cluster.costs, folder.costs, strict=True)
    rows = [f"| {a.what} | {a.wall:.2f} s | {a.cpu:.2f} s | {b.wall:.2f} s | {b.cpu:.2f} s |" for a, b in pairs]
    size = load.size
    return "\n".join(
        (
            "# Dashboard",
            "",
            f"`{command()}` on {machine()}.",
            f"{size.searches} searches with {size.trials} trials, {load.browsers} browsers.",
            "",
            "| | cluster: wall time | CPU time | folder: wall time | CPU time |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            "| | cluster | folder | limit |",
            "| --- | --- | --- | --- |",
            f"| memory after the start | {cluster.after_start:.0f} MiB | {folder.after_start:.0f} MiB | - |",
            f"| memory at the peak | {cluster.peak:.0f} MiB | {folder.peak:.0f} MiB | {MAX_MIB:.0f} MiB |",
            f"| watches of one kind | {watches} | - | 1 |",
            f"| browsers that got the last change | {cluster.reached} | {folder.reached} | {load.browsers} |",
            f"| cores in use while nothing changes | {cluster.idle:.2f} | {folder.idle:.2f} | - |",
            f"| cores in use while trials change every second | {cluster.busy:.2f} | {folder.busy:.2f} | - |",
            "",
        )
    )


def result(cluster: Figures, watches: int, folder: Figures) -> dict[str, Any]:
    """Return the RESULT line's content."""
    found: dict[str, Any] = {"bench": "dashboard", "watches": watches}
    for name, figures in (("cluster", cluster), ("folder", folder)):
        found |= {
            f"{name}_first_page_wall_s": round(figures.wall, 3),
            f"{name}_first_page_cpu_s": round(figures.cpu, 3),
            f"{name}_memory_mib": round(figures.peak, 1),
            f"{name}_browsers": figures.reached,
            f"{name}_wall_of_limit": round(figures.wall / MAX_PAGE_SECONDS, 3),
            f"{name}_cpu_of_limit": round(figures.cpu / MAX_PAGE_SECONDS, 3),
            f"{name}_memory_of_limit": round(figures.peak / MAX_MIB, 3),
        }
    return found


def main() -> int:
    parser = Parser(__doc__)
    add_out(parser)
    parser.add_argument("--searches", type=positive, default=50, help="default: 50")
    parser.add_argument("--trials", type=positive, default=10_000, help="of all searches (default: 10000)")
    parser.add_argument("--browsers", type=positive, default=200, help="default: 200")
    parser.add_argument("--seconds", type=positive, default=10, help="for which trials change (default: 10)")
    args = parser.parse_args()
    load = Load(Size(args.searches, args.trials), args.browsers, args.seconds)
    stored = list(trials(load.size))
    objects = {"hyperparamjobs": list(jobs(load.size)), "hyperparamtrials": stored, "gpunodes": list(nodes(stored))}
    cluster, watches = on_cluster(load, objects)
    folder = on_folder(load, objects)
    text = page(load, cluster, watches, folder) + "\n" + result_line(result(cluster, watches, folder)) + "\n"
    write_page(args.out / "bench-dashboard.md", text)
    print(text)
    return 0 if cluster.kept(args.browsers) and folder.kept(args.browsers) and watches == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
