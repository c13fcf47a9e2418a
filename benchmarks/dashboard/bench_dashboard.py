"""Memory and time of `podium dashboard` with 50 searches of 10,000 trials in all, and 200 browsers.

    make bench-dashboard [OUT=FOLDER]
    python -m benchmarks.dashboard.bench_dashboard [--searches 50] [--trials 10000] [--browsers 200]

The command runs in a process of its own, with the real client, on generated objects that an HTTP server lists and
watches. The first page is the page of searches, then that of one search. Wall time depends on what else runs on the
machine; CPU time much less. Memory is the peak of the resident set until the end of the run.

While all browsers look at pages of searches, trials change once a second for `--seconds`.

Limits: first page 1 s of CPU time, memory 300 MiB, one watch for each kind of object, every browser gets the last
change. Writes bench-dashboard.md into `--out`; the last line is RESULT {json}. The status is 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import Parser
from benchmarks.dashboard.browsers import Browsers
from benchmarks.dashboard.object_server import ObjectServer
from benchmarks.dashboard.objects import Size, jobs, namespace_of, nodes, trial, trials
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page

MAX_PAGE_SECONDS, MAX_MIB = 1.0, 300.0
DEADLINE = 600.0
CHANGED = 5  # trials that change at once
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Shown:
    """A running dashboard: its address and its process."""

    base: str
    token: str
    pid: int

    @property
    def headers(self) -> dict[str, str]:
        """Return the header with the token."""
        return {"Authorization": f"Bearer {self.token}"}

    def mib(self, field: str) -> float:
        """Return VmRSS or VmHWM of the process in MiB."""
        found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def cpu(self) -> float:
        """Return the CPU seconds that the process has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICK


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds of one thing."""

    what: str
    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured.

    `reached`: browsers that got the last change. `busy`: cores in use during the changes.
    """

    costs: tuple[Cost, ...]
    after_start: float
    peak: float
    watches: int
    reached: int
    busy: float


@contextmanager
def dashboard(kubeconfig: Path) -> Iterator[Shown]:
    """Run the command on all namespaces during the block."""
    words = ["dashboard", "-A", "--kubeconfig", str(kubeconfig), "--port", "0"]
    with subprocess.Popen([sys.executable, "-m", "podium_cli.main", *words], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            line = run.stdout.readline()
            found = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", line)
            if found is None:
                raise SystemExit(f"podium dashboard printed no address: {line!r}")
            yield Shown(found[1], found[2], run.pid)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(60.0)


def timed_page(shown: Shown, what: str, path: str) -> Cost:
    """Get a page for the first time."""
    began, used = time.perf_counter(), shown.cpu()
    request = urllib.request.Request(shown.base + path, headers=shown.headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        answer.read()
    return Cost(what, time.perf_counter() - began, shown.cpu() - used)


def measure(size: Size, browsers: int, seconds: int) -> Figures:
    """Return the figures of one run."""
    stored = list(trials(size))
    server = ObjectServer(
        {"hyperparamjobs": list(jobs(size)), "hyperparamtrials": stored, "gpunodes": list(nodes(stored))}
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(server.serving())
        began = time.perf_counter()
        shown = stack.enter_context(dashboard(server.kubeconfig(folder / "kubeconfig")))
        costs = [Cost("start, until all objects are read", time.perf_counter() - began, shown.cpu())]
        after_start = shown.mib("VmRSS")
        first = f"/searches/{namespace_of(0)}/search-0"
        costs += [timed_page(shown, "page of all searches", "/"), timed_page(shown, "page of one search", first)]
        costs.append(timed_page(shown, "page of one trial", f"/trials/{namespace_of(0)}/search-0-0"))
        costs.append(timed_page(shown, "page of the GPUs", "/gpus"))
        looking = stack.enter_context(Browsers(shown.base, shown.headers, _paths(size, browsers)).looking())
        looking.wait_connected(DEADLINE)
        used, began = shown.cpu(), time.perf_counter()
        some = range(0, size.searches, max(1, size.searches // CHANGED))
        for further in range(1, seconds + 1):
            server.change("hyperparamtrials", [trial(search, 0, further) for search in some])
            time.sleep(1.0)
        busy = (shown.cpu() - used) / (time.perf_counter() - began)
        last = [trial(search, 0, seconds + 1) for search in range(size.searches)]
        looking.expect(f"further {seconds + 1};")
        server.change("hyperparamtrials", last)
        reached = looking.wait_reached(DEADLINE)
        return Figures(tuple(costs), after_start, shown.mib("VmHWM"), max(server.most.values()), reached, busy)


def _paths(size: Size, browsers: int) -> list[str]:
    searches = [number % size.searches for number in range(browsers)]
    return [f"/live/searches/{namespace_of(one)}/search-{one}" for one in searches]


def page(size: Size, browsers: int, figures: Figures) -> str:
    """Return the result page without its RESULT line."""
    rows = [f"| {one.what} | {one.wall:.2f} s | {one.cpu:.2f} s |" for one in figures.costs]
    return "\n".join(
        (
            "# Dashboard",
            "",
            f"`{command()}` on {machine()}. {size.searches} searches with {size.trials} trials, {browsers} browsers.",
            "",
            "| | wall time | CPU time |",
            "| --- | --- | --- |",
            *rows,
            "",
            "| | measured | limit |",
            "| --- | --- | --- |",
            f"| memory after the start | {figures.after_start:.0f} MiB | - |",
            f"| memory at the peak | {figures.peak:.0f} MiB | {MAX_MIB:.0f} MiB |",
            f"| watches of one kind | {figures.watches} | 1 |",
            f"| browsers that got the last change | {figures.reached} | {browsers} |",
            f"| cores in use while trials change every second | {figures.busy:.2f} | - |",
            "",
        )
    )


def main() -> int:
    parser = Parser(__doc__)
    add_out(parser)
    parser.add_argument("--searches", type=positive, default=50, help="default: 50")
    parser.add_argument("--trials", type=positive, default=10_000, help="of all searches (default: 10000)")
    parser.add_argument("--browsers", type=positive, default=200, help="default: 200")
    parser.add_argument("--seconds", type=positive, default=10, help="for which trials change (default: 10)")
    args = parser.parse_args()
    size = Size(args.searches, args.trials)
    figures = measure(size, args.browsers, args.seconds)
    pages = figures.costs[1:3]
    wall, cpu = max(one.wall for one in pages), max(one.cpu for one in pages)
    result = {
        "bench": "dashboard",
        "first_page_wall_s": round(wall, 3),
        "first_page_cpu_s": round(cpu, 3),
        "memory_mib": round(figures.peak, 1),
        "watches": figures.watches,
        "browsers": figures.reached,
        "wall_of_limit": round(wall / MAX_PAGE_SECONDS, 3),
        "cpu_of_limit": round(cpu / MAX_PAGE_SECONDS, 3),
        "memory_of_limit": round(figures.peak / MAX_MIB, 3),
    }
    text = page(size, args.browsers, figures) + "\n" + result_line(result) + "\n"
    write_page(args.out / "bench-dashboard.md", text)
    print(text)
    kept = cpu <= MAX_PAGE_SECONDS and figures.peak <= MAX_MIB
    return 0 if kept and figures.watches == 1 and figures.reached == args.browsers else 1


if __name__ == "__main__":
    sys.exit(main())
