"""A real control plane without nodes for the integration layer: etcd, kube-apiserver, controller-manager, scheduler.

It is started once a session (about three seconds) under a name of its own, so that it disturbs no cluster that runs,
and ended afterwards. `PODIUM_TEST_KUBECONFIG` names another API server to be used instead, as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium_devcluster import binaries
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

ROOT = Path(__file__).parents[2]
TOOLS = {"helm": binaries.HELM, "kubectl": binaries.KUBECTL}


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """The kubeconfig of an administrator; Podium's CRDs are applied."""
    given = os.environ.get("PODIUM_TEST_KUBECONFIG")
    if given:
        yield Path(given)
        return
    if os.geteuid() != 0:
        pytest.skip("a control plane needs root (network namespaces)")
    cluster = Cluster(f"int-{os.getpid()}", nodes=0)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        names = ("hyperparamjobs", "hyperparamtrials", "gpunodes")
        for name in names:
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}.podium.dev", "--timeout=20s")
        yield cluster.kubeconfig
    finally:
        cluster.down(purge=True)


@pytest.fixture(scope="session")
def binary() -> Callable[[str], Path]:
    """Where a program of Kubernetes lies; it is built or fetched if it is not there yet."""
    cache = Cache.default()

    def find(name: str) -> Path:
        wanted = (TOOLS[name],) if name in TOOLS else binaries.needed(0)
        binaries.ensure(cache, wanted, Progress())
        return cache.bin / name

    return find
