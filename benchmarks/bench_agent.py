"""`make bench-agent`: what suspending and requeuing cost a real training on the real cluster, and that no bit changes.

One trial of the example runs three times: alone; suspended (frozen) 50 times; suspended and requeued (its pod deleted:
it saves, ends, and a new pod goes on from the save) 50 times each. The three must print the same numbers and end with
the same weights to the last bit. Costs are read from outside: containerd's time stamps of the lines that the script
prints, the states of its cgroup, the folder of its saves.

- a suspension's cost: time of the suspended run beyond that of the run alone, less the time in which it was frozen;
- a requeue's cost: from the last line of one pod to the first of the next, less an epoch.

Prints a table and `RESULT {json}`; both go to benchmarks/results/bench-agent.md with the command and the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from bench_demo import FINAL, ROOT, calibrated, demo_module, freezer_of, is_frozen, percentile

from podium_cluster.client import Api, connect
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_cluster.settings import ClusterSettings
from podium_core.schema.manifests import read_manifests
from podium_devcluster.cluster import Cluster

RESULTS = ROOT / "benchmarks" / "results" / "bench-agent.md"
EXAMPLE_EPOCHS = 40
POLL = 0.001
BETWEEN = 10 * 60.0  # seconds of training between two accidents, for the fraction that a user would feel
QUANTUM = 30.0  # likewise between two suspensions

VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: bench-agent}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: shared
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /shared}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bench-agent, namespace: default}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: shared
  volumeName: bench-agent
  resources: {requests: {storage: 1Gi}}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """What the script printed, and when containerd read it (seconds)."""

    attempt: int
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the trial that ended. `frozen`: seconds of each suspension; `out`, `back`: from the API server's
    answer to a wish until the cgroup shows it, in seconds."""

    lines: tuple[Line, ...]
    weights: str
    lost: int
    frozen: tuple[float, ...] = ()
    out: tuple[float, ...] = ()
    back: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        return self.lines[-1].at - self.lines[0].at

    @property
    def epoch(self) -> float:
        """Of one epoch that nothing disturbed: the median time between two lines of one pod."""
        pairs = zip(self.lines, self.lines[1:], strict=False)
        return statistics.median(b.at - a.at for a, b in pairs if a.attempt == b.attempt)

    def moves(self) -> list[float]:
        """Seconds that each requeue took from the training."""
        pairs = zip(self.lines, self.lines[1:], strict=False)
        return [b.at - a.at - self.epoch for a, b in pairs if a.attempt != b.attempt]


def manifest(name: str, options: argparse.Namespace) -> dict[str, Any]:
    job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    job["metadata"]["name"] = name
    job["spec"] |= {
        "trials": {"max": 1, "parallel": 1, "maxSteps": options.epochs},
        "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 20},
        "checkpoint": {"path": "/ckpt", "retain": True, "volume": {"claimName": "bench-agent"}},
    }
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    command[2] = f"--epochs={options.epochs}"
    command.insert(2, f"--work={options.work}")
    return job


