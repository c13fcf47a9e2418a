"""The digits search by Katib with whole GPUs, and by Podium with four slots a GPU, on the same node.

    make bench-katib [SEEDS=5] [OUT=FOLDER]                                                   (root)
    python -m benchmarks.katib.bench_katib [--trials 12] [--seconds 30] [--seeds 5]

Katib is the real one, built from its Go module: controller, database manager, metrics collector, its suggestion
service in Go, and its median stopping service. Its trials get whole GPUs of NVIDIA's device plugin. The contenders of
a seed run one after the other; what the previous one had is gone.

1. Katib with random points and median stopping (its default settings). The seed is that of its service, which draws
   other points in another run all the same.
2. Katib with its TPE (its default settings: the first ten points are random). The number of trials and the trainer
   are the same.
3. Podium with the points of (1) in the same order, the default policy, and four slots a GPU.
4. As (3), with the policy `median_stop` in its default settings.

Measured for each search, from its creation:
- seconds until the trial with the best final value has finished; until a search has ended; until its first work;
- GPU-seconds held. Katib: its pods with `nvidia.com/gpu`, from their binding until their containers ended. Podium: all
  GPUs, from the creation to the end of the search, because nothing else can use them;
- GPU-seconds busy: in the driver's record of the trials' containers.

Both tools see a trial's end within half a second. Trials take `--seconds` on one core of this machine with the
trainer's default parameters. Writes bench-katib.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import time

from benchmarks.command_line import Parser
from benchmarks.digits_cluster import calibrated
from benchmarks.inputs import positive
from benchmarks.katib import report
from benchmarks.katib.measured import Search
from benchmarks.katib.report import KATIB_RANDOM, KATIB_TPE, PODIUM, PODIUM_MEDIAN, Searches
from benchmarks.katib.searches import DEFAULT_POLICY, SLOTS, Size
from benchmarks.katib.stage import Stage, cluster_with_katib
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_devcluster.artifacts import katib

GPUS = 2


def contenders(stage: Stage, seed: int) -> dict[str, Search]:
    """Run the searches of a seed, and say what each one did."""
    found: dict[str, Search] = {}
    with stage.katib():
        found[KATIB_RANDOM], points = stage.experiment(f"random-{seed}", "random", seed, stops=True)
        say(seed, KATIB_RANDOM, found)
        found[KATIB_TPE], _ = stage.experiment(f"tpe-{seed}", "tpe", seed, stops=False)
        say(seed, KATIB_TPE, found)
    with stage.podium():
        found[PODIUM] = stage.job(f"podium-{seed}", points, DEFAULT_POLICY)
        say(seed, PODIUM, found)
        found[PODIUM_MEDIAN] = stage.job(f"median-{seed}", points, "median_stop")
        say(seed, PODIUM_MEDIAN, found)
    print(f"seed {seed}: {report.same_points(found)} points have equal final values in Katib and Podium", flush=True)
    return found


def say(seed: int, name: str, found: dict[str, Search]) -> None:
    """Print a search that has ended."""
    search = found[name]
    print(
        f"seed {seed}, {name}: best {search.best.final:.4f} after {search.best.ended:.0f} s, ended after "
        f"{search.seconds:.0f} s, {search.stopped} of {len(search.trials)} stopped, "
        f"GPU-seconds held {search.held:.0f}, busy {search.busy:.0f}",
        flush=True,
    )


def page(searches: Searches, size: Size, seconds: float) -> str:
    """Return the page with the result line."""
    lines = [
        "# Katib and Podium on a cluster\n",
        f"`{command()}` on {machine()}: one node with {size.gpus} GPUs, {size.trials} trials of about {seconds:g} s,",
        f"Katib {katib.MODULE.version} with whole GPUs, Podium with {SLOTS} slots a GPU",
        "([method](../../docs/benchmarks/other-tools.md#katib-on-a-cluster)).\n",
        *report.seeds_table(searches),
        "\nHow Podium compares; above 1 it is ahead:\n",
        *report.comparison_table(searches),
        f"\n{result_line({'trials': size.trials, 'seconds': seconds, **report.result(searches)})}\n",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--name", default="katib", help="name of the cluster (default: katib)")
    parser.add_argument("--trials", type=positive, default=12, help="of each search (default: 12)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a trial on one core (default: 30)")
    parser.add_argument("--seeds", type=positive, default=5, help="searches of each contender (default: 5)")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one search may take (default: 1800)")
    add_out(parser)
    options = parser.parse_args()
    size = Size(options.trials, GPUS, calibrated(options.seconds))
    print(f"trials of about {options.seconds:g} s: --work={size.work}", flush=True)
    searches = []
    with cluster_with_katib(options.name, GPUS) as cluster:
        stage = Stage(cluster, size, options.limit)
        for seed in range(options.seeds):
            started = time.monotonic()
            searches.append(contenders(stage, seed))
            write_page(options.out / "bench-katib.md", page(searches, size, options.seconds))
            print(f"seed {seed}: {time.monotonic() - started:.0f} s", flush=True)
    print(page(searches, size, options.seconds), end="")


if __name__ == "__main__":
    main()
