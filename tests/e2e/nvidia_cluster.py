"""A one-node cluster with NVIDIA's container toolkit over the fake driver, for the files of tests that need one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import nvidia

NODE = "node-1"
STATE = "/var/lib/podium-fake-driver"


@contextmanager
def cluster_with_toolkit(name: str, gpus: int) -> Iterator[Cluster]:
    """Start a cluster `e2e-NAME`, one for each worker of pytest-xdist; remove it at the end unless PODIUM_KEEP=1."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    cluster = Cluster(f"e2e-{name}{worker and f'-{worker}'}", nodes=1)
    cluster.down()  # a killed session may have left it
    try:
        cluster.up()
        images.build_and_load(cluster)
        nvidia.install_fake_driver(cluster, gpus)
        nvidia.install_toolkit(cluster)
        script = Path(__file__).with_name("scripts") / "devices.py"
        cluster.kubectl("create", "configmap", "device-scripts", f"--from-file={script}")
        yield cluster
    finally:
        if not os.environ.get("PODIUM_KEEP"):
            cluster.down()


def work_log(cluster: Cluster) -> str:
    """Return the fake driver's record of which container worked on which GPU."""
    folder = cluster.node_root(NODE) / STATE.removeprefix("/")
    return "".join((folder / name).read_text() for name in ("work.log.1", "work.log") if (folder / name).exists())
