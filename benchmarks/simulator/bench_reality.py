"""The digits search on the real two-node cluster, and the same search in the simulated system.

    make bench-reality [POLICY=NAME] [WORKERS=2] [OUT=FOLDER]         (root)
    python -m benchmarks.simulator.bench_reality --from-files FOLDER  (without a cluster)

1. Runs examples/digits/job.yaml on the cluster, once for each seed, and saves its objects (`--save FOLDER`). Or reads
   objects that were saved before (`--from-files FOLDER`): for each search one JSON file, as `kubectl get -o json`
   writes it, and the logs of its gates and agents.
2. Simulates each search from its own curves and training times, its nodes and slots, and the durations of its starts,
   ends and suspensions. The planner decides which trial trains when and which trials are stopped; the decisions on the
   cluster are not read.
3. Compares (`comparison`): Kendall's tau of the order of matched time slices, and the errors of the finish times.
4. Repeats each simulation with slightly different trial speeds (`noise`), to show what depends on near ties.
5. Forecasts each job as `podium plan` does, and compares that too (`forecast`).

The job's policy is the example's, or `--policy NAME` without settings. Bars: tau >= 0.9; error of the finish time 10 %
in the median and 25 % at the 90th percentile. Writes bench-reality.md and .png into `--out`, for another policy than
the example's bench-reality-NAME.md and .png; the last line is RESULT {json}. With `--workers N` each trial has N pods,
and the name of the files has -N-workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, machine, result_line, write_page
from benchmarks.simulator import forecast, noise
from benchmarks.simulator.comparison import BARS, Comparison, Search, compared, error_of, read_searches
from benchmarks.simulator.forecast import Forecasted, forecasted
from benchmarks.simulator.noise import Repeated, repeated
from benchmarks.simulator.record import example, record
from podium_core.policies.registry import NAMES

mpl.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = (
    "search",
    "time slices, real / sim.",
    "matched",
    "tau",
    "median error",
    "p90 error",
    "end, real / sim.",
    "stopped",
    "ok",
)


@dataclass(frozen=True, slots=True)
class Report:
    """Searches under one policy on the same nodes; each forecast has the number of its search."""

    policy: str
    workers: int
    gpus: int
    nodes: int
    comparisons: tuple[Comparison, ...]
    repeats: tuple[Repeated, ...]
    forecasts: tuple[tuple[int, Forecasted], ...]

    @property
    def name(self) -> str:
        """The stem of the result files."""
        own = "" if self.policy == example()["spec"]["policy"]["name"] else f"-{self.policy}"
        return f"bench-reality{own}{f'-{self.workers}-workers' if self.workers > 1 else ''}"

    @property
    def command(self) -> str:
        """The command that repeats it."""
        own = "" if self.policy == example()["spec"]["policy"]["name"] else f" POLICY={self.policy}"
        return f"make bench-reality{own}{f' WORKERS={self.workers}' if self.workers > 1 else ''}"


def plot(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw the starts of time slices and the ends of trials, simulated over real."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6))
    for number, one in enumerate(comparisons):
        label = f"search {number}"
        left.scatter(*zip(*((t.real, t.simulated) for t in one.slices), strict=True), s=14, label=label)
        right.scatter(*zip(*((f.real, f.simulated) for f in one.finishes), strict=True), s=22, label=label)
    for axis, title in ((left, "a time slice starts"), (right, "a trial ends")):
        limit = max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([0, limit], [0, limit], color="0.7", lw=1)
        axis.set(
            title=title, xlabel="on the cluster, seconds", ylabel="simulated, seconds", xlim=(0, limit), ylim=(0, limit)
        )
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def report(searches: Sequence[Search], policy: str | None) -> Report:
    """Compare, repeat and forecast the searches. `policy`: the expected one, None for any.

    Raises ValueError where the searches are not all under one policy, or under another than the expected one.
    """
    jobs = [search.scenario.jobs[0].view for search in searches]
    names = sorted({job.policy for job in jobs})
    if len(names) != 1 or policy not in (None, names[0]):
        text = f"searches under {', '.join(names) or 'none'}"
        raise ValueError(f"{text}; give a folder with searches of one policy{f', {policy}' if policy else ''}")
    sizes = [(sum(node.gpus for node in nodes), len(nodes)) for nodes in (s.scenario.nodes for s in searches)]
    forecasts = []
    for number, (job, size, one) in enumerate(zip(jobs, sizes, searches, strict=True)):
        others = [None] if len(searches) == 1 else [None, searches[number - 1].run]
        forecasts += [(number, forecasted(job, *size, one.run, last)) for last in others]
    comparisons, repeats = tuple(map(compared, searches)), tuple(map(repeated, searches))
    return Report(names[0], jobs[0].gpus.workers, *sizes[0], comparisons, repeats, tuple(forecasts))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--name", default="reality", help="name of the cluster (default: reality)")
    parser.add_argument("--policy", choices=NAMES, help="of the job, without settings (default: the example's, with)")
    parser.add_argument("--seeds", type=positive, default=3, help="searches (default: 3)")
    parser.add_argument("--workers", type=positive, default=1, help="pods of a trial, one on each node (default: 1)")
    parser.add_argument("--work", type=int, default=0, help="of a trial (train.py --work; default: the example's)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one search may take")
    parser.add_argument("--save", type=Path, help="folder for the objects of the searches (default: not kept)")
    parser.add_argument("--from-files", type=Path, help="compare these instead of running a cluster")
    parser.add_argument("--note", default="", help="a sentence for the page: what else the machine did meanwhile")
    add_out(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.from_files or options.save or Path(scratch)
        if options.from_files is None:
            folder.mkdir(parents=True, exist_ok=True)
            record(options, folder)
        try:
            made = report(read_searches(folder), options.policy)
        except ValueError as error:
            parser.error(f"{folder}: {error}")
    publish(made, options.note, options.out)


def publish(made: Report, note: str, folder: Path) -> None:
    """Write the page and the plot; print the page."""
    comparisons, name = made.comparisons, made.name
    result = {
        "bench": "reality",
        "policy": made.policy,
        "searches": len(comparisons),
        "kendall_tau": [round(one.tau, 3) for one in comparisons],
        "matched_time_slices": [round(one.matched, 3) for one in comparisons],
        "finish_error_median": [round(one.error(0.5), 3) for one in comparisons],
        "finish_error_p90": [round(one.error(0.9), 3) for one in comparisons],
        "finish_error_all": {
            "median": round(error_of(comparisons, 0.5), 3),
            "p90": round(error_of(comparisons, 0.9), 3),
        },
        "job_end_error": [round(one.job_error, 3) for one in comparisons],
        "stopped": [one.stopped for one in comparisons],
        "bars": BARS,
        "held": [one.held for one in comparisons],
        "against_itself": noise.result(made.repeats),
        "forecast": forecast.result([one for _, one in made.forecasts]),
    }
    rows = [one.row(number) for number, one in enumerate(comparisons)]
    several = f" with {made.workers} workers a trial" if made.workers > 1 else ""
    text = "\n".join(
        [
            "# The simulated system against the real cluster\n",
            f"`{made.command}` on {machine()}: the digits search",
            f"under `{made.policy}`{several} on the real two-node cluster, simulated from its own curves, starts and",
            "switches ([method](../../docs/benchmarks/simulation.md#against-the-real-cluster)).\n",
            "Bars: Kendall's tau of matched time slices >= 0.9; error of finish times <= 10 % (median), 25 % (p90).",
            "Stopped: trials that were stopped early, on the cluster, simulated, in both.\n",
            f"| {' | '.join(COLUMNS)} |",
            f"|{' --- |' * len(COLUMNS)}",
            *rows,
            f"\nOver the trials of all searches, finish times are {error_of(comparisons, 0.5):.1%} off in the median",
            f"and {error_of(comparisons, 0.9):.1%} at p90.",
            *([f"\n{note}"] if note else []),
            f"\n![time slices and finish times]({name}.png)",
            *noise.section(made.repeats),
            *forecast.section(made.forecasts, made.gpus, made.nodes),
            f"\n{result_line(result)}\n",
        ]
    )
    write_page(folder / f"{name}.md", text)
    plot(comparisons, folder / f"{name}.png")
    print(text, end="")


if __name__ == "__main__":
    main()
