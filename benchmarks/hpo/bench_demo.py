"""Six policies on the real cluster, and how fast a change of a run queue takes effect.

    make bench-demo [SEEDS=3] [OUT=FOLDER]         (root)
    python -m benchmarks.hpo.bench_demo [--policies envelope,hermes,...] [--seeds 3] [--seconds 30]

1. time_to_best: seconds until the best trial of a search has completed, with the same job and seeds on the same
   cluster, one policy after another. The best trial is the one with the best final value under fifo, which runs every
   trial to its end; the runs of all policies are bit-identical. A policy that stops the best trial early never
   completes it. Trials last `--seconds` on one core of this machine: much shorter ones consist mainly of start-up,
   which every trial pays before its warm-up.
2. From a new run queue on GPUNode until the old holder is frozen and the new one is thawed, seen in the cgroups from
   outside. The operator is scaled to zero and this program writes the run queues, 100 by default.

Writes bench-demo.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.digits_cluster import FINAL, ROOT, calibrated, freezer_of, install, is_frozen, percentile
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_cluster.client import Api, connect
from podium_cluster.resources import GPUNODES
from podium_cluster.settings import ClusterSettings
from podium_core.policies.registry import NAMES
from podium_core.schema.manifests import read_manifests
from podium_devcluster.cluster import Cluster

BASE = "fifo"
POLICIES = ("envelope", "hermes", "asha", "slaq", "round_robin", BASE)
BASES = (BASE, "round_robin", "slaq")  # what the others are compared with
FREEZER_POLL = 0.0005


@dataclass(frozen=True, slots=True)
class Search:
    """One search that has ended.

    `completed`: seconds from the job's creation to the end of each trial that ran to its end; `finals`: the last value
    of each trial; `seconds`: until the last trial ended.
    """

    completed: Mapping[str, float]
    finals: Mapping[str, float]
    suspensions: int
    seconds: float

    @property
    def best(self) -> str:
        """The trial with the best final value; the first of equals."""
        return max(sorted(self.finals, key=int), key=lambda number: self.finals[number])


Searches = Mapping[tuple[str, int], Search]  # policy, seed


def manifest(policy: str, seed: int, work: int) -> dict[str, Any]:
    """Return the example's job under this policy; another policy than the example's has no settings."""
    job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    job["metadata"]["name"] = f"{policy.replace('_', '-')}-{seed}"
    spec = job["spec"]
    spec["search"]["seed"] = seed
    if spec["policy"]["name"] != policy:
        spec["policy"] = {"name": policy}
    spec["template"]["spec"]["containers"][0]["command"].insert(2, f"--work={work}")
    return job


def run_search(cluster: Cluster, job: dict[str, Any], seconds: float) -> Search:
    """Create the job, wait for its end, and delete it."""
    name = job["metadata"]["name"]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    deadline = time.monotonic() + seconds
    while True:
        job_object = json.loads(cluster.kubectl("get", "hyperparamjob", name, "-o", "json"))
        phase = job_object.get("status", {}).get("phase")
        if phase in FINAL:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not end within {seconds:g} s (phase {phase})")
        time.sleep(1)
    if phase != "Succeeded":
        raise RuntimeError(f"{name} ended as {phase}: {job_object['status']['message']}")
    created = _seconds(job_object["metadata"]["creationTimestamp"])
    selector = f"podium.dev/job={name}"
    trials = json.loads(cluster.kubectl("get", "hyperparamtrials", "-l", selector, "-o", "json"))["items"]
    statuses = {str(trial["spec"]["number"]): trial["status"] for trial in trials}
    cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
    ends = {number: _seconds(status["finishedAt"]) - created for number, status in statuses.items()}
    return Search(
        {number: end for number, end in ends.items() if statuses[number]["phase"] == "Succeeded"},
        {number: status["lastValue"] for number, status in statuses.items() if "lastValue" in status},
        job_object["status"]["suspensions"],
        max(ends.values()),
    )


def _seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def search_all(cluster: Cluster, policies: Sequence[str], options: argparse.Namespace) -> Searches:
    """Run every policy once for each seed; the policies of one seed run one after another."""
    searches: dict[tuple[str, int], Search] = {}
    for seed in range(options.seeds):
        for policy in policies:
            search = run_search(cluster, manifest(policy, seed, options.work), options.limit)
            searches[policy, seed] = search
            print(f"seed {seed}, {policy}: {search.seconds:.0f} s, {search.suspensions} suspensions", flush=True)
    return searches


def time_to_best(searches: Searches, policy: str, seed: int) -> float | None:
    """Return the seconds until the best trial of this seed has completed.

    The result is None if the policy stopped that trial early.
    """
    return searches[policy, seed].completed.get(searches[BASE, seed].best)


def comparison(searches: Searches, policies: Sequence[str], seeds: int) -> dict[str, dict[str, Any]]:
    """Return for each policy its time_to_best by seed, and the ratios of the bases' times to it.

    A ratio `vs_BASE` is the geometric mean over the seeds in which both policies completed the best trial, and
    `vs_BASE_worst` the smallest; above 1 the policy is faster than the base.
    """
    times = {policy: [time_to_best(searches, policy, seed) for seed in range(seeds)] for policy in policies}
    table: dict[str, dict[str, Any]] = {}
    for policy, mine in times.items():
        figures: dict[str, Any] = {"seconds": mine}
        for base in BASES:
            if base == policy or base not in times:
                continue
            ratios = [b / a for a, b in zip(mine, times[base], strict=True) if a is not None and b is not None]
            if ratios:
                figures[f"vs_{base}"] = round(math.exp(statistics.fmean(map(math.log, ratios))), 2)
                figures[f"vs_{base}_worst"] = round(min(ratios), 2)
        figures["suspensions"] = sum(searches[policy, seed].suspensions for seed in range(seeds))
        table[policy] = figures
    return table


def tables(searches: Searches, figures: Mapping[str, Mapping[str, Any]], seeds: int) -> list[str]:
    """Return the Markdown lines of the comparison."""
    lines = [
        "Seconds from the job's creation until the best trial had completed (time_to_best):\n",
        f"| seed | best trial (final value) | {' | '.join(figures)} |",
        "| --- " * (2 + len(figures)) + "|",
    ]
    for seed in range(seeds):
        base = searches[BASE, seed]
        cells = [f"{t:.0f}" if (t := one["seconds"][seed]) is not None else "stopped" for one in figures.values()]
        lines.append(f"| {seed} | {base.best} ({base.finals[base.best]:.4f}) | {' | '.join(cells)} |")
    lines += [
        "\nTimes as fast as the base, geometric mean over the seeds (worst seed):\n",
        f"| policy | {' | '.join(f'against {base}' for base in BASES)} | suspensions |",
        "| --- " * (2 + len(BASES)) + "|",
    ]
    for policy, one in figures.items():
        cells = [f"{one[f'vs_{b}']:.2f} ({one[f'vs_{b}_worst']:.2f})" if f"vs_{b}" in one else "" for b in BASES]
        lines.append(f"| {policy} | {' | '.join(cells)} | {one['suspensions']} |")
    return lines


async def switch_times(cluster: Cluster, options: argparse.Namespace) -> list[float]:
    """Return the milliseconds from the API server's answer to a run queue until the cgroups show it.

    The run queues alternate between two trials.
    """
    job = manifest("round_robin", 0, options.work)
    job["metadata"]["name"] = "switching"
    job["spec"]["policy"]["settings"] = {"quantum": 3}
    job["spec"]["trials"] |= {"max": 4, "parallel": 4, "maxSteps": 4000}
    container_command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    container_command[:] = [word.replace("--epochs=40", "--epochs=4000") for word in container_command]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    pods = _two_started(cluster, options.limit)
    cluster.kubectl("scale", "deployment/podium-operator", "-n", "podium-system", "--replicas=0")
    cluster.kubectl(
        "wait", "--for=delete", "pod", "-n", "podium-system", "-l", "app.kubernetes.io/component=operator", timeout=70
    )
    times = []
    try:
        async with connect(ClusterSettings(kubeconfig=cluster.kubeconfig)) as api:
            for number in range(options.switches):
                first, second = pods if number % 2 == 0 else pods[::-1]
                times.append(await _switch(api, first, second))
                await asyncio.sleep(0.3)  # for the agent's report: a burst of run queues is not what is measured
    finally:
        cluster.kubectl("scale", "deployment/podium-operator", "-n", "podium-system", "--replicas=1")
        cluster.kubectl("delete", "hyperparamjob", "switching", "--timeout=90s", timeout=100)
    return times[1:]  # the first trial may hold the GPU before the first run queue


@dataclass(frozen=True, slots=True)
class StartedTrial:
    """A trial whose main container exists: its names in a run queue, and its freezer."""

    node: str
    gpu: str
    namespace: str
    trial: str
    uid: str
    freezer: Path

    def frozen(self) -> bool:
        return is_frozen(self.freezer)


def _two_started(cluster: Cluster, seconds: float) -> tuple[StartedTrial, StartedTrial]:
    """Wait for two trials on one GPU that have both held it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for node in json.loads(cluster.kubectl("get", "gpunodes", "-o", "json"))["items"]:
            name = node["metadata"]["name"]
            for gpu in node.get("status", {}).get("gpus", []):
                there = [t for t in gpu.get("trials", []) if t["state"] in ("Running", "Suspended")]
                if len(there) >= 2:
                    return _started(cluster, name, gpu["uuid"], there[0]), _started(
                        cluster, name, gpu["uuid"], there[1]
                    )
        time.sleep(0.5)
    raise RuntimeError(f"no two trials started on one GPU within {seconds:g} s")


