"""Three queues with weights 1:2:3 on the real two-node cluster, and the same in the simulated system.

    make bench-queues [OUT=FOLDER]                                   (root; 20 minutes)
    python -m benchmarks.queues.bench_queues [--seconds 900] [--return-after 120]

1. Three searches that never end, one for each queue, with two trials each. The GPU-seconds of each queue are measured
   for `--seconds` from their creation: in the record of the driver, not in Podium's status.
2. The search of queue `three` is deleted. The others share its part for `--return-after` seconds. Then it is created
   again. Measured: the time from its first trial at its gate to its first work on a GPU.
3. The first part is simulated, with the same queues, searches and seconds.

Bars: each queue's part is within 5 % of its weight's on the cluster, and within 10 % of the simulated one; all GPUs
together work for at least 90 % of the time from the first work on; `three` works again within a time slice of 30 s.

Writes bench-queues.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.digits_cluster import install
from benchmarks.output import add_out, command, machine, result_line, write_page
from benchmarks.queues.gpu_time import Work, first_work, gpu_seconds, shares, work_of
from benchmarks.queues.simulated import simulated_shares
from benchmarks.simulator.record import example
from podium_core.planning.queues.fair_shares import HORIZON
from podium_devcluster.cluster import Cluster

WEIGHTS = {"one": 1.0, "two": 2.0, "three": 3.0}
LENT = "three"  # the queue that falls idle
TRIALS, GPUS, STARTS = 2, 2, 300.0  # trials of a search; GPUs of the cluster; seconds in which a trial must start
RECORD = "var/lib/podium-fake-driver"  # folder of the driver's record in a node
TO_WEIGHT, TO_SIMULATION, BUSY = 0.05, 0.10, 0.90


def queue(name: str) -> dict[str, Any]:
    """Return a GPUQueue for every namespace."""
    spec = {"weight": WEIGHTS[name]}
    return {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUQueue", "metadata": {"name": name}, "spec": spec}


def search(name: str) -> dict[str, Any]:
    """Return the search of a queue; it has the queue's name, and its trials never end."""
    job = example()
    job["metadata"]["name"] = name
    job["spec"]["trials"] = {"max": TRIALS, "parallel": TRIALS, "maxSteps": 1_000_000}
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "/app/train.py", "--epochs=1000000", "--work=20", "$(podium.args)"]
    container["resources"]["requests"] = {"cpu": "50m", "memory": "256Mi"}
    job["spec"]["queue"] = name
    return job


@dataclass(frozen=True, slots=True)
class Measured:
    """GPU-seconds of each queue, the busy part of the GPUs' time, and the seconds until a part was back."""

    used: Mapping[str, float]
    busy: float
    back: float


@dataclass
class Stage:
    """The cluster. `owners`: the search of each container that was seen."""

    cluster: Cluster
    owners: dict[str, str]

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        for manifest in manifests:
            self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def pods(self, job: str) -> list[dict[str, Any]]:
        found = self.cluster.kubectl("get", "pods", "-l", f"podium.dev/job={job}", "-o", "json")
        pods: list[dict[str, Any]] = json.loads(found)["items"]
        return pods

    def see(self, job: str) -> None:
        """Note the containers of the job's trials."""
        for pod in self.pods(job):
            states = pod["status"].get("containerStatuses", [])
            ids = [one["containerID"].rpartition("/")[2] for one in states if one.get("containerID")]
            self.owners.update(dict.fromkeys(ids, job))

    def watch(self, what: str, end: float) -> None:
        """Note all containers until a time of the monotonic clock, and say every minute how long that is."""
        said = float("inf")
        while (left := end - time.monotonic()) > 0:
            if said - left >= 60.0:
                said = left
                print(f"{what}: {left:.0f} s left", flush=True)
            for job in WEIGHTS:
                self.see(job)
            time.sleep(min(5.0, left))

    def work(self) -> list[Work]:
        """Return the driver's record of all nodes."""
        found: list[Work] = []
        for node in self.cluster.nodes:
            folder = node.root() / RECORD
            for name in ("work.log.1", "work.log"):
                if (folder / name).exists():
                    found += work_of((folder / name).read_text())
        return found

    def at_gate(self, job: str) -> bool:
        """Return whether a trial of the job waits at its gate, or has passed it."""
        states = [pod["status"].get("initContainerStatuses", []) for pod in self.pods(job)]
        return any("running" in one["state"] or "terminated" in one["state"] for many in states for one in many)


