"""Run the digits search on the real two-node cluster, and save the objects and logs of each search."""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.digits_cluster import ROOT, install
from benchmarks.simulator.comparison import AGENTS, APPLIED, GATES
from podium_core.policies.registry import create
from podium_core.schema.manifests import read_manifests
from podium_core.schema.template.pod_template import GATE_CONTAINER
from podium_devcluster.cluster import Cluster
from podium_devcluster.shell import CommandError

KINDS = "hyperparamjobs,hyperparamtrials,gpunodes,pods"
LOG_PERIOD = 3.0  # seconds between two reads of the gates' logs, where pods are deleted before the search ends


def example() -> dict[str, Any]:
    """Return the job of the example."""
    job: dict[str, Any] = read_manifests([ROOT / "examples/digits/job.yaml"])[0]
    return job


def job_of(seed: int, policy: str | None, work: int, workers: int = 1) -> dict[str, Any]:
    """Return the job to create.

    `policy`: None for the example's with its settings; another policy has no settings. `work`: 0 keeps the example's.
    `workers`: pods of a trial, each with a GPU; all do the same work, and the first one's values count.
    """
    job = example()
    job["metadata"]["name"] = f"digits-{seed}"
    job["spec"]["search"]["seed"] = seed
    if policy is not None and policy != job["spec"]["policy"]["name"]:
        job["spec"]["policy"] = {"name": policy}
    if workers > 1:
        trials = job["spec"]["trials"]
        trials["workers"] = workers
        if isinstance(trials.get("parallel"), int):  # a trial that waits for slots would seem to start slowly
            trials["parallel"] = max(1, trials["parallel"] // workers)
        job["spec"]["gpus"] = {**job["spec"].get("gpus", {}), "perTrial": workers}
    if work:
        job["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, f"--work={work}")
    return job


def record(options: argparse.Namespace, folder: Path) -> None:
    """Run the searches one after another on one cluster; save the objects of each in a file."""
    cluster = Cluster(options.name)
    try:
        install(cluster)
        for seed in range(options.seeds):
            job = job_of(seed, options.policy, options.work, options.workers)
            name, policy = job["metadata"]["name"], job["spec"]["policy"]
            job["metadata"]["annotations"] = {APPLIED: repr(time.time())}  # the API server keeps whole seconds
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
            stops_trials = create(policy["name"], policy.get("settings", {})).cuts
            period = LOG_PERIOD if stops_trials else options.limit + 10
            asked = _ended(cluster, name, options.limit, period)
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


def _ended(cluster: Cluster, name: str, limit: float, period: float) -> dict[str, None]:
    """Wait for the job's end, which the operator records; return the log lines of its gates until then.

    The logs are read once in each period: the pod of a trial that is stopped is deleted at once, with its log.
    """
    phase = ["--for=jsonpath={.status.phase}=Succeeded", f"--timeout={limit:g}s"]
    seen: dict[str, None] = {}
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(cluster.kubectl, "wait", "hyperparamjob", name, *phase, timeout=limit + 10)
        while not wait([end], timeout=period).done:
            with suppress(CommandError):  # the next read has the same lines
                seen |= _gates(cluster, name)
        end.result()
    return seen


def _gates(cluster: Cluster, name: str) -> dict[str, None]:
    """Return each line once, in order. A gate that has not started has no log, which is not an error."""
    of_job = ("-l", f"podium.dev/job={name}", "-c", GATE_CONTAINER, "--ignore-errors")
    return dict.fromkeys(cluster.kubectl("logs", *of_job, "--prefix", "--timestamps", "--tail=-1").splitlines())
