"""A real control plane without nodes for the integration layer.

It has etcd, kube-apiserver, controller-manager and scheduler. It starts once per session, in about three seconds, with
its own name, so that it disturbs no other cluster.
`PODIUM_TEST_KUBECONFIG` names another API server to use instead. `PODIUM_TEST_SCHEDULER` is the version of the
kube-scheduler for Podium's own pods, for example 1.34.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium_cluster.client import ApiError, connect
from podium_cluster.resources import NAMESPACES
from podium_cluster.settings import ClusterSettings
from podium_devcluster.artifacts import binaries, debian
from podium_devcluster.audit_log import AuditLog
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError

sys.path.insert(0, str(Path(__file__).parent))

from bare_node import BareNode, build
from extender_setup import scheduler_version
from faulty_relay import FaultyRelay
from operator_stage import OperatorProcess, Play, Stage

ROOT = Path(__file__).parents[2]
COUNT = itertools.count()
TOOLS = {"helm": binaries.HELM, "kubectl": binaries.KUBECTL}


@pytest.fixture(scope="session")
def plane() -> Iterator[Cluster | None]:
    """The control plane with Podium's CRDs; None if PODIUM_TEST_KUBECONFIG names another one."""
    if os.environ.get("PODIUM_TEST_KUBECONFIG"):
        yield None
        return
    if os.geteuid() != 0:
        pytest.skip("a control plane needs root (network namespaces)")
    cluster = Cluster(f"int-{os.getpid()}", nodes=0)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        names = ("hyperparamjobs", "hyperparamtrials", "gpunodes", "gpuqueues")
        for name in names:
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}.podium.dev", "--timeout=20s")
        yield cluster
    finally:
        cluster.down(purge=True)


@pytest.fixture(scope="session")
def kubeconfig(plane: Cluster | None) -> Path:
    """The kubeconfig of an administrator of a cluster with Podium's CRDs."""
    return Path(os.environ["PODIUM_TEST_KUBECONFIG"]) if plane is None else plane.kubeconfig


@pytest.fixture(scope="module")
def audit_log(plane: Cluster | None) -> AuditLog | None:
    """A reader of the API server's audit log; None if the server is not this session's own."""
    return None if plane is None else AuditLog(plane.paths)


@pytest.fixture(scope="session")
def binary() -> Callable[[str], Path]:
    """A function that returns the path of a program of Kubernetes; it builds or downloads missing ones."""
    cache = Cache.default()
    tools = TOOLS | {"kube-scheduler": binaries.scheduler(scheduler_version())}

    def find(name: str) -> Path:
        wanted = tools.get(name)
        binaries.ensure(cache, (wanted,) if wanted else binaries.needed(0), Progress())
        return wanted.path(cache) if wanted else cache.bin / name

    return find


@pytest.fixture(scope="session")
def prometheus_programs() -> tuple[Path, Path]:
    """Debian's prometheus and promtool; they are downloaded once (19 MB, two seconds on an idle machine)."""
    try:
        return debian.prometheus(Cache.default())
    except CommandError as error:
        pytest.skip(f"prometheus and promtool are not in the cache and cannot be downloaded: {error}")


@pytest.fixture(scope="module")
def operator(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    async def prepare() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podium-system"}}
            with contextlib.suppress(ApiError):  # it exists already
                await api.create(NAMESPACES, namespace, manager="test")

    asyncio.run(prepare())
    process = OperatorProcess(kubeconfig, tmp_path_factory.mktemp("operator") / "log")
    process.start()
    yield process
    process.close()


@pytest.fixture
def perform(kubeconfig: Path, operator: OperatorProcess) -> Callable[[Play], None]:
    """A function that runs the body of a test on its own stage."""

    def run(play: Play, slots: int = 4) -> None:
        async def main() -> None:
            name = f"op-{os.getpid()}-{next(COUNT)}"
            async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api, Stage(api, name, slots) as stage:
                await play(stage)

        asyncio.run(main())

    return run


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the fake driver and the gate helper."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def bare_node(kubeconfig: Path, built: Path) -> Iterator[BareNode]:
    """A node without a kubelet, whose components the test starts."""
    if os.geteuid() != 0:
        pytest.skip("a node needs root (cgroups)")
    folder = Path(tempfile.mkdtemp(prefix="bare-"))  # short: the name of a socket has at most 107 bytes
    node = BareNode(kubeconfig, folder, built, f"bare-{os.getpid()}-{next(COUNT)}")
    try:
        yield node
    finally:
        node.close()


@pytest.fixture
def make_relay(kubeconfig: Path, tmp_path: Path) -> Iterator[Callable[[str], FaultyRelay]]:
    """A function that returns a relay to the API server for the component of this name."""
    relays: list[FaultyRelay] = []

    def make(component: str) -> FaultyRelay:
        folder = tmp_path / f"relay-{component}"
        folder.mkdir()
        relays.append(FaultyRelay(kubeconfig, folder, seed=len(relays)))
        return relays[-1]

    yield make
    for relay in relays:
        relay.close()
