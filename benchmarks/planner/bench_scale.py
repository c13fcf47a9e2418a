"""Memory, etcd and time to the first plan against the number of trials, on a real API server (root).

    make bench-scale [OUT=FOLDER]
    python -m benchmarks.planner.bench_scale [--sizes 1000,3000,10000]

Objects alone, no nodes: 200 jobs and 25 GPUNodes with 8 GPUs. Each trial has a curve of 256 points, 32 suspensions and
16 GPU allocations. One job in ten is running and has a tenth of its trials to start; all other trials have ended.
Operator, extender and agent are processes of their own, each on one core. The agent serves 110 running pods, the
kubelet's limit, and reads their logs from the start. Memory is the peak of the resident set; the time to the first plan
begins with the process.

Limits: operator 600 MiB, extender 300 MiB, agent 200 MiB, etcd 500 MB, first plan within 60 s. Writes bench-scale.md
into `--out`; the last line is RESULT {json}. The status is 1 if a limit is exceeded.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.control_plane import free_port
from benchmarks.output import add_out, command, machine, result_line, write_page
from benchmarks.planner.scale_agent import PODS_A_NODE, add_node, add_pod, is_read, remove
from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import GPUNODES, JOBS, LEASES, NAMESPACES, TRIALS
from podium_cluster.settings import ClusterSettings
from podium_devcluster.cluster import Cluster
from podium_operator.act.pod_manifest import owner

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE, SYSTEM = "scale", "podium-system"
JOB_COUNT, NODES, GPUS = 200, 25, 8
POINTS, SUSPENSIONS, ALLOCATIONS = 256, 32, 16
PARALLEL = 16
LOGS_SECONDS = 600.0
SETTLED_SECONDS = 15.0  # in which a component works on, after its first plan
LIMITS = {"operator_mib": 600.0, "extender_mib": 300.0, "agent_mib": 200.0, "etcd_mb": 500.0, "first_plan_s": 60.0}
UNITS = ("MiB", "MiB", "MiB", "MB", "s")  # of LIMITS
START = "2026-01-01T00:00:00Z"
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one number of trials costs."""

    trials: int
    operator_mib: float
    extender_mib: float
    agent_mib: float
    etcd_mb: float
    first_plan_s: float
    plan_s: float  # CPU and waiting of one reconcile's plan, at the mean


def job(number: int) -> Manifest:
    container = {"name": "main", "image": "none", "command": ["train", "$(podium.args)"]}
    spec = {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.001, "max": 0.1, "scale": "log"}],
        "trials": {"max": 1000, "parallel": 4, "maxSteps": POINTS},
        "template": {"spec": {"containers": [container]}},
    }
    meta = {"name": f"job-{number}", "namespace": NAMESPACE}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": spec}


def is_running(number: int) -> bool:
    return number % 10 == 0


def job_status(made: Manifest) -> Manifest:
    running = is_running(int(made["metadata"]["name"].removeprefix("job-")))
    accepted = {"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": START}
    generation = made["metadata"]["generation"]
    status = {
        "phase": "Running" if running else "Succeeded",
        "observedGeneration": generation,
        "conditions": [accepted | {"observedGeneration": generation}],
    }
    return {"status": status if running else status | {"finishedAt": START}}


def trial(of: Manifest, number: int) -> Manifest:
    name, uid = of["metadata"]["name"], of["metadata"]["uid"]
    meta = {
        "name": f"{name}-{number}",
        "namespace": NAMESPACE,
        "labels": {"podium.dev/job": name, "podium.dev/job-uid": uid},
        "ownerReferences": [owner("HyperParamJob", name, uid)],
    }
    drawn = random.Random(f"{name}-{number}")
    spec = {"job": name, "number": number, "parameters": {"lr": 10 ** drawn.uniform(-3, -1)}}
    return {"apiVersion": TRIALS.api_version, "kind": TRIALS.kind, "metadata": meta, "spec": spec}


def trial_status(name: str, number: int, *, ended: bool) -> Manifest:
    drawn = random.Random(name)
    final, speed = drawn.uniform(0.6, 0.95), drawn.uniform(5.0, 60.0)
    points = [
        {"step": float(step), "value": final * (1 - 2.0 ** (-step / speed)), "time": 1.77e9 + step}
        for step in range(1, POINTS + 1)
    ]
    suspension = {"method": "freeze", "at": START, "suspendSeconds": 0.01, "resumeSeconds": 0.02, "bytes": 0}
    allocation = {"gpus": ["GPU-0-0"], "node": "scale-0", "start": START, "end": START}
    status: Manifest = {
        "phase": "Succeeded" if ended else "Pending",
        "reason": "Completed" if ended else "NoGPUAssigned",
        "attempt": 0,
        "curve": {"points": points},
        "lastStep": float(POINTS),
        "lastValue": points[-1]["value"],
        "gpuSeconds": 100.0 + number,
        "suspensions": {
            "count": SUSPENSIONS,
            "suspendSeconds": 0.32,
            "resumeSeconds": 0.64,
            "recent": [suspension] * SUSPENSIONS,
        },
        "allocations": [allocation] * ALLOCATIONS,
    }
    return {"status": status | {"finishedAt": START} if ended else {"phase": "Pending", "attempt": 0}}


