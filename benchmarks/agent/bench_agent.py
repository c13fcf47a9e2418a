"""What suspensions and requeues cost a real training on the real cluster, and proof that no bit changes.

    make bench-agent [OUT=FOLDER]           (root)
    python -m benchmarks.agent.bench_agent [--rounds 50]

One trial of the example runs three times: alone; suspended (frozen) 50 times; suspended and requeued 50 times each. For
a requeue its pod is deleted: the trial writes a checkpoint and ends, and a new pod continues from the checkpoint. The
three runs must print the same numbers and end with the same weights to the last bit. Costs are read from outside:
containerd's time stamps of the printed lines, the states of the cgroup, and the checkpoint folder.

- Cost of a suspension: time of the suspended run beyond the run alone, less the time in which it was frozen.
- Cost of a requeue: from the last line of one pod to the first line of the next, less one epoch.

Writes bench-agent.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.digits_cluster import (
    EXAMPLE_EPOCHS,
    FINAL,
    ROOT,
    calibrated,
    freezer_of,
    install,
    is_frozen,
    percentile,
)
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_cluster.client import Api, connect
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_cluster.settings import ClusterSettings
from podium_core.schema.manifests import read_manifests
from podium_devcluster.cluster import Cluster

POLL = 0.001
BETWEEN_REQUEUES = 10 * 60.0  # seconds of training, for the share of the time that a user would lose
TIME_SLICE = 30.0  # seconds between two suspensions, for the same

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
    """A line that the script printed, and when containerd read it (seconds since the epoch)."""

    attempt: int
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the trial that has ended; all times in seconds.

    `frozen`: of each suspension; `suspend`, `resume`: from the API server's answer to a request until the cgroup shows
    it. `lost`: steps of lost work.
    """

    lines: tuple[Line, ...]
    weights: str
    lost: int
    frozen: tuple[float, ...] = ()
    suspend: tuple[float, ...] = ()
    resume: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        return self.lines[-1].at - self.lines[0].at

    @property
    def epoch(self) -> float:
        """Seconds of an undisturbed epoch: the median time between two lines of one pod."""
        pairs = zip(self.lines, self.lines[1:], strict=False)
        return statistics.median(b.at - a.at for a, b in pairs if a.attempt == b.attempt)

    def requeues(self) -> list[float]:
        """Return the seconds that each requeue cost the training."""
        pairs = zip(self.lines, self.lines[1:], strict=False)
        return [b.at - a.at - self.epoch for a, b in pairs if a.attempt != b.attempt]


