"""A control plane without nodes and a World on it, for the benchmarks that ask the real kube-scheduler (root)."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration"))
from extender_world import ROOT, World

from podium_devcluster import binaries
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress


@contextlib.contextmanager
def open_world() -> Iterator[World]:
    """Etcd, API server and Podium's CRDs, under a name of their own; everything is gone afterwards."""
    cache = Cache.default()
    binaries.ensure(cache, (*binaries.needed(0), binaries.HELM, binaries.KUBECTL), Progress())
    cluster = Cluster(f"bench-{os.getpid()}", nodes=0)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        for name in ("hyperparamjobs", "hyperparamtrials", "gpunodes"):
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}.podium.dev", "--timeout=60s")
        with tempfile.TemporaryDirectory() as folder:
            world = World(cluster.kubeconfig, Path(folder), lambda name: cache.bin / name)
            with world.open():
                yield world
    finally:
        cluster.down(purge=True)