async def until(what: str, condition: Callable[[], Any], seconds: float = 60.0, poll: float = 0.02) -> Any:
    """The first true answer of a condition, which may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        await asyncio.sleep(poll)
    raise RuntimeError(f"{what}: not within {seconds:g} s")


class Trial:
    """The one trial of a job, seen from outside."""

    def __init__(self, cluster: Cluster, api: Api, job: str) -> None:
        self.cluster, self.api, self.job, self.name = cluster, api, job, f"{job}-0"
        self.files: dict[int, Path] = {}
        self.kept: dict[int, str] = {}  # the kubelet removes the log of a pod that is gone

    def lines(self) -> list[Line]:
        for path in self.cluster.logs.glob(f"node-*/pods/default_{self.name}-*/train/0.log"):
            self.files.setdefault(int(path.parts[-3].split("_")[1].rpartition("-")[2]), path)
        for attempt, path in self.files.items():
            if path.exists():
                self.kept[attempt] = path.read_text(encoding="utf-8")
        return [
            Line(attempt, datetime.fromisoformat(row.split(" ", 1)[0]).timestamp(), row.split(" ", 3)[3])
            for attempt, text in sorted(self.kept.items())
            for row in text.splitlines()
            if row.count(" ") >= 3 and "{" in row
        ]

    async def freezer(self) -> Path:
        """The file that says whether the container of the present pod is frozen."""
        (pod,) = [
            pod
            for pod in (await self.api.list(PODS, "default", labels=f"podium.dev/trial={self.name}"))["items"]
            if "deletionTimestamp" not in pod["metadata"]
        ]
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return freezer_of(self.cluster, container)

    async def wish(self, suspended: bool, freezer: Path) -> tuple[float, float]:
        """(seconds until the cgroup shows it, when that was)."""
        await self.api.patch(TRIALS, self.name, "default", {"spec": {"suspend": suspended}}, manager="bench-agent")
        begun = time.monotonic()
        await until(
            f"suspended: {suspended}",
            lambda: is_frozen(freezer) is suspended,
            poll=POLL,
        )
        now = time.monotonic()
        return now - begun, now

    async def begins(self, attempt: int) -> None:
        """Waits until that pod has printed: it works, and is in the midst of the next epoch."""
        await until(
            f"{self.name}: its pod {attempt} works",
            lambda: any(line.attempt == attempt for line in self.lines()),
            120,
        )

    async def progress(self, steps: int) -> None:
        before = len(self.lines())
        await until(f"{self.job}: {steps} more steps", lambda: len(self.lines()) >= before + steps)

    async def phase(self) -> str:
        return str((await self.api.get(JOBS, self.job, "default")).get("status", {}).get("phase", ""))


async def play(cluster: Cluster, api: Api, name: str, options: argparse.Namespace, freeze: bool, move: bool) -> Run:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest(name, options)))
    trial = Trial(cluster, api, name)
    frozen, out, back = [], [], []
    for number in range(options.rounds if freeze or move else 0):
        await trial.begins(number if move else 0)
        if freeze:
            freezer = await trial.freezer()
            took, begun = await trial.wish(True, freezer)
            out.append(took)
            took, ended = await trial.wish(False, freezer)
            back.append(took)
            frozen.append(ended - begun)
        await trial.progress(1)
        if move:
            await api.delete(PODS, f"{trial.name}-{number}", "default")
        print(f"\r{name}: {number + 1} of {options.rounds}, epoch {len(trial.lines())} of {options.epochs}", end="")
        sys.stdout.flush()

    async def over() -> bool:
        trial.lines()
        return await trial.phase() in FINAL

    await until(f"{name}: its end", over, options.limit, poll=0.25)
    status = (await api.get(TRIALS, trial.name, "default"))["status"]
    if status["phase"] != "Succeeded":
        raise RuntimeError(f"{name} ended as {status['phase']}: {status.get('message')}")
    lines = tuple(trial.lines())
    print(f"\r{name}: {lines[-1].at - lines[0].at:.1f} s, {status['attempt']} requeues, {len(frozen)} suspensions")
    uid = (await api.get(JOBS, name, "default"))["metadata"]["uid"]
    found = Run(
        lines,
        weights(next(cluster.paths.shared.glob(f"*{name}-{uid[:8]}*/{trial.name}-*")), options.epochs),
        status.get("lostWork", {}).get("steps", 0),
        tuple(frozen),
        tuple(out),
        tuple(back),
    )
    cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
    return found


def weights(folder: Path, epoch: int) -> str:
    """Digest of all arrays of the last save: parameters and momenta."""
    digest = hashlib.sha256()
    with np.load(folder / f"epoch-{epoch}.npz") as saved:
        for key in sorted(saved.files):
            digest.update(key.encode())
            digest.update(saved[key].tobytes())
    return digest.hexdigest()


async def measure(cluster: Cluster, options: argparse.Namespace) -> tuple[Run, Run, Run]:
    async with connect(ClusterSettings(kubeconfig=cluster.kubeconfig)) as api:
        return (
            await play(cluster, api, "alone", options, freeze=False, move=False),
            await play(cluster, api, "frozen", options, freeze=True, move=False),
            await play(cluster, api, "moved", options, freeze=True, move=True),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="bench", help="name of the cluster (default: bench)")
    parser.add_argument("--rounds", type=int, default=50, help="suspensions and requeues (default: 50)")
    parser.add_argument("--epoch-seconds", type=float, default=0.25, help="length of an epoch (default: 0.25)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the end of a run may take")
    options = parser.parse_args()
    options.epochs = 14 * options.rounds  # a pod that is deleted works on for two seconds, until SIGTERM comes
    options.work = calibrated(options.epoch_seconds * EXAMPLE_EPOCHS)
    demo = demo_module()
    cluster = Cluster(options.name)
    try:
        demo.install(demo.Installation(cluster.cache.root, options.name))
        cluster.paths.shared.chmod(0o777)
        cluster.kubectl("apply", "-f", "-", stdin=VOLUME)
        alone, frozen, moved = asyncio.run(measure(cluster, options))
    finally:
        cluster.down()
    report(alone, frozen, moved, options)


def report(alone: Run, frozen: Run, moved: Run, options: argparse.Namespace) -> None:
    texts = [[line.text for line in run.lines] for run in (alone, frozen, moved)]
    same = texts[0] == texts[1] == texts[2] and alone.weights == frozen.weights == moved.weights
    each = (frozen.seconds - alone.seconds - sum(frozen.frozen)) / len(frozen.frozen)
    moves = moved.moves()
    move = statistics.median(moves)
    out, back = (
        {name: round(percentile(times, share) * 1000) for name, share in (("p50", 0.5), ("p99", 0.99))}
        for times in ([*frozen.out, *moved.out], [*frozen.back, *moved.back])
    )
    result = {
        "rounds": options.rounds,
        "same_bits": same,
        "steps_lost": moved.lost,
        "suspension": {
            "ms": round(each * 1000, 1),
            "of_30_s": round(each / QUANTUM, 5),
            "out_ms": out,
            "back_ms": back,
        },
        "requeue": {"s": {"p50": round(move, 2), "max": round(max(moves), 2)}, "of_10_min": round(move / BETWEEN, 4)},
    }
    runs = {"alone": alone, f"suspended {len(frozen.frozen)} times": frozen}
    runs[f"suspended {len(moved.frozen)} times and requeued {len(moves)} times"] = moved
    text = f"""# bench-agent

