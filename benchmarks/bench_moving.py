"""`python benchmarks/bench_moving.py`: a live container goes on on another node, seconds by phase, on the real cluster.

A container on node-1 counts (`moving_work.py`). `python -m podium_agent.migration` runs in node-1's network with an
account that may do what the agent's may: the kubelet checkpoints the container, the image goes into a registry, and a
pod that names it is made on node-2. What the container printed before and after is compared step by step.

Then what must not work: an open TCP connection, a file on the volume held open, no registry, and a new pod without the
volume, in which CRIU brings nothing back. The container must work on; in the last case when it is told to (`--undo`).

And one that keeps its values on a GPU (the fake driver's, `moving_gpu.py`): refused at work, carried when suspended by
`cuda-checkpoint`, brought back onto the GPU of node-2 once that has room.

Prints a table and `RESULT {json}`; both go to benchmarks/results/bench-moving.md with the command and the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from moving_gpu import DRIVER, GPU_MEMORY, NODES, Gpus

from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import registry
from podium_devcluster.runtime.network import netns_path
from podium_devcluster.runtime.node_config import API_SERVER
from podium_devcluster.runtime.pki import kubeconfig
from podium_devcluster.shell import CommandError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "bench-moving.md"
WORK = ROOT / "benchmarks" / "moving_work.py"
CLUSTER = "moving"
ARCHIVES = "var/lib/kubelet/checkpoints"
IMAGE = "localhost/podium-digits:dev"
SETUP = (ROOT / "benchmarks" / "moving_setup.yaml").read_text()


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    step: int
    said: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Move:
    """Seconds by phase; `gap`: from the last line that counts on the old node to the first on the new one. `memory`:
    where the megabytes lay, on the host or a GPU."""

    memory: str
    megabytes: int
    archive: int
    checkpoint: float
    stop: float
    push: float
    pull: float
    start: float
    gap: float
    repeated: int
    exact: bool


class Bench:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gpus = Gpus(cluster)
        self.image = ""

    def set_up(self) -> None:
        self.cluster.up()
        registry.start(self.cluster)
        images.build_and_load(self.cluster, ["podium-digits"])
        self.image = registry.push(self.cluster, "node-1", IMAGE)
        until("the default account", lambda: self.cluster.kubectl("get", "serviceaccounts", "-o", "name"))
        self.cluster.kubectl("apply", "-f", "-", stdin=SETUP)
        self.gpus.set_up()
        token = self.cluster.kubectl("create", "token", "mover").strip()
        (self.cluster.paths.run / "mover.token").write_text(token)
        # so that node-2 holds the trial's own image, as it does where trials of one job run everywhere
        self.pod("warm", "node-2", self.image, 0)
        until("node-2 has the image", lambda: self.lines("warm"), 180)
        self.cluster.kubectl("delete", "pod", "warm", "--wait", "--timeout=60s", timeout=90)
        # as node-1 sees it; the certificate is not needed beside a token
        text = kubeconfig(API_SERVER, (self.cluster.paths.pki / "ca.crt").read_bytes(), b"", b"", "mover")
        text = re.sub(r"    client-certificate-data:.*\n    client-key-data:.*\n", f"    token: {token}\n", text)
        (self.cluster.paths.run / "mover.kubeconfig").write_text(text)

    def pod(self, name: str, node: str, image: str, megabytes: int, habit: str = "", volume: bool = True) -> None:
        command = ["python3", "-c", WORK.read_text(), str(megabytes), habit]
        mounts = [{"name": "saves", "mountPath": "/ckpt"}] if volume else []
        volumes = [{"name": "saves", "persistentVolumeClaim": {"claimName": "moving"}}]
        environment = []
        if habit == "gpu":
            mounts.append({"name": "driver", "mountPath": "/" + DRIVER})
            volumes.append({"name": "driver", "persistentVolumeClaim": {"claimName": "driver"}})
            environment.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": self.gpus.uuid(node)})
        main = {"name": "train", "image": image, "command": command, "volumeMounts": mounts, "env": environment}
        spec = {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "volumes": volumes,
            "initContainers": [{"name": "gate", "image": self.image, "command": ["true"], "volumeMounts": mounts}],
            "containers": [main],
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def lines(self, pod: str) -> list[Line]:
        found = []
        for file in self.cluster.logs.glob(f"node-*/pods/default_{pod}_*/train/0.log"):
            for row in file.read_text().splitlines():
                at, _, _, text = row.split(" ", 3)
                if text.startswith("{"):
                    said = json.loads(text)
                    found.append(Line(datetime.fromisoformat(at).timestamp(), said["step"], said))
        return found

    def mover(self, pod: str, target: str, *more: str, node: str = "node-1") -> dict[str, Any]:
        """What `python -m podium_agent.migration` said on a node."""
        run = self.cluster.paths.run
        environment = {
            **os.environ,
            **self.gpus.environment(node),
            "PODIUM_REGISTRY": registry.ADDRESS,
            "PODIUM_KUBECONFIG": str(run / "mover.kubeconfig"),
            "PODIUM_KUBELET_AUTHORITY": str(self.cluster.paths.pki / "ca.crt"),
            "PODIUM_KUBELET_TOKEN": str(run / "mover.token"),
            "PODIUM_CHECKPOINTS_DIR": str(self.cluster.node_root(node) / ARCHIVES),
        }
        enter = ["nsenter", f"--net={netns_path(self.cluster.name, node)}", "--"]
        argv = [*enter, sys.executable, "-m", "podium_agent.migration", "default", pod, "train", target, *more]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600)
        if not done.stdout.strip():
            raise RuntimeError(f"the mover said nothing: {done.stderr[-2000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def archives(self) -> list[str]:
        return [file.name for file in (self.cluster.node_root("node-1") / ARCHIVES).glob("*.tar")]

    def move(self, megabytes: int, habit: str = "") -> Move:
        kind = habit or "work"
        old, new = f"{kind}-{megabytes}-0", f"{kind}-{megabytes}-1"
        self.pod(old, "node-1", self.image, megabytes, habit)
        until("it works", lambda: len(self.lines(old)) >= 30, 180)
        if habit == "gpu":
            self.expect(self.mover(old, "node-2"), "GPUAttached")
            self.gpus.suspend(old)
        left = self.mover(old, "node-2")
        if "image" not in left:
            raise RuntimeError(f"not moved: {left}")
        if self.archives():
            raise RuntimeError(f"archives are left: {self.archives()}")
        before = self.lines(old)
        begun = time.time()
        self.pod(new, "node-2", left["image"], megabytes, habit)
        if habit == "gpu":
            self.land(new, left["arrives"])
        until("it goes on", lambda: len(self.lines(new)) >= 30, 300)
        after = self.lines(new)
        if len(self.lines(old)) != len(before):
            raise RuntimeError("the container that was left behind worked on")
        first = after[0]
        kept = [line for line in before if line.step < first.step]
        pulled = self.cluster.kubectl(
            "get", "events", "--field-selector", f"involvedObject.name={new},reason=Pulled", "-o", "json"
        )
        pull = sum(
            seconds(item["message"]) for item in json.loads(pulled)["items"] if "podium-checkpoints" in item["message"]
        )
        result = Move(
            habit or "host", megabytes, left["bytes"], left["checkpoint"], left["stop"], left["push"], pull,
            first.at - begun - pull, first.at - kept[-1].at, len(before) - len(kept), self.exact(new, kept, after),
        )  # fmt: skip
        self.cluster.kubectl("delete", "pod", old, new, "--wait", "--timeout=60s", timeout=90)
        return result

    def land(self, pod: str, arrives: dict[str, Any]) -> None:
        """Back onto the GPU of node-2, which has no room at first."""
        asked = [pod, "node-2", "--arrives", json.dumps(arrives), "--onto", self.gpus.uuid("node-2")]
        (count,) = arrives["gpus"].values()
        self.gpus.stranger("node-2", GPU_MEMORY - count + 1)
        until("it runs", lambda: self.cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}") == "Running")
        self.expect(self.mover(*asked, node="node-2"), "InsufficientGPUMemory")
        self.gpus.stranger("node-2", 0)
        answer = self.mover(*asked, node="node-2")
        used = [self.gpus.used(node) for node in NODES]
        if "back" not in answer or used != [0, count]:
            raise RuntimeError(f"not brought back: {answer}; in use on the nodes' GPUs: {used}")

    def expect(self, answer: dict[str, Any], code: str) -> None:
        if answer.get("refused") != code:
            raise RuntimeError(f"wanted {code}, and the mover said {answer}")

    def exact(self, new: str, kept: list[Line], after: list[Line]) -> bool:
        """No step is missing or there twice, each value follows from all before, the memory is the same, and the file
        in the container holds each step once."""
        value, values = b"begin".ljust(32), {}
        whole = [*kept, *after]
        for step in range(1, len(whole) + 1):
            value = hashlib.sha256(value).digest()
            values[step] = value.hex()[:16]
        steps = [line.step for line in whole] == list(range(1, len(whole) + 1))
        chain = all(line.said["value"] == values[line.step] for line in whole) if steps else False
        memory = {line.said["ballast"] for line in whole if "ballast" in line.said}
        text = self.cluster.kubectl("exec", new, "-c", "train", "--", "cat", "/tmp/steps", timeout=60)
        written = [int(row) for row in text.split()]
        return steps and chain and len(memory) == 1 and written == list(range(1, len(written) + 1))

    def refused(self, name: str, habit: str, without_registry: bool = False) -> tuple[str, bool]:
        """(the code, whether the container worked on)."""
        self.pod(name, "node-1", self.image, 1, habit)
        until("it works", lambda: len(self.lines(name)) >= 10, 120)
        if without_registry:
            self.cluster.kill("registry", "node-1")
        answer = self.mover(name, "node-2")
        if without_registry:
            self.cluster.start("registry", "node-1")
        return str(answer.get("refused", "moved")), self.goes_on(name)

    def not_brought_back(self, name: str) -> tuple[str, bool]:
        """(how the new container ended, whether the old one went on when it was told to)."""
        self.pod(name, "node-1", self.image, 1)
        until("it works", lambda: len(self.lines(name)) >= 10, 120)
        left, new = self.mover(name, "node-2"), f"{name}-1"
        self.pod(new, "node-2", left["image"], 1, volume=False)
        until("the new one has failed or works", lambda: self.fate(new) or self.lines(new), 180)
        fate = "moved" if self.lines(new) else self.fate(new)
        self.cluster.kubectl("delete", "pod", new, "--wait", "--timeout=60s", timeout=90)
        self.mover(name, "node-2", "--undo")
        return fate, self.goes_on(name)

    def fate(self, pod: str) -> str:
        """Why its container does not start; empty while that is not known."""
        found = json.loads(self.cluster.kubectl("get", "pod", pod, "-o", "json"))["status"]
        for status in found.get("containerStatuses", []):
            for state in status["state"].values():
                if "Error" in state.get("reason", ""):
                    return str(state["reason"])
        return ""

    def goes_on(self, name: str) -> bool:
        """Whether it works again, no step is missing or there twice, and no archive is left."""
        have = len(self.lines(name))
        until("it works on", lambda: len(self.lines(name)) >= have + 10, 60)
        lines = self.lines(name)
        whole = [line.step for line in lines] == list(range(1, len(lines) + 1)) and not self.archives()
        self.cluster.kubectl("delete", "pod", name, "--wait", "--timeout=60s", timeout=90)
        return whole


def seconds(message: str) -> float:
    """Of the kubelet's "Successfully pulled image ... in 4.9s (...)"; 0 for one that was there."""
    found = re.search(r" in (?:(\d+)m)?([\d.]+)(ms|s) ", message)
    if found is None:
        return 0.0
    return float(found[1] or 0) * 60 + float(found[2]) / (1000 if found[3] == "ms" else 1)


