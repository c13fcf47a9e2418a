"""`make bench-reality`: the digits search on the real two-node cluster, and the same search in the simulated system.

1. Runs examples/digits/job.yaml on the cluster, once a seed, and saves its objects (`--save FOLDER`); or reads objects
   that were saved before (`--from-files FOLDER`): one JSON file a search, as `kubectl get -o json` writes them, and a
   log of its gates.
2. Simulates each search from what it showed of itself: its curves with the times at which it trained, its nodes and
   shares, what starts, ends and suspensions took. Who is trained when is the planner's affair, and the cluster's
   decisions are not read.
3. Compares (reality_compare): Kendall's tau of the order of matched turns on GPUs, errors of the trials' finish times.

Bars: tau >= 0.9, error of the finish time 10 % in the median, 25 % at the 90th percentile. Writes
benchmarks/results/bench-reality.md and .png and prints `RESULT {json}`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
from bench_demo import demo_module
from reality_compare import AGENTS, APPLIED, BARS, GATES, Comparison, compared, read_searches

from podium.schema.manifests import read_manifests
from podium.schema.template import GATE_CONTAINER
from podium_devcluster.cluster import Cluster

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
KINDS = "hyperparamjobs,hyperparamtrials,gpunodes,pods"


def record(options: argparse.Namespace, folder: Path) -> None:
    """One cluster, one search after another on it; the objects of each go into a file."""
    demo, cluster = demo_module(), Cluster(options.name)
    try:
        demo.install(demo.Place(cluster.cache.root, options.name))
        for seed in range(options.seeds):
            job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
            job["metadata"]["name"] = name = f"digits-{seed}"
            job["spec"]["search"]["seed"] = seed
            if options.work:
                job["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, f"--work={options.work}")
            job["metadata"]["annotations"] = {APPLIED: repr(time.time())}  # the API server keeps whole seconds
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
            # the operator says so itself, whatever the machine is busy with
            wait = ["--for=jsonpath={.status.phase}=Succeeded", f"--timeout={options.limit:g}s"]
            cluster.kubectl("wait", "hyperparamjob", name, *wait, timeout=options.limit + 10)
            text = cluster.kubectl("get", KINDS, "-A", "-o", "json")
            (folder / f"{name}.json").write_text(text)
            of_job = ("-l", f"podium.dev/job={name}", "-c", GATE_CONTAINER)
            asked = cluster.kubectl("logs", *of_job, "--prefix", "--timestamps", "--tail=-1")
            (folder / f"{name}{GATES}").write_text(asked)
            agents = ("-n", "podium-system", "-l", "app.kubernetes.io/component=agent")
            begun = cluster.kubectl("logs", *agents, "--prefix", "--timestamps", "--tail=-1")
            mine = [line for line in begun.splitlines() if f"{name}-" in line]
            (folder / f"{name}{AGENTS}").write_text("\n".join(mine))
            cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
            print(f"seed {seed}: ended, objects saved", flush=True)
    finally:
        cluster.down()


def picture(found: list[Comparison], path: Path) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="reality", help="name of the cluster (default: reality)")
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
        found = [compared(search) for search in read_searches(folder)]
    publish(found, options.note)


def publish(found: list[Comparison], note: str) -> None:
    result = {
        "bench": "reality",
        "searches": len(found),
        "kendall_tau": [round(one.tau, 3) for one in found],
        "matched_turns": [round(one.matched, 3) for one in found],
        "finish_error_median": [round(one.error(0.5), 3) for one in found],
        "finish_error_p90": [round(one.error(0.9), 3) for one in found],
        "job_end_error": [round(one.job_error, 3) for one in found],
        "bars": BARS,
        "held": [one.held for one in found],
    }
    rows = [one.row(number) for number, one in enumerate(found)]
    text = "\n".join(
        [
            "# The simulated system against the real cluster\n",
            f"`make bench-reality` on {os.cpu_count()} cores, {platform.system()} {platform.release()}: the digits",
            "search on the real two-node cluster, and simulated from its own curves, starts and switches",
            "([what that means](../../docs/simulation.md#against-the-real-cluster)).\n",
            "Bars: Kendall's tau of matched turns >= 0.9; error of finish times <= 10 % (median), 25 % (p90).\n",
            "| search | turns, real / sim. | matched | tau | median error | p90 error | end, real / sim. | ok |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            *([f"\n{note}"] if note else []),
            "\n![turns and finish times](bench-reality.png)\n",
            f"RESULT {json.dumps(result)}\n",
        ]
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "bench-reality.md").write_text(text, encoding="utf-8")
    picture(found, RESULTS / "bench-reality.png")
    print(text, end="")


if __name__ == "__main__":
    main()
