"""A one-node cluster with NVIDIA's container toolkit over the fake driver, for the files of tests that need one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import nvidia

ROOT = Path(__file__).parents[2]
NODE = "node-1"
STATE = "/var/lib/podium-fake-driver"
# values of the chart: the agent and the trials get their GPUs from the toolkit, and nothing from the fake driver itself
CHART_VALUES = (
    *("-f", str(ROOT / "examples/demo-values.yaml"), "--set=agent.runtimeClassName=nvidia"),
    *("--set=trials.runtimeClassName=nvidia", "--set=agent.driver.libraryPath=", "--set=agent.trialEnv=null"),
)


@contextmanager
def cluster_with_toolkit(name: str, gpus: int) -> Iterator[Cluster]:
    """Start a cluster `e2e-NAME`, one for each worker of pytest-xdist; remove it at the end unless PODIUM_KEEP=1."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    cluster = Cluster(f"e2e-{name}{worker and f'-{worker}'}", nodes=1)
    cluster.down()  # a killed session may have left it
    try:
        cluster.up()
        images.build_and_load(cluster)
        manifest = (ROOT / "devcluster/manifests/fake-driver.yaml").read_text()
        many = manifest.replace('{name: FAKE_GPUS, value: "1"}', f'{{name: FAKE_GPUS, value: "{gpus}"}}')
        cluster.kubectl("apply", "-f", "-", stdin=many)
        rollout = ("rollout", "status", "daemonset/podium-fake-driver", "--timeout=120s")
        cluster.kubectl("-n", "podium-fake-driver", *rollout, timeout=130)
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
