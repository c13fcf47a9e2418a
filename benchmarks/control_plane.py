"""A control plane without nodes, and an ExtenderSetup on it, for benchmarks with the real kube-scheduler (root)."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration"))
from extender_setup import ROOT, TRIAL_LABEL, ExtenderSetup, free_port, gpu, now, scheduler_version

from podium_devcluster.artifacts import binaries
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

# benchmarks import what they need of extender_setup from here, because this module puts it on the path
__all__ = ["TRIAL_LABEL", "ExtenderSetup", "free_port", "gpu", "now", "open_setup"]


@contextlib.contextmanager
def open_setup(scheduler_name: str | None = None) -> Iterator[ExtenderSetup]:
    """Start etcd, API server and Podium's CRDs, and remove everything after the block.

    `scheduler_name`: None for a unique one.
    """
    cache = Cache.default()
    scheduler = binaries.scheduler(scheduler_version())
    binaries.ensure(cache, (*binaries.needed(0), scheduler, binaries.HELM, binaries.KUBECTL), Progress())

    def find(name: str) -> Path:
        return scheduler.path(cache) if name == scheduler.name else cache.bin / name

    cluster = Cluster(f"bench-{os.getpid()}", nodes=0)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        for name in ("hyperparamjobs", "hyperparamtrials", "gpunodes"):
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}.podium.dev", "--timeout=60s")
        with tempfile.TemporaryDirectory() as folder:
            setup = ExtenderSetup(cluster.kubeconfig, Path(folder), find)
            setup.scheduler = scheduler_name or setup.scheduler
            with setup.open():
                yield setup
    finally:
        cluster.down(purge=True)