`python {" ".join(sys.argv)}` on {os.cpu_count()} cores, {platform.system()} {platform.release()}; the example,
{options.epochs} epochs of {alone.epoch:.2f} s.

| run | seconds from first to last line | of them frozen | weights (SHA-256) |
| --- | --- | --- | --- |
{"".join(f"| {t} | {r.seconds:.1f} | {sum(r.frozen):.1f} | `{r.weights[:16]}` |{chr(10)}" for t, r in runs.items())}
All printed lines and the last weights are the same to the bit: **{"yes" if same else "NO"}**. Steps lost: {moved.lost}.

A suspension costs the training {each * 1000:.1f} ms beyond the time in which it is frozen: {each / QUANTUM:.3%}
of the time with one each {QUANTUM:g} s. From the wish (`spec.suspend` of the trial, through the operator) until the
cgroup shows it: out p50 {out["p50"]}, p99 {out["p99"]} ms; back p50 {back["p50"]}, p99 {back["p99"]} ms.

A requeue (save, end, new pod, start, load) costs {move:.2f} s (p50), {max(moves):.2f} s at most:
{move / BETWEEN:.2%} of the time with one each 10 minutes.

```
RESULT {json.dumps(result)}
```
"""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text)
    print(text)
    print(f"RESULT {json.dumps(result)}")
    if not same or moved.lost:
        sys.exit("bits changed or steps were lost")


if __name__ == "__main__":
    main()