def until(what: str, condition: Callable[[], object], seconds: float) -> None:
    """Wait for a condition; raise TimeoutError after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.5)


def measure(stage: Stage, seconds: float, return_after: float) -> Measured:
    """Let the queues share the GPUs, take one away, and bring it back."""
    stage.apply(*map(queue, WEIGHTS))
    start = time.monotonic()
    stage.apply(*map(search, WEIGHTS))
    end = start + seconds
    stage.watch("three queues share the GPUs", end)
    stage.cluster.kubectl("delete", "hyperparamjob", LENT, "--timeout=60s", timeout=70)
    stage.watch(f"without queue {LENT}", time.monotonic() + return_after)
    work = stage.work()
    used = gpu_seconds(work, stage.owners, start, end)
    first = min(one.start for one in work if one.container in stage.owners)
    before = time.monotonic()
    stage.apply(search(LENT))
    until("a new trial is at its gate", lambda: stage.at_gate(LENT), STARTS)
    gate = time.monotonic()

    def back() -> float | None:
        stage.see(LENT)
        return first_work(stage.work(), stage.owners, LENT, before)

    until("it works", lambda: back() is not None, STARTS)
    busy = sum(used.values()) / (GPUS * (end - first))
    return Measured(used, busy, max(0.0, (back() or gate) - gate))


def page(measured: Measured, simulated: Mapping[str, float], seconds: float) -> str:
    """Return the page with the result line."""
    used, busy, back = measured.used, measured.busy, measured.back
    real = shares(used)
    rows, worst_weight, worst_simulation = [], 0.0, 0.0
    for name, weight in WEIGHTS.items():
        fair = weight / sum(WEIGHTS.values())
        off, apart = real[name] / fair - 1.0, real[name] / simulated[name] - 1.0
        worst_weight, worst_simulation = max(worst_weight, abs(off)), max(worst_simulation, abs(apart))
        cells = (name, f"{weight:g}", f"{used[name]:.0f}", f"{fair:.1%}", f"{real[name]:.1%}", f"{off:+.1%}")
        rows.append(f"| {' | '.join(cells)} | {simulated[name]:.1%} |")
    held = [worst_weight <= TO_WEIGHT, worst_simulation <= TO_SIMULATION, busy >= BUSY, back <= HORIZON]
    result = {
        "bench": "queues",
        "seconds": seconds,
        "gpu_seconds": {name: round(one, 1) for name, one in used.items()},
        "worst_from_weight": round(worst_weight, 4),
        "worst_from_simulation": round(worst_simulation, 4),
        "busy": round(busy, 3),
        "seconds_until_back": round(back, 1),
        "held": held,
    }
    lines: Iterable[str] = [
        "# Queues on the real cluster\n",
        f"`{command()}` on {machine()}: three queues, a search of two trials in each, two GPUs, {seconds:g} s",
        "([method](../../docs/benchmarks/cluster.md#queues)).\n",
        "| Queue | Weight | GPU-seconds | Part by weight | Part on the cluster | Off | Part in the simulation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        f"\nTrials worked on the GPUs for {busy:.1%} of the time. Queue {LENT} fell idle and came back: its first",
        f"trial worked on a GPU {back:.1f} s after it had reached its gate.",
        f"\nAll bars hold: {'yes' if all(held) else 'no'}.",
        f"\n{result_line(result)}\n",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--name", default="queues", help="name of the cluster (default: queues)")
    parser.add_argument("--seconds", type=float, default=900.0, help="of the first part (default: 900)")
    parser.add_argument("--return-after", type=float, default=120.0, help="seconds without one queue (default: 120)")
    add_out(parser)
    options = parser.parse_args()
    simulated = simulated_shares(WEIGHTS, search, GPUS, options.seconds)
    cluster = Cluster(options.name)
    try:
        install(cluster)
        measured = measure(Stage(cluster, {}), options.seconds, options.return_after)
    finally:
        cluster.down()
    text = page(measured, simulated, options.seconds)
    write_page(options.out / "bench-queues.md", text)
    print(text, end="")


if __name__ == "__main__":
    main()