def until(what: str, condition: Callable[[], Any], limit: float = 60.0) -> None:
    deadline = time.monotonic() + limit
    while True:
        try:
            if condition():
                return
        except CommandError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {limit:g} s")
        time.sleep(0.1)


def report(moves: list[Move], faults: dict[str, tuple[str, bool]], sizes: str, gpu_sizes: str) -> bool:
    good = all(move.exact for move in moves) and all(whole and code != "moved" for code, whole in faults.values())
    rows = "".join(
        f"| {m.memory} | {m.megabytes} | {m.archive / 1e6:.1f} | {m.checkpoint:.2f} | {m.stop:.3f} | {m.push:.2f} "
        f"| {m.pull:.2f} | {m.start:.2f} | {m.gap:.2f} | {m.repeated} | {'yes' if m.exact else 'NO'} |\n"
        for m in moves
    )
    accidents = "".join(f"| {name} | `{code}` | {'yes' if on else 'NO'} |\n" for name, (code, on) in faults.items())
    result = {
        "moves": [{field: getattr(m, field) for field in Move.__slots__} for m in moves],
        "faults": {name: {"code": code, "worked_on": on} for name, (code, on) in faults.items()},
        "good": good,
    }
    text = f"""# bench-moving

`python benchmarks/bench_moving.py --megabytes {sizes} --gpu-megabytes {gpu_sizes}` on {os.cpu_count()} cores, Linux
{platform.release()}, load average {os.getloadavg()[0]:.1f}; containerd, runc and CRIU of Debian forky, both nodes on
this machine.

A container that holds so many MB of memory goes from node-1 to node-2. Seconds of: the kubelet's checkpoint (the
container is paused for the dump, and works while the archive is written), stopping it, pushing the image, pulling it,
and the rest until the first new line (pod, sandbox, init container, restore). `gap`: without a line that counts.
`again`: steps that were done twice. `exact`: no step missing, every value follows from all before it, memory and open
file as they were. `gpu`: the bytes lie on the fake driver's GPU of node-1; suspended by `cuda-checkpoint` first, and
brought back onto the GPU of node-2, where the driver lists just as many bytes then. `gap` also holds the starts of the
command, which is asked in vain twice: at work it is refused (`GPUAttached`), and so before node-2's GPU has room
(`InsufficientGPUMemory`).

| memory | MB | archive MB | checkpoint | stop | push | pull | start | gap | again | exact |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
| accident | ended with | worked on, no step lost, no archive left |
| --- | --- | --- |
{accidents}
```
RESULT {json.dumps(result)}
```
"""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text)
    print(text)
    print(f"RESULT {json.dumps(result)}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description="Move a live container between two nodes of a cluster of its own.")
    parser.add_argument("--megabytes", default="0,64,512,2048", help="sizes to move, with commas between")
    parser.add_argument("--gpu-megabytes", default="8,256", help="sizes to move from GPU to GPU")
    options = parser.parse_args()
    cluster = Cluster(CLUSTER, nodes=2)
    bench = Bench(cluster)
    try:
        bench.set_up()
        moves = [bench.move(int(size)) for size in options.megabytes.split(",")]
        moves += [bench.move(int(size), "gpu") for size in options.gpu_megabytes.split(",")]
        faults = {
            "an open TCP connection": bench.refused("connected", "connect"),
            "a file held open on the volume": bench.refused("writing", "hold"),
            "no registry": bench.refused("alone", "", without_registry=True),
            "a new pod without the volume": bench.not_brought_back("torn"),
        }
    finally:
        cluster.down(purge=True)
    if not report(moves, faults, options.megabytes, options.gpu_megabytes):
        sys.exit("something was lost, or moved that could not be")


if __name__ == "__main__":
    main()
