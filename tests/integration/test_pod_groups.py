"""PodGroups with a real API server and kube-scheduler that have the alpha feature: all workers are bound, or none."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from extender_setup import ROOT, ExtenderSetup, gpu, scheduler_version

from podium_cluster.client import Api, connect
from podium_cluster.settings import ClusterSettings
from podium_core.schema.trial import HyperParamTrial
from podium_devcluster.cluster import Cluster
from podium_operator.act.pod_groups import PodGroupCreator

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(scheduler_version().startswith(("1.32", "1.33", "1.34", "1.35")), reason="needs PodGroups"),
]
GATES = "GenericWorkload=true,GangScheduling=true"


@pytest.fixture(scope="module")
def setup(binary: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderSetup]:
    if os.geteuid() != 0:
        pytest.skip("a control plane needs root (network namespaces)")
    cluster = Cluster(f"groups-{os.getpid()}", nodes=0, pod_groups=True)
    try:
        cluster.up()
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        for name in ("hyperparamtrials", "gpunodes"):
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}.podium.dev", "--timeout=20s")
        made = ExtenderSetup(cluster.kubeconfig, tmp_path_factory.mktemp("groups"), binary)
        with made.open():
            made.start_extender()
            made.start_scheduler(patience="5s", gates=GATES)
            yield made
    finally:
        cluster.down(purge=True)


def trial(setup: ExtenderSetup, name: str) -> HyperParamTrial:
    about = {"name": name, "namespace": setup.namespace, "uid": "none"}
    return HyperParamTrial.model_validate({"metadata": about, "spec": {"job": "job", "number": 0, "parameters": {}}})


def test_no_worker_is_bound_before_all_of_them_can_be(setup: ExtenderSetup) -> None:
    async def create(api: Api) -> tuple[bool, bool]:
        groups = PodGroupCreator(api, "test")
        return await groups.create(trial(setup, "gang"), 0, 2), await groups.create(trial(setup, "gang"), 0, 2)

    assert setup.api(create) == (True, True)  # the second one exists already
    setup.add_node("one", gpu(1), slots=1)
    setup.add_pod("alone", on="one", gpus=0)
    assert setup.bound("alone") == "one"  # the scheduler knows the node
    setup.add_pod("gang-0", "gang-1", among=("one", "two"), group="gang-0")
    for pod in ("gang-0", "gang-1"):
        setup.unschedulable_message(pod)
    assert not any(setup.pod(pod)["spec"].get("nodeName") for pod in ("gang-0", "gang-1"))
    setup.add_node("two", gpu(2), slots=1)
    assert {setup.bound(pod) for pod in ("gang-0", "gang-1")} == {"one", "two"}


def test_a_cluster_without_pod_groups_has_none_and_is_not_asked_again(kubeconfig: Path) -> None:
    async def create() -> bool:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            about = {"name": "gang", "namespace": "default", "uid": "none"}
            spec = {"job": "job", "number": 0, "parameters": {}}
            made = HyperParamTrial.model_validate({"metadata": about, "spec": spec})
            return await PodGroupCreator(api, "test").create(made, 0, 2)

    assert asyncio.run(create()) is False
