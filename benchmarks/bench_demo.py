"""`make bench-demo`: the example under hermes, fifo and round_robin on the real cluster, and how fast an order works.

1. Time until the eventually best trial has finished, same job, seed and cluster, one policy after another. The best
   trial is the one with the best final value (the runs of all policies are bit-identical, so they agree on it). Trials
   last `--seconds` on one core of this machine (30 by default): far shorter ones are mostly start-up, which every trial
   pays before its first look.
2. From a new order on GPUNode to the old holder frozen and the new one thawed, seen in the cgroups from outside: the
   operator is scaled to zero and this program writes the orders, 100 by default.

Prints a table and `RESULT {json}`; both go to benchmarks/results/bench-demo.md with the command and the machine's size.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from podium_cluster.client import Api, connect
from podium_cluster.resources import GPUNODES
from podium_cluster.settings import ClusterSettings
from podium_core.schema.manifests import read_manifests
from podium_devcluster.cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "bench-demo.md"
POLICIES = ("fifo", "round_robin", "hermes")
FINAL = ("Succeeded", "Failed", "Refused")
FREEZER_POLL = 0.0005


def demo_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("examples/demo.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Search:
    """One search that ended: seconds from the job's creation to each trial's end, and each trial's final value."""

    ends: dict[str, float]
    finals: dict[str, float]
    suspensions: int

    def to_best(self, best: str) -> float:
        return self.ends[best]


