"""Live migration of a container between two real nodes: seconds by phase, and that nothing is lost.

    make bench-migration [OUT=FOLDER]           (root)
    python -m benchmarks.agent.bench_migration [--megabytes 0,64,512,2048] [--gpu-megabytes 8,256]

A container on node-1 counts (`migration_work`). The agent's migration command runs in node-1's network with the agent's
permissions: the kubelet checkpoints the container, the image is pushed to a registry, and a pod with that image is
created on node-2. The output before and after is compared step by step.

These cases must fail: an open TCP connection, an open file on the volume, a missing registry, and a new pod without the
volume, in which CRIU cannot restore. The container must continue; in the last case after `--undo`.

A further container keeps its values on a GPU of the fake driver (`migration_gpu`). Its migration is refused while it
runs, and accepted once it is suspended by `cuda-checkpoint`. It is restored onto the GPU of node-2 once that GPU has
enough free memory.

Writes bench-migration.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

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

from benchmarks.agent.migration_gpu import DRIVER, GPU_MEMORY, NODES, Gpus
from benchmarks.command_line import Parser
from benchmarks.output import add_out, command, result_line, write_page
from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import registry
from podium_devcluster.runtime.network import netns_path
from podium_devcluster.runtime.node_config import API_SERVER
from podium_devcluster.runtime.pki import kubeconfig
from podium_devcluster.shell import CommandError

WORK = Path(__file__).with_name("migration_work.py")
SETUP = Path(__file__).with_name("migration_setup.yaml")
CLUSTER = "migration"
ARCHIVES = "var/lib/kubelet/checkpoints"
IMAGE = "localhost/podium-digits:dev"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that the container printed, and when containerd read it (seconds since the epoch)."""

    at: float
    step: int
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Migration:
    """Seconds by phase of one migration.

    `memory`: where the megabytes are, on the host or a GPU; `archive`: bytes of the checkpoint. `gap`: from the last
    line that counts on the old node to the first line on the new one; `repeated`: steps that were done twice.
    """

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
    """The cluster under test."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gpus = Gpus(cluster)
        self.image = ""

    def set_up(self) -> None:
        """Start the cluster with a registry, the image on both nodes and an account for the command."""
        self.cluster.up()
        registry.start(self.cluster)
        images.build_and_load(self.cluster, ["podium-digits"])
        self.image = registry.push(self.cluster, "node-1", IMAGE)
        until("the default account", lambda: self.cluster.kubectl("get", "serviceaccounts", "-o", "name"))
        self.cluster.kubectl("apply", "-f", "-", stdin=SETUP.read_text())
        self.gpus.set_up()
        token = self.cluster.kubectl("create", "token", "migration").strip()
        (self.cluster.paths.run / "migration.token").write_text(token)
        # node-2 then has the trial's own image, as it has where the trials of one job run on all nodes
        self.pod("warm", "node-2", self.image, 0)
        until("node-2 has the image", lambda: self.lines("warm"), 180)
        self.cluster.kubectl("delete", "pod", "warm", "--wait", "--timeout=60s", timeout=90)
        # the address is node-1's; a token needs no client certificate
        text = kubeconfig(API_SERVER, (self.cluster.paths.pki / "ca.crt").read_bytes(), b"", b"", "migration")
        text = re.sub(r"    client-certificate-data:.*\n    client-key-data:.*\n", f"    token: {token}\n", text)
        (self.cluster.paths.run / "migration.kubeconfig").write_text(text)

    def pod(self, name: str, node: str, image: str, megabytes: int, mode: str = "", volume: bool = True) -> None:
        """Create a pod that runs `migration_work` in this mode."""
        arguments = ["python3", "-c", WORK.read_text(), str(megabytes), mode]
        mounts = [{"name": "saves", "mountPath": "/ckpt"}] if volume else []
        volumes = [{"name": "saves", "persistentVolumeClaim": {"claimName": "migration"}}]
        environment = []
        if mode == "gpu":
            mounts.append({"name": "driver", "mountPath": "/" + DRIVER})
            volumes.append({"name": "driver", "persistentVolumeClaim": {"claimName": "driver"}})
            environment.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": self.gpus.uuid(node)})
        main = {"name": "train", "image": image, "command": arguments, "volumeMounts": mounts, "env": environment}
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
        """Return the lines that the pod has printed."""
        lines = []
        for file in self.cluster.logs.glob(f"node-*/pods/default_{pod}_*/train/0.log"):
            for row in file.read_text().splitlines():
                at, _, _, text = row.split(" ", 3)
                if text.startswith("{"):
                    content = json.loads(text)
                    lines.append(Line(datetime.fromisoformat(at).timestamp(), content["step"], content))
        return lines

    def migrate(self, pod: str, target: str, *more: str, node: str = "node-1") -> dict[str, Any]:
        """Run the agent's migration command on a node; return its answer."""
        run = self.cluster.paths.run
        environment = {
            **os.environ,
            **self.gpus.environment(node),
            "PODIUM_REGISTRY": registry.ADDRESS,
            "PODIUM_KUBECONFIG": str(run / "migration.kubeconfig"),
            "PODIUM_KUBELET_AUTHORITY": str(self.cluster.paths.pki / "ca.crt"),
            "PODIUM_KUBELET_TOKEN": str(run / "migration.token"),
            "PODIUM_CHECKPOINTS_DIR": str(self.cluster.node_root(node) / ARCHIVES),
        }
        enter = ["nsenter", f"--net={netns_path(self.cluster.name, node)}", "--"]
        argv = [*enter, sys.executable, "-m", "podium_agent.migration", "default", pod, "train", target, *more]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600)
        if not done.stdout.strip():
            raise RuntimeError(f"the migration command printed nothing: {done.stderr[-2000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def archives(self) -> list[str]:
        """Return the names of the checkpoint archives on node-1."""
        return [file.name for file in (self.cluster.node_root("node-1") / ARCHIVES).glob("*.tar")]

    def measure(self, megabytes: int, mode: str = "") -> Migration:
        """Migrate a container with so much memory, and check that it continues exactly."""
        kind = mode or "work"
        old, new = f"{kind}-{megabytes}-0", f"{kind}-{megabytes}-1"
        self.pod(old, "node-1", self.image, megabytes, mode)
        until("the container counts", lambda: len(self.lines(old)) >= 30, 180)
        if mode == "gpu":
            self.expect(self.migrate(old, "node-2"), "GPUAttached")
            self.gpus.suspend(old)
        answer = self.migrate(old, "node-2")
        if "image" not in answer:
            raise RuntimeError(f"not migrated: {answer}")
        if self.archives():
            raise RuntimeError(f"archives remain: {self.archives()}")
        before = self.lines(old)
        start = time.time()
        self.pod(new, "node-2", answer["image"], megabytes, mode)
        if mode == "gpu":
            self.restore_gpu(new, answer["gpuState"])
        until("the container counts on node-2", lambda: len(self.lines(new)) >= 30, 300)
        after = self.lines(new)
        if len(self.lines(old)) != len(before):
            raise RuntimeError("the old container continued after its migration")
        first = after[0]
        kept = [line for line in before if line.step < first.step]
        pulled = self.cluster.kubectl(
            "get", "events", "--field-selector", f"involvedObject.name={new},reason=Pulled", "-o", "json"
        )
        pull = sum(
            seconds(item["message"]) for item in json.loads(pulled)["items"] if "podium-checkpoints" in item["message"]
        )
        result = Migration(
            mode or "host", megabytes, answer["bytes"], answer["checkpoint"], answer["stop"], answer["push"], pull,
            first.at - start - pull, first.at - kept[-1].at, len(before) - len(kept), self.exact(new, kept, after),
        )  # fmt: skip
        self.cluster.kubectl("delete", "pod", old, new, "--wait", "--timeout=60s", timeout=90)
        return result

    def restore_gpu(self, pod: str, gpu_state: dict[str, Any]) -> None:
        """Restore the pod onto the GPU of node-2, which has too little free memory at first."""
        arguments = [pod, "node-2", "--gpu-state", json.dumps(gpu_state), "--onto", self.gpus.uuid("node-2")]
        (count,) = gpu_state["gpus"].values()
        self.gpus.occupy("node-2", GPU_MEMORY - count + 1)
        until("it runs", lambda: self.cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}") == "Running")
        self.expect(self.migrate(*arguments, node="node-2"), "InsufficientGPUMemory")
        self.gpus.occupy("node-2", 0)
        answer = self.migrate(*arguments, node="node-2")
        used = [self.gpus.used(node) for node in NODES]
        if "back" not in answer or used != [0, count]:
            raise RuntimeError(f"not restored: {answer}; in use on the nodes' GPUs: {used}")

    def expect(self, answer: dict[str, Any], code: str) -> None:
        """Raise RuntimeError unless the command refused with this code."""
        if answer.get("refused") != code:
            raise RuntimeError(f"expected {code}, and the migration command answered {answer}")

    def exact(self, new: str, kept: list[Line], after: list[Line]) -> bool:
        """Return whether nothing was lost.

        No step is missing or repeated, each value follows from all previous ones, the memory is the same, and the file
        in the container has each step once.
        """
        value, values = b"begin".ljust(32), {}
        whole = [*kept, *after]
        for step in range(1, len(whole) + 1):
            value = hashlib.sha256(value).digest()
            values[step] = value.hex()[:16]
        steps = [line.step for line in whole] == list(range(1, len(whole) + 1))
        chain = all(line.content["value"] == values[line.step] for line in whole) if steps else False
        memory = {line.content["ballast"] for line in whole if "ballast" in line.content}
        text = self.cluster.kubectl("exec", new, "-c", "train", "--", "cat", "/tmp/steps", timeout=60)
        written = [int(row) for row in text.split()]
        return steps and chain and len(memory) == 1 and written == list(range(1, len(written) + 1))

    def refused(self, name: str, mode: str, without_registry: bool = False) -> tuple[str, bool]:
        """Try a migration that must be refused; return the code, and whether the container continued."""
        self.pod(name, "node-1", self.image, 1, mode)
        until("the container counts", lambda: len(self.lines(name)) >= 10, 120)
        if without_registry:
            self.cluster.kill("registry", "node-1")
        answer = self.migrate(name, "node-2")
        if without_registry:
            self.cluster.start("registry", "node-1")
        return str(answer.get("refused", "migrated")), self.continues(name)

    def not_restored(self, name: str) -> tuple[str, bool]:
        """Try a restore that must fail; return how the new container ended, and whether the old one continued."""
        self.pod(name, "node-1", self.image, 1)
        until("the container counts", lambda: len(self.lines(name)) >= 10, 120)
        answer, new = self.migrate(name, "node-2"), f"{name}-1"
        self.pod(new, "node-2", answer["image"], 1, volume=False)
        until("the new container has failed or counts", lambda: self.start_error(new) or self.lines(new), 180)
        code = "migrated" if self.lines(new) else self.start_error(new)
        self.cluster.kubectl("delete", "pod", new, "--wait", "--timeout=60s", timeout=90)
        self.migrate(name, "node-2", "--undo")
        return code, self.continues(name)

    def start_error(self, pod: str) -> str:
        """Return why the pod's container does not start; empty while that is not known."""
        pod_status = json.loads(self.cluster.kubectl("get", "pod", pod, "-o", "json"))["status"]
        for status in pod_status.get("containerStatuses", []):
            for state in status["state"].values():
                if "Error" in state.get("reason", ""):
                    return str(state["reason"])
        return ""

    def continues(self, name: str) -> bool:
        """Wait for more lines; return whether no step is missing or repeated and no archive remains."""
        have = len(self.lines(name))
        until("the container continues", lambda: len(self.lines(name)) >= have + 10, 60)
        lines = self.lines(name)
        whole = [line.step for line in lines] == list(range(1, len(lines) + 1)) and not self.archives()
        self.cluster.kubectl("delete", "pod", name, "--wait", "--timeout=60s", timeout=90)
        return whole


def seconds(message: str) -> float:
    """Return the seconds of a pull by the kubelet's message.

    The message is "Successfully pulled image ... in 4.9s (...)". The result is 0 for an image on the node.
    """
    match = re.search(r" in (?:(\d+)m)?([\d.]+)(ms|s) ", message)
    if match is None:
        return 0.0
    return float(match[1] or 0) * 60 + float(match[2]) / (1000 if match[3] == "ms" else 1)


def until(what: str, condition: Callable[[], Any], limit: float = 60.0) -> None:
    """Wait until the condition is true; a failed command counts as false."""
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


def report(migrations: list[Migration], faults: dict[str, tuple[str, bool]], out: Path) -> bool:
    """Write the page; return whether nothing was lost and every fault was detected."""
    failed_safely = all(whole and code != "migrated" for code, whole in faults.values())
    good = all(one.exact for one in migrations) and failed_safely
    rows = "".join(
        f"| {m.memory} | {m.megabytes} | {m.archive / 1e6:.1f} | {m.checkpoint:.2f} | {m.stop:.3f} | {m.push:.2f} "
        f"| {m.pull:.2f} | {m.start:.2f} | {m.gap:.2f} | {m.repeated} | {'yes' if m.exact else 'NO'} |\n"
        for m in migrations
    )
    fault_rows = "".join(f"| {name} | `{code}` | {'yes' if on else 'NO'} |\n" for name, (code, on) in faults.items())
    result = {
        "migrations": [{field: getattr(m, field) for field in Migration.__slots__} for m in migrations],
        "faults": {name: {"code": code, "continued": on} for name, (code, on) in faults.items()},
        "good": good,
    }
    text = f"""# bench-migration

`{command()}` on {os.cpu_count()} cores, Linux
{platform.release()}, load average {os.getloadavg()[0]:.1f}; containerd, runc and CRIU of Debian forky, both nodes on
this machine.

A container with the given MB of memory is migrated from node-1 to node-2. The columns are seconds:

- checkpoint: by the kubelet; the container is paused for the dump, and runs while the archive is written;
- stop, push, pull: stopping the container, pushing the image and pulling it;
- start: the rest until the first new line (pod, sandbox, init container, restore);
- gap: without a line that counts.

`repeated`: steps that were done twice. `exact`: no step is missing, every value follows from all previous ones, and
memory and open file are unchanged. `gpu`: the bytes are on the fake driver's GPU of node-1. The container is suspended
by `cuda-checkpoint` first and restored onto the GPU of node-2, where the driver then lists the same number of bytes.
There `gap` includes two calls that are refused: while the container runs (`GPUAttached`), and while node-2's GPU has
too little free memory (`InsufficientGPUMemory`).

| memory | MB | archive MB | checkpoint | stop | push | pull | start | gap | repeated | exact |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
| fault | ended with | continued, no step lost, no archive left |
| --- | --- | --- |
{fault_rows}
```
{result_line(result)}
```
"""
    write_page(out / "bench-migration.md", text)
    print(text)
    print(result_line(result))
    return good


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--megabytes", default="0,64,512,2048", help="sizes to migrate, with commas between")
    parser.add_argument("--gpu-megabytes", default="8,256", help="sizes to migrate from GPU to GPU")
    add_out(parser)
    options = parser.parse_args()
    cluster = Cluster(CLUSTER, nodes=2)
    bench = Bench(cluster)
    try:
        bench.set_up()
        migrations = [bench.measure(int(size)) for size in options.megabytes.split(",")]
        migrations += [bench.measure(int(size), "gpu") for size in options.gpu_megabytes.split(",")]
        faults = {
            "an open TCP connection": bench.refused("connected", "connect"),
            "an open file on the volume": bench.refused("writing", "hold"),
            "no registry": bench.refused("alone", "", without_registry=True),
            "a new pod without the volume": bench.not_restored("torn"),
        }
    finally:
        cluster.down(purge=True)
    if not report(migrations, faults, options.out):
        sys.exit("work was lost, or a migration that must fail did not fail")


if __name__ == "__main__":
    main()
