"""kind-config.yaml and the fake driver's DaemonSet hold what they must."""

from __future__ import annotations

import tomllib
from typing import Any

from ruamel.yaml import YAML

from podium_devcluster.kind import THAW
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


def test_thawing_does_not_end_its_own_shell() -> None:
    assert "podium-agent" not in THAW.replace("[p]odium-agent", "")
