"""`make bench-reality`: the digits search on the real two-node cluster, and the same search in the simulated system.

1. Runs examples/digits/job.yaml on the cluster, once a seed, and saves its objects (`--save FOLDER`); or reads objects
   that were saved before (`--from-files FOLDER`): one JSON file a search, as `kubectl get -o json` writes them, and a
   log of its gates.
2. Simulates each search from what it showed of itself: its curves with the times at which it trained, its nodes and
   shares, what starts, ends and suspensions took. Who is trained when, and who is stopped, is the planner's affair, and
   the cluster's decisions are not read.
3. Compares (reality_compare): Kendall's tau of the order of matched turns on GPUs, errors of the trials' finish times.
4. Repeats each simulation with the speeds of its trials a little other (reality_noise): what hangs on near ties.
5. Forecasts each job as `podium plan` does, and compares that as well (reality_forecast).

The job's policy is the example's, or `--policy NAME` without settings. Bars: tau >= 0.9, error of the finish time 10 %
in the median, 25 % at the 90th percentile. Writes benchmarks/results/bench-reality.md and .png, for another policy than
the example's bench-reality-NAME.md and .png, and prints `RESULT {json}`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import reality_forecast
import reality_noise
from reality_compare import BARS, Comparison, Search, compared, error_of, read_searches
from reality_forecast import Forecasted, forecasted
from reality_noise import Repeated, repeated
from reality_record import example, record

from podium_core.policies.registry import NAMES

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = (
    "search",
    "turns, real / sim.",
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
    """Of searches under one policy, on the same nodes."""

    policy: str
    gpus: int
    nodes: int
    found: tuple[Comparison, ...]
    repeats: tuple[Repeated, ...]
    forecasts: tuple[tuple[int, Forecasted], ...]  # with the search's number

    @property
    def name(self) -> str:
        """Of the files of results."""
        return "bench-reality" if self.policy == example()["spec"]["policy"]["name"] else f"bench-reality-{self.policy}"


def picture(found: Sequence[Comparison], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6))
    for number, one in enumerate(found):
        left.scatter(*zip(*((t.real, t.simulated) for t in one.turns), strict=True), s=14, label=f"search {number}")
        right.scatter(*zip(*((f.real, f.simulated) for f in one.finishes), strict=True), s=22, label=f"search {number}")
    for axis, title in ((left, "a turn on a GPU begins"), (right, "a trial ends")):
        limit = max(axis.get_xlim()[1], axis.get_ylim()[1])
        axis.plot([0, limit], [0, limit], color="0.7", lw=1)
        axis.set(
            title=title, xlabel="on the cluster, seconds", ylabel="simulated, seconds", xlim=(0, limit), ylim=(0, limit)
        )
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def report(searches: Sequence[Search], policy: str | None) -> Report:
    """`policy`: that they are to be of; None: whichever it is, but one. ValueError where they are not."""
    jobs = [search.scenario.jobs[0].view for search in searches]
    places = [search.scenario.nodes for search in searches]
    names = sorted({job.policy for job in jobs})
    if len(names) != 1 or policy not in (None, names[0]):
        text = f"searches under {', '.join(names) or 'none'}"
        raise ValueError(f"{text}; give a folder with searches of one policy{f', {policy}' if policy else ''}")
    nodes = [(sum(node.gpus for node in place), len(place)) for place in places]
    forecasts = []
    for number, (job, size, one) in enumerate(zip(jobs, nodes, searches, strict=True)):
        others = [None] if len(searches) == 1 else [None, searches[number - 1].run]
        forecasts += [(number, forecasted(job, *size, one.run, last)) for last in others]
    found, repeats = (tuple(map(make, searches)) for make in (compared, repeated))
    return Report(names[0], *nodes[0], found, repeats, tuple(forecasts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="reality", help="name of the cluster (default: reality)")
    parser.add_argument("--policy", choices=NAMES, help="of the job, without settings (default: the example's, with)")
    parser.add_argument("--seeds", type=int, default=3, help="searches (default: 3)")
    parser.add_argument("--work", type=int, default=0, help="of a trial (train.py --work; default: the example's)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one search may take")
    parser.add_argument("--save", type=Path, help="folder for the objects of the searches (default: not kept)")
    parser.add_argument("--from-files", type=Path, help="compare these instead of running a cluster")
    parser.add_argument("--note", default="", help="a sentence for the result: what else the machine did meanwhile")
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
    publish(made, options.note)


def publish(made: Report, note: str) -> None:
    found, name = made.found, made.name
    result = {
        "bench": "reality",
        "policy": made.policy,
        "searches": len(found),
        "kendall_tau": [round(one.tau, 3) for one in found],
        "matched_turns": [round(one.matched, 3) for one in found],
        "finish_error_median": [round(one.error(0.5), 3) for one in found],
        "finish_error_p90": [round(one.error(0.9), 3) for one in found],
        "finish_error_all": {"median": round(error_of(found, 0.5), 3), "p90": round(error_of(found, 0.9), 3)},
        "job_end_error": [round(one.job_error, 3) for one in found],
        "stopped": [one.stopped for one in found],
        "bars": BARS,
        "held": [one.held for one in found],
        "against_itself": reality_noise.result(made.repeats),
        "forecast": reality_forecast.result([one for _, one in made.forecasts]),
    }
    rows = [one.row(number) for number, one in enumerate(found)]
    command = "make bench-reality" if name == "bench-reality" else f"make bench-reality POLICY={made.policy}"
    text = "\n".join(
        [
            "# The simulated system against the real cluster\n",
            f"`{command}` on {os.cpu_count()} cores, {platform.system()} {platform.release()}: the digits",
            f"search under `{made.policy}` on the real two-node cluster, and simulated from its own curves, starts and",
            "switches ([what that means](../../docs/benchmarks/simulation.md#against-the-real-cluster)).\n",
            "Bars: Kendall's tau of matched turns >= 0.9; error of finish times <= 10 % (median), 25 % (p90).",
            "Stopped: trials that were ended early, on the cluster, simulated, in both.\n",
            f"| {' | '.join(COLUMNS)} |",
            f"|{' --- |' * len(COLUMNS)}",
            *rows,
            f"\nThe trials of all searches together: finish times are {error_of(found, 0.5):.1%} off in the median,",
            f"{error_of(found, 0.9):.1%} at p90.",
            *([f"\n{note}"] if note else []),
            f"\n![turns and finish times]({name}.png)",
            *reality_noise.section(made.repeats),
            *reality_forecast.section(made.forecasts, made.gpus, made.nodes),
            f"\nRESULT {json.dumps(result)}\n",
        ]
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    picture(found, RESULTS / f"{name}.png")
    print(text, end="")


if __name__ == "__main__":
    main()
