"""Runs the digits search on the real two-node cluster, and saves what objects and logs say. Used by bench_reality."""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench_demo import demo_module
from reality_compare import AGENTS, APPLIED, GATES

from podium_core.policies.registry import create
from podium_core.schema.manifests import read_manifests
from podium_core.schema.template import GATE_CONTAINER
from podium_devcluster.cluster import Cluster
from podium_devcluster.shell import CommandError

ROOT = Path(__file__).resolve().parents[1]
KINDS = "hyperparamjobs,hyperparamtrials,gpunodes,pods"
LOOK = 3.0  # seconds between two looks at the gates' logs, where pods go before the search ends


def example() -> dict[str, Any]:
    """The job of the example."""
    found: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    return found


def job_of(seed: int, policy: str | None, work: int) -> dict[str, Any]:
    """The job that is applied. `policy`: another one than the example's comes without settings; 0 `work`: as it is."""
    job = example()
    job["metadata"]["name"] = f"digits-{seed}"
    job["spec"]["search"]["seed"] = seed
    if policy is not None and policy != job["spec"]["policy"]["name"]:
        job["spec"]["policy"] = {"name": policy}
    if work:
        job["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, f"--work={work}")
    return job


def record(options: argparse.Namespace, folder: Path) -> None:
    """One cluster, one search after another on it; the objects of each go into a file."""
    demo, cluster = demo_module(), Cluster(options.name)
    try:
        demo.install(demo.Installation(cluster.cache.root, options.name))
        for seed in range(options.seeds):
            job = job_of(seed, options.policy, options.work)
            name, policy = job["metadata"]["name"], job["spec"]["policy"]
            job["metadata"]["annotations"] = {APPLIED: repr(time.time())}  # the API server keeps whole seconds
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
            look = LOOK if create(policy["name"], policy.get("settings", {})).cuts else options.limit + 10
            asked = _ended(cluster, name, options.limit, look)
            text = cluster.kubectl("get", KINDS, "-A", "-o", "json")
            (folder / f"{name}.json").write_text(text)
            asked |= _gates(cluster, name)
            (folder / f"{name}{GATES}").write_text("\n".join(asked))
            agents = ("-n", "podium-system", "-l", "app.kubernetes.io/component=agent")
            begun = cluster.kubectl("logs", *agents, "--prefix", "--timestamps", "--tail=-1")
            mine = [line for line in begun.splitlines() if f"{name}-" in line]
            (folder / f"{name}{AGENTS}").write_text("\n".join(mine))
            cluster.kubectl("delete", "hyperparamjob", name, "--timeout=60s", timeout=70)
            print(f"seed {seed}: ended, objects saved", flush=True)
    finally:
        cluster.down()


def _ended(cluster: Cluster, name: str, limit: float, look: float) -> dict[str, None]:
    """Waits for the job's end, which the operator says itself, whatever the machine is busy with. The lines of its
    gates that were seen meanwhile: a look at them every so many seconds, as the pod of a trial that is stopped goes at
    once.
    """
    phase = ["--for=jsonpath={.status.phase}=Succeeded", f"--timeout={limit:g}s"]
    seen: dict[str, None] = {}
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(cluster.kubectl, "wait", "hyperparamjob", name, *phase, timeout=limit + 10)
        while not wait([end], timeout=look).done:
            with suppress(CommandError):  # the next look has the same lines
                seen |= _gates(cluster, name)
        end.result()
    return seen


def _gates(cluster: Cluster, name: str) -> dict[str, None]:
    """Each line once, in order. A gate that has not begun yet has no log, which is no error."""
    of_job = ("-l", f"podium.dev/job={name}", "-c", GATE_CONTAINER, "--ignore-errors")
    return dict.fromkeys(cluster.kubectl("logs", *of_job, "--prefix", "--timestamps", "--tail=-1").splitlines())
