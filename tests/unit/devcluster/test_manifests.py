"""The manifests that `make kind` applies."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from podium_devcluster.kind import THAW, chart_values
from podium_devcluster.paths import project_dir


def read(name: str) -> list[Any]:
    return list(YAML(typ="safe").load_all((project_dir() / name).read_text()))


def test_kind_has_two_nodes_for_trials_on_cgroup_v1_and_v2() -> None:
    (config,) = read("kind-config.yaml")
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker"]
    init, kubelet = (YAML(typ="safe").load(patch) for patch in config["kubeadmConfigPatches"])
    assert init == {"kind": "InitConfiguration", "nodeRegistration": {"taints": []}}
    assert kubelet["failCgroupV1"] is False
    (patch,) = config["containerdConfigPatches"]
    assert tomllib.loads(patch)["plugins"]["io.containerd.grpc.v1.cri"] == {"restrict_oom_score_adj": True}


def test_fake_driver_sees_all_processes_and_keeps_its_folder_on_the_node() -> None:
    namespace, daemon = read("devcluster/manifests/fake-driver.yaml")
    spec = daemon["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert daemon["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert spec["hostPID"] is True
    assert container["image"] == "localhost/podium-fake-driver:dev"
    assert {one["name"]: one.get("value") for one in container["env"]}["FAKE_GPU_MEMORY"] == "24Gi"
    assert spec["volumes"][0]["hostPath"]["path"] == "/var/lib/podium-fake-driver"


def test_thawing_does_not_kill_its_own_shell() -> None:
    assert "podium-agent" not in THAW.replace("[p]odium-agent", "")


def test_the_search_on_reservations_differs_from_the_example_only_in_memory() -> None:
    (job,), (reserved,) = read("examples/digits/job.yaml"), read("examples/digits/reservations.yaml")
    job["spec"]["suspension"] = {"methods": ["cuda-checkpoint", "app-checkpoint"]}  # `freeze` alone is refused there
    job["spec"]["gpus"]["memory"] = "512Mi"
    assert reserved == job
    (other,) = read("examples/digits/other-pod.yaml")
    (container,) = other["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "podium.dev" not in str(other)


@pytest.mark.parametrize("reservations", [False, True])
def test_the_chart_gets_the_mode_of_the_gpus(reservations: bool) -> None:
    values = chart_values(project_dir(), reservations)
    assert ("gpus.mode=reservations" in values) is reservations
    assert Path(values[values.index("--values") + 1]).is_file()