def _started(cluster: Cluster, node: str, gpu: str, there: dict[str, Any]) -> StartedTrial:
    pod = json.loads(cluster.kubectl("get", "pod", there["pod"], "-n", there["namespace"], "-o", "json"))
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    freezer = freezer_of(cluster, container)
    return StartedTrial(node, gpu, there["namespace"], there["trial"], there["uid"], freezer)


async def _switch(api: Api, first: StartedTrial, second: StartedTrial) -> float:
    node = await api.get(GPUNODES, first.node)
    run_queue = [
        {"namespace": t.namespace, "trial": t.trial, "uid": t.uid, "reason": "Benchmark", "message": "bench-demo"}
        for t in (first, second)
    ]
    spec = {"epoch": node["spec"]["epoch"] + 1, "gpus": [{"uuid": first.gpu, "runQueue": run_queue}]}
    await api.apply(GPUNODES, {"metadata": {"name": first.node}, "spec": spec}, manager="podium-operator")
    start = time.perf_counter()
    while not (second.frozen() and not first.frozen()):
        if time.perf_counter() - start > 30:
            raise RuntimeError("a run queue did not take effect within 30 s")
        await asyncio.sleep(FREEZER_POLL)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--name", default="bench", help="name of the cluster (default: bench)")
    parser.add_argument("--policies", default=",".join(POLICIES), help=f"default: {','.join(POLICIES)}")
    parser.add_argument("--seeds", type=int, default=3, help="searches of each policy; 0: none (default: 3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a trial on one core (default: 30)")
    parser.add_argument("--switches", type=int, default=100, help="run queues to time (default: 100)")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds that one search may take")
    add_out(parser)
    options = parser.parse_args()
    policies = list(dict.fromkeys([*options.policies.split(","), BASE]))
    unknown = [name for name in policies if name not in NAMES]
    if unknown:
        parser.error(f"--policies: {unknown[0]!r} is not known; choose some of: {', '.join(NAMES)}")
    options.work = calibrated(options.seconds)
    print(f"trials of about {options.seconds:g} s: --work={options.work}", flush=True)
    cluster = Cluster(options.name)
    try:
        install(cluster)
        times = asyncio.run(switch_times(cluster, options))
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"run queue to effect: p50 {p50:.1f} ms, p99 {p99:.1f} ms, n={len(times)}", flush=True)
        searches = search_all(cluster, policies, options)
    finally:
        cluster.down()
    figures = comparison(searches, policies, options.seeds) if options.seeds else {}
    result = {
        "time_to_best": figures,
        "decision_to_effect_ms": {"p50": round(p50, 1), "p99": round(p99, 1)},
    }
    page = [
        f"# bench-demo\n\n`{command()}` on {machine()}; {options.seconds:g} s a trial.\n",
        *(tables(searches, figures, options.seeds) if figures else []),
        (
            f"\nFrom a run queue on GPUNode to its effect in the cgroups ({len(times)} run queues): "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms."
        ),
        f"\n```\n{result_line(result)}\n```\n",
    ]
    write_page(options.out / "bench-demo.md", "\n".join(page))
    print("\n".join(page))
    print(result_line(result))


if __name__ == "__main__":
    main()