async def together(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Await the calls, PARALLEL at a time."""
    slots = asyncio.Semaphore(PARALLEL)

    async def one(call: Awaitable[Any]) -> Any:
        async with slots:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))


async def add_trials(api: Api, jobs: list[Manifest], numbers: range) -> None:
    """Create the trials with these numbers in each job."""

    async def add(of: Manifest, number: int) -> None:
        manifest = trial(of, number)
        name = manifest["metadata"]["name"]
        try:
            await api.create(TRIALS, manifest, manager="bench")
        except ApiError as error:
            if not error.conflict:  # the operator of a smaller size may have created it
                raise
        ended = not (is_running(int(of["metadata"]["name"].removeprefix("job-"))) and number % 10 == 9)
        status = trial_status(name, number, ended=ended)
        await api.patch(TRIALS, name, NAMESPACE, status, manager="bench", subresource="status")

    await together(add(of, number) for of in jobs for number in numbers)


async def prepare(api: Api) -> list[Manifest]:
    """Create namespaces, GPUNodes and jobs; return the jobs."""
    for name in (NAMESPACE, SYSTEM):
        await api.create(NAMESPACES, {"metadata": {"name": name}}, manager="bench")
    for node in range(NODES):
        gpus = [
            {"uuid": f"GPU-{node}-{gpu}", "index": gpu, "product": "bench", "health": "Healthy", "slots": 4}
            for gpu in range(GPUS)
        ]
        await api.apply(GPUNODES, {"metadata": {"name": f"scale-{node}"}}, manager="bench")
        status = {"gpus": gpus, "methods": ["freeze"], "mode": "dedicated", "updatedAt": START}
        await api.apply_status(GPUNODES, {"metadata": {"name": f"scale-{node}"}, "status": status}, manager="bench")
    await add_node(api, f"scale-{NODES - 1}")
    jobs = await together(api.create(JOBS, job(number), manager="bench") for number in range(JOB_COUNT))
    patches = (
        api.patch(JOBS, made["metadata"]["name"], NAMESPACE, job_status(made), manager="bench", subresource="status")
        for made in jobs
    )
    await together(patches)
    return jobs


async def heartbeats(api: Api) -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    for node in range(NODES):
        meta = {"name": f"podium-agent-scale-{node}", "namespace": SYSTEM}
        spec = {"holderIdentity": f"scale-{node}", "leaseDurationSeconds": 20, "renewTime": now}
        await api.apply(LEASES, {"metadata": meta, "spec": spec}, manager="bench")


@contextmanager
def component(module: str, kubeconfig: Path, folder: Path, **environment: str) -> Iterator[tuple[int, int]]:
    """Run a component on one core; yield its pid and the port of its pages."""
    port = free_port()
    given = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PODIUM_KUBECONFIG": str(kubeconfig),
        "PODIUM_HTTP_HOST": "127.0.0.1",
        "PODIUM_HTTP_PORT": str(port),
        "PODIUM_LOG_FORMAT": "console",
        **environment,
    }
    with (folder / f"{module}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module], env=os.environ | given, stdout=log, stderr=log, cwd=folder
        )
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        try:
            yield process.pid, port
        finally:
            if process.poll() is not None:
                print((folder / f"{module}.log").read_text()[-3000:], file=sys.stderr)
            process.terminate()
            process.wait(30)


def page(port: int, path: str) -> str:
    """Return a page of the component; empty while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


async def until(what: str, done: Callable[[], bool], seconds: float = 600.0) -> float:
    """Wait until `done()` is true; return the seconds that it took."""
    begin = time.monotonic()
    while not await asyncio.to_thread(done):
        if time.monotonic() - begin > seconds:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - begin


def metric(text: str, name: str) -> float:
    """Return the value of a sample in a page of metrics; 0 without it."""
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(match.group(1)) if match else 0.0


def peak_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


async def measure(api: Api, cluster: Cluster, jobs: list[Manifest], trials: int, folder: Path) -> Figures:
    """Run operator and extender on the present objects."""
    await heartbeats(api)
    plans = 'podium_operator_reconcile_seconds_count{part="plan"}'
    with component("podium_operator.main", cluster.kubeconfig, folder) as (pid, port):
        first = await until("first plan", lambda: metric(page(port, "/metrics"), plans) >= 1)
        await asyncio.sleep(SETTLED_SECONDS)
        await until("metrics", lambda: metric(page(port, "/metrics"), plans) >= 1)
        text = page(port, "/metrics")
        seconds = metric(text, 'podium_operator_reconcile_seconds_sum{part="plan"}') / metric(text, plans)
        operator = peak_mib(pid)
    with component("podium_extender.main", cluster.kubeconfig, folder, PODIUM_EXTENDER_PORT="0") as (pid, port):
        await until("extender ready", lambda: page(port, "/readyz") == "ok\n")
        await asyncio.sleep(SETTLED_SECONDS)
        extender = peak_mib(pid)
    agent = await measure_agent(api, jobs[0], cluster.kubeconfig, folder)
    sizes = cluster.kubectl("get", "--raw", "/metrics")
    etcd = max(float(value) for value in re.findall(r"^apiserver_storage_size_bytes\{[^}]*\} (\S+)$", sizes, re.M))
    return Figures(trials, operator, extender, agent, etcd / 1e6, first, seconds)


async def measure_agent(api: Api, of: Manifest, kubeconfig: Path, folder: Path) -> float:
    """Run an agent until it has reported the logs of all pods of its node; return its peak in MiB.

    `of`: the job of the pods' trials.
    """
    node, own = f"scale-{NODES - 1}", folder / "agent"
    trials = [trial(of, 1_000_000 + number) for number in range(PODS_A_NODE)]
    await together(add_pod(api, node, one, own / "logs") for one in trials)
    settings = {
        "PODIUM_NODE_NAME": node,
        "PODIUM_PODS_DIR": str(own / "pods"),
        "PODIUM_POD_LOGS": str(own / "logs"),
        "PODIUM_TRIAL_DIR": str(own / "trial"),
        "PODIUM_PLUGIN_DIR": str(own / "plugins"),
        "PODIUM_POD_RESOURCES_SOCKET": str(own / "kubelet.sock"),
        "PODIUM_HELPER": sys.executable,  # any file: no pod starts here
    }
    with component("podium_agent.main", kubeconfig, folder, **settings) as (pid, _):
        end = time.monotonic() + LOGS_SECONDS
        while not all(await together(is_read(api, one) for one in trials)):
            if time.monotonic() > end:
                raise TimeoutError(f"the agent has not reported all logs within {LOGS_SECONDS:g} s")
            await asyncio.sleep(1)
        await asyncio.sleep(SETTLED_SECONDS)
        peak = peak_mib(pid)
    await together(remove(api, one) for one in trials)
    shutil.rmtree(own)
    return peak


async def run(cluster: Cluster, sizes: list[int]) -> list[Figures]:
    """Measure each size; the objects of a smaller one stay."""
    figures, there = [], 0
    with tempfile.TemporaryDirectory() as name:
        async with connect(ClusterSettings(kubeconfig=cluster.kubeconfig)) as api:
            jobs = await prepare(api)
            for size in sizes:
                begin = time.monotonic()
                await add_trials(api, jobs, range(there, size // JOB_COUNT))
                there = size // JOB_COUNT
                print(f"{size} trials created in {time.monotonic() - begin:.0f} s", flush=True)
                figures.append(await measure(api, cluster, jobs, size, Path(name)))
                print(figures[-1], flush=True)
    return figures


def report(figures: list[Figures], result: Mapping[str, Any]) -> str:
    rows = [
        f"| {one.trials:,} | {one.operator_mib:.0f} MiB | {one.extender_mib:.0f} MiB | {one.agent_mib:.0f} MiB "
        f"| {one.etcd_mb:.0f} MB "
        f"| {one.first_plan_s:.1f} s | {one.plan_s * 1e3:.0f} ms |"
        for one in figures
    ]
    slopes = [f"{result['slopes'][name]:.3g}" for name in LIMITS]
    about = (
        f"`{command()}` on {machine()}. {JOB_COUNT} jobs, {NODES * GPUS} GPUs; {POINTS} points, {SUSPENSIONS} "
        f"suspensions and {ALLOCATIONS} GPU allocations a trial; operator, extender and agent on one core each; "
        f"{PODS_A_NODE} pods on the agent's node.\n"
    )
    return "\n".join(
        [
            "# Memory and time against the number of trials\n",
            about,
            "| trials | operator | extender | agent | etcd | first plan | plan of a reconcile |",
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            f"| for 1,000 more | {' | '.join(' '.join(pair) for pair in zip(slopes, UNITS, strict=True))} | |",
            "| limit | 600 MiB | 300 MiB | 200 MiB | 500 MB | 60 s | |",
            f"\n{result_line(result)}\n",
        ]
    )


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--sizes", default="1000,3000,10000", help="numbers of trials (default: 1000,3000,10000)")
    add_out(parser)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.sizes.split(","))
    cluster = Cluster(f"scale-{os.getpid()}", nodes=0)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        for kind in (JOBS, TRIALS, GPUNODES):
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{kind.plural}.podium.dev", "--timeout=60s")
        figures = asyncio.run(run(cluster, sizes))
    finally:
        cluster.down(purge=True)
    largest = asdict(figures[-1])
    thousands = np.array([one.trials / 1000 for one in figures])
    slopes = {
        name: float(np.polyfit(thousands, [asdict(one)[name] for one in figures], 1)[0]) if len(figures) > 1 else 0.0
        for name in LIMITS
    }
    result = {
        "bench": "scale",
        "trials": largest["trials"],
        **{name: round(largest[name], 1) for name in LIMITS},
        **{f"{name}_of_limit": round(largest[name] / limit, 3) for name, limit in LIMITS.items()},
        "slopes": {name: round(slope, 4) for name, slope in slopes.items()},
    }
    text = report(figures, result)
    write_page(options.out / "bench-scale.md", text)
    print(text)
    return 0 if all(largest[name] <= limit for name, limit in LIMITS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