def manifest(policy: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    job["metadata"]["name"] = f"{policy.replace('_', '-')}-{seed}"
    spec = job["spec"]
    spec["search"]["seed"] = seed
    if spec["policy"]["name"] != policy:
        spec["policy"] = {"name": policy}
    command = spec["template"]["spec"]["containers"][0]["command"]
    command.insert(2, f"--work={options.work}")
    return job


def run_search(cluster: Cluster, job: dict[str, Any], seconds: float) -> Search:
    name = job["metadata"]["name"]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    deadline = time.monotonic() + seconds
    while True:
        found = json.loads(cluster.kubectl("get", "hyperparamjob", name, "-o", "json"))
        phase = found.get("status", {}).get("phase")
        if phase in FINAL:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not end within {seconds:g} s (phase {phase})")
        time.sleep(1)
    if phase != "Succeeded":
        raise RuntimeError(f"{name} ended as {phase}: {found['status']['message']}")
    begun = _seconds(found["metadata"]["creationTimestamp"])
    trials = json.loads(cluster.kubectl("get", "hyperparamtrials", "-l", f"podium.dev/job={name}", "-o", "json"))[
        "items"
    ]
    numbered = {str(trial["spec"]["number"]): trial["status"] for trial in trials}
    cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
    return Search(
        {number: _seconds(status["finishedAt"]) - begun for number, status in numbered.items()},
        {number: status["lastValue"] for number, status in numbered.items()},
        found["status"]["suspensions"],
    )


def _seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def calibrated(seconds: float) -> int:
    """The example's --work that makes a trial last so long on one core of this machine."""
    train = ROOT / "examples/digits/train.py"
    stamps = []
    with subprocess.Popen(
        [sys.executable, str(train), "--epochs=7", "--work=200"], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for _line in run.stdout:
            stamps.append(time.perf_counter())
    epoch = (stamps[-1] - stamps[0]) / (len(stamps) - 1)
    return max(1, round(200 * seconds / 40 / epoch))


def compare(cluster: Cluster, options: argparse.Namespace) -> tuple[list[str], dict[str, float], int]:
    """Table rows, geometric means of the ratios, and suspensions under hermes."""
    searches: dict[tuple[str, int], Search] = {}
    for policies in (("fifo", "hermes"), ("round_robin",)):  # those compared most closely run closest in time
        for seed in range(options.seeds):
            for policy in policies:
                searches[policy, seed] = run_search(cluster, manifest(policy, seed, options), options.limit)
                found = searches[policy, seed]
                finals = found.finals
                best = max(sorted(finals, key=int), key=lambda number: finals[number])
                took = max(found.ends.values())
                print(
                    f"seed {seed} {policy}: best trial {best} after {found.to_best(best):.0f} of {took:.0f} s",
                    flush=True,
                )
    rows: list[str] = []
    ratios: dict[str, list[float]] = {rival: [] for rival in POLICIES[:-1]}
    for seed in range(options.seeds):
        mine = searches["hermes", seed]
        best = max(sorted(mine.finals, key=int), key=lambda number: mine.finals[number])
        for rival, those in ratios.items():
            those.append(searches[rival, seed].to_best(best) / mine.to_best(best))
        times = " | ".join(f"{searches[policy, seed].to_best(best):.0f}" for policy in POLICIES)
        rows.append(f"| {seed} | {best} ({mine.finals[best]:.4f}) | {times} |")
    means = {rival: math.exp(statistics.fmean(math.log(ratio) for ratio in those)) for rival, those in ratios.items()}
    return rows, means, sum(searches["hermes", seed].suspensions for seed in range(options.seeds))


async def switch_times(cluster: Cluster, options: argparse.Namespace) -> list[float]:
    """Milliseconds from the answer of the API server to an order until the cgroups show it, alternating two trials."""
    job = manifest("round_robin", 0, options)
    job["metadata"]["name"] = "switching"
    job["spec"]["policy"]["settings"] = {"quantum": 3}
    job["spec"]["trials"] |= {"max": 4, "parallel": 4, "maxSteps": 4000}
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    command[:] = [word.replace("--epochs=40", "--epochs=4000") for word in command]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    pods = _two_started(cluster, options.limit)
    cluster.kubectl("scale", "deployment/podium-operator", "-n", "podium-system", "--replicas=0")
    cluster.kubectl(
        "wait", "--for=delete", "pod", "-n", "podium-system", "-l", "app.kubernetes.io/component=operator", timeout=70
    )
    times = []
    try:
        async with connect(ClusterSettings(kubeconfig=cluster.kubeconfig)) as api:
            for turn in range(options.switches):
                first, second = pods if turn % 2 == 0 else pods[::-1]
                times.append(await _switch(api, first, second))
                await asyncio.sleep(0.3)  # let the agent's report go out: a burst of orders is not what is measured
    finally:
        cluster.kubectl("scale", "deployment/podium-operator", "-n", "podium-system", "--replicas=1")
        cluster.kubectl("delete", "hyperparamjob", "switching", "--timeout=90s", timeout=100)
    return times[1:]  # the first order may find the first trial in place already


@dataclass(frozen=True, slots=True)
class Started:
    """A trial whose main container exists: what an order names it by, and its freezer."""

    node: str
    gpu: str
    namespace: str
    trial: str
    uid: str
    freezer: Path

    def frozen(self) -> bool:
        return is_frozen(self.freezer)


def _two_started(cluster: Cluster, seconds: float) -> tuple[Started, Started]:
    """Two trials on one GPU that have both been on it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for node in json.loads(cluster.kubectl("get", "gpunodes", "-o", "json"))["items"]:
            for gpu in node.get("status", {}).get("gpus", []):
                there = [t for t in gpu.get("trials", []) if t["state"] in ("Running", "Suspended")]
                if len(there) >= 2:
                    name = node["metadata"]["name"]
                    return _started(cluster, name, gpu["uuid"], there[0]), _started(
                        cluster, name, gpu["uuid"], there[1]
                    )
        time.sleep(0.5)
    raise RuntimeError(f"no two trials started on one GPU within {seconds:g} s")


def _started(cluster: Cluster, node: str, gpu: str, there: dict[str, Any]) -> Started:
    pod = json.loads(cluster.kubectl("get", "pod", there["pod"], "-n", there["namespace"], "-o", "json"))
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    freezer = freezer_of(cluster, container)
    return Started(node, gpu, there["namespace"], there["trial"], there["uid"], freezer)


def freezer_of(cluster: Cluster, container: str) -> Path:
    """The file of a container's cgroup that says whether it is frozen (v1, v2). `bench_agent` looks here too."""
    for base, name in ((Path("/sys/fs/cgroup/freezer"), "freezer.state"), (Path("/sys/fs/cgroup"), "cgroup.freeze")):
        for folder in base.glob(f"devcluster-{cluster.name}/**/*{container}*"):
            if (folder / name).exists():
                return folder / name
    raise RuntimeError(f"no freezer of container {container}")


def is_frozen(freezer: Path) -> bool:
    return freezer.read_text().strip() == ("FROZEN" if freezer.name == "freezer.state" else "1")


async def _switch(api: Api, first: Started, second: Started) -> float:
    node = await api.get(GPUNODES, first.node)
    places = [
        {"namespace": t.namespace, "trial": t.trial, "uid": t.uid, "reason": "Benchmark", "message": "bench-demo"}
        for t in (first, second)
    ]
    spec = {"epoch": node["spec"]["epoch"] + 1, "gpus": [{"uuid": first.gpu, "runQueue": places}]}
    await api.apply(GPUNODES, {"metadata": {"name": first.node}, "spec": spec}, manager="podium-operator")
    begun = time.perf_counter()
    while not (second.frozen() and not first.frozen()):
        if time.perf_counter() - begun > 30:
            raise RuntimeError("an order was not carried out within 30 s")
        await asyncio.sleep(FREEZER_POLL)
    return (time.perf_counter() - begun) * 1000


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="bench", help="name of the cluster (default: bench)")
    parser.add_argument("--seeds", type=int, default=5, help="searches per policy (default: 5)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a trial on one core (default: 30)")
    parser.add_argument("--switches", type=int, default=100, help="orders to time (default: 100)")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds that one search may take")
    options = parser.parse_args()
    options.work = calibrated(options.seconds)
    print(f"trials of about {options.seconds:g} s: --work={options.work}", flush=True)
    demo = demo_module()
    cluster = Cluster(options.name)
    try:
        demo.install(demo.Installation(cluster.cache.root, options.name))
        times = asyncio.run(switch_times(cluster, options))
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"order to effect: p50 {p50:.1f} ms, p99 {p99:.1f} ms, n={len(times)}", flush=True)
        rows, means, suspensions = compare(cluster, options) if options.seeds else ([], {}, 0)
    finally:
        cluster.down()
    result = {
        "time_to_best": {f"hermes_over_{rival}": round(mean, 2) for rival, mean in means.items()},
        "decision_to_effect_ms": {"p50": round(p50, 1), "p99": round(p99, 1)},
        "suspensions": suspensions,
    }
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
    table = "\n".join(
        [
            f"# bench-demo\n\n`python {' '.join(sys.argv)}` on {machine}; {options.seconds:g} s a trial.\n",
            "Seconds from the job's creation until the eventually best trial had finished:\n",
            "| seed | best trial (final value) | fifo | round_robin | hermes |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            (
                f"\nFrom an order on GPUNode to its effect in the cgroups ({len(times)} orders): "
                f"p50 {p50:.1f} ms, p99 {p99:.1f} ms."
            ),
            f"\n```\nRESULT {json.dumps(result)}\n```\n",
        ]
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(table)
    print(table)
    print(f"RESULT {json.dumps(result)}")


if __name__ == "__main__":
    main()