def manifest(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the job: the example with one trial that writes checkpoints."""
    job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    job["metadata"]["name"] = name
    job["spec"] |= {
        "trials": {"max": 1, "parallel": 1, "maxSteps": options.epochs},
        "suspension": {"methods": ["freeze", "app-checkpoint"], "gracePeriodSeconds": 20},
        "checkpoint": {"path": "/ckpt", "retain": True, "volume": {"claimName": "bench-agent"}},
    }
    arguments = job["spec"]["template"]["spec"]["containers"][0]["command"]
    arguments[2] = f"--epochs={options.epochs}"
    arguments.insert(2, f"--work={options.work}")
    return job


async def until(what: str, condition: Callable[[], Any], seconds: float = 60.0, poll: float = 0.02) -> Any:
    """Return the first true answer of a condition, which may be a coroutine function."""
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
    """The only trial of a job, observed from outside."""

    def __init__(self, cluster: Cluster, api: Api, job: str) -> None:
        self.cluster, self.api, self.job, self.name = cluster, api, job, f"{job}-0"
        self.files: dict[int, Path] = {}
        self.kept: dict[int, str] = {}  # the kubelet removes the log of a deleted pod

    def lines(self) -> list[Line]:
        """Return the lines of all its pods so far."""
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
        """Return the file that shows whether the container of the present pod is frozen."""
        (pod,) = [
            pod
            for pod in (await self.api.list(PODS, "default", labels=f"podium.dev/trial={self.name}"))["items"]
            if "deletionTimestamp" not in pod["metadata"]
        ]
        container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return freezer_of(self.cluster, container)

    async def request(self, suspended: bool, freezer: Path) -> tuple[float, float]:
        """Set `spec.suspend`; return the seconds until the cgroup shows it, and the time then."""
        await self.api.patch(TRIALS, self.name, "default", {"spec": {"suspend": suspended}}, manager="bench-agent")
        start = time.monotonic()
        await until(
            f"suspended: {suspended}",
            lambda: is_frozen(freezer) is suspended,
            poll=POLL,
        )
        now = time.monotonic()
        return now - start, now

    async def wait_for_pod(self, attempt: int) -> None:
        """Wait until that pod has printed a line: it runs, and is in the middle of the next epoch."""
        await until(
            f"{self.name}: pod {attempt} has printed a line",
            lambda: any(line.attempt == attempt for line in self.lines()),
            120,
        )

    async def progress(self, steps: int) -> None:
        """Wait for more steps."""
        before = len(self.lines())
        await until(f"{self.job}: {steps} more steps", lambda: len(self.lines()) >= before + steps)

    async def phase(self) -> str:
        """Return the phase of its job."""
        return str((await self.api.get(JOBS, self.job, "default")).get("status", {}).get("phase", ""))


async def run_job(cluster: Cluster, api: Api, name: str, options: argparse.Namespace, disturb: str = "") -> Run:
    """Run the trial to its end. `disturb`: `suspend`, or `suspend and requeue`; empty: run it alone."""
    freeze, requeue = "suspend" in disturb, "requeue" in disturb
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest(name, options)))
    trial = Trial(cluster, api, name)
    frozen, suspend, resume = [], [], []
    for number in range(options.rounds if freeze or requeue else 0):
        await trial.wait_for_pod(number if requeue else 0)
        if freeze:
            freezer = await trial.freezer()
            took, suspended = await trial.request(True, freezer)
            suspend.append(took)
            took, resumed = await trial.request(False, freezer)
            resume.append(took)
            frozen.append(resumed - suspended)
        await trial.progress(1)
        if requeue:
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
    run = Run(
        lines,
        weights(next(cluster.paths.shared.glob(f"*{name}-{uid[:8]}*/{trial.name}-*")), options.epochs),
        status.get("lostWork", {}).get("steps", 0),
        tuple(frozen),
        tuple(suspend),
        tuple(resume),
    )
    cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
    return run


def weights(folder: Path, epoch: int) -> str:
    """Return the digest of all arrays of the last checkpoint: parameters and momenta."""
    digest = hashlib.sha256()
    with np.load(folder / f"epoch-{epoch}.npz") as saved:
        for key in sorted(saved.files):
            digest.update(key.encode())
            digest.update(saved[key].tobytes())
    return digest.hexdigest()


async def measure(cluster: Cluster, options: argparse.Namespace) -> tuple[Run, Run, Run]:
    """Run the trial alone, suspended, and suspended and requeued."""
    async with connect(ClusterSettings(kubeconfig=cluster.kubeconfig)) as api:
        return (
            await run_job(cluster, api, "alone", options),
            await run_job(cluster, api, "suspended", options, "suspend"),
            await run_job(cluster, api, "requeued", options, "suspend and requeue"),
        )


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--name", default="bench", help="name of the cluster (default: bench)")
    parser.add_argument("--rounds", type=positive, default=50, help="suspensions and requeues (default: 50)")
    parser.add_argument("--epoch-seconds", type=float, default=0.25, help="length of an epoch (default: 0.25)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the end of a run may take")
    add_out(parser)
    options = parser.parse_args()
    options.epochs = 14 * options.rounds  # a deleted pod continues for two seconds, until SIGTERM comes
    options.work = calibrated(options.epoch_seconds * EXAMPLE_EPOCHS)
    cluster = Cluster(options.name)
    try:
        install(cluster)
        cluster.paths.shared.chmod(0o777)
        cluster.kubectl("apply", "-f", "-", stdin=VOLUME)
        alone, suspended, requeued = asyncio.run(measure(cluster, options))
    finally:
        cluster.down()
    report(alone, suspended, requeued, options)


def report(alone: Run, suspended: Run, requeued: Run, options: argparse.Namespace) -> None:
    """Write the page; end with an error where a bit changed or a step was lost."""
    texts = [[line.text for line in run.lines] for run in (alone, suspended, requeued)]
    same = texts[0] == texts[1] == texts[2] and alone.weights == suspended.weights == requeued.weights
    each = (suspended.seconds - alone.seconds - sum(suspended.frozen)) / len(suspended.frozen)
    requeues = requeued.requeues()
    requeue = statistics.median(requeues)
    suspend, resume = (
        {name: round(percentile(times, share) * 1000) for name, share in (("p50", 0.5), ("p99", 0.99))}
        for times in ([*suspended.suspend, *requeued.suspend], [*suspended.resume, *requeued.resume])
    )
    result = {
        "rounds": options.rounds,
        "same_bits": same,
        "steps_lost": requeued.lost,
        "suspension": {
            "ms": round(each * 1000, 1),
            "of_30_s": round(each / TIME_SLICE, 5),
            "suspend_ms": suspend,
            "resume_ms": resume,
        },
        "requeue": {
            "s": {"p50": round(requeue, 2), "max": round(max(requeues), 2)},
            "of_10_min": round(requeue / BETWEEN_REQUEUES, 4),
        },
    }
    runs = {"alone": alone, f"suspended {len(suspended.frozen)} times": suspended}
    runs[f"suspended {len(requeued.frozen)} times and requeued {len(requeues)} times"] = requeued
    text = f"""# bench-agent

`{command()}` on {machine()}; the example,
{options.epochs} epochs of {alone.epoch:.2f} s.

| run | seconds from first to last line | of them frozen | weights (SHA-256) |
| --- | --- | --- | --- |
{"".join(f"| {t} | {r.seconds:.1f} | {sum(r.frozen):.1f} | `{r.weights[:16]}` |{chr(10)}" for t, r in runs.items())}
All printed lines and the last weights are the same to the bit: **{"yes" if same else "NO"}**.
Steps lost: {requeued.lost}.

A suspension costs the training {each * 1000:.1f} ms beyond the time in which it is frozen: {each / TIME_SLICE:.3%}
of the time with one every {TIME_SLICE:g} s. From the request (`spec.suspend` of the trial, through the operator) until
the cgroup shows it: suspend p50 {suspend["p50"]}, p99 {suspend["p99"]} ms;
resume p50 {resume["p50"]}, p99 {resume["p99"]} ms.

A requeue (checkpoint, end, new pod, start, load) costs {requeue:.2f} s (p50), {max(requeues):.2f} s at most:
{requeue / BETWEEN_REQUEUES:.2%} of the time with one every 10 minutes.

```
{result_line(result)}
```
"""
    write_page(options.out / "bench-agent.md", text)
    print(text)
    print(result_line(result))
    if not same or requeued.lost:
        sys.exit("bits changed or steps were lost")


if __name__ == "__main__":
    main()
