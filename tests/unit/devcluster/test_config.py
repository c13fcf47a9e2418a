"""Generated configurations and command lines: network, kubelet, containerd, control plane, Go modules."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path

import pytest

from podium_devcluster import spec, versions
from podium_devcluster.artifacts import binaries, gobuild
from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import controlplane, network, node_config
from podium_devcluster.runtime.apiserver import ready_nodes
from podium_devcluster.runtime.node_config import KubeletSettings
from podium_devcluster.spec import ClusterSpec

NODES = network.addresses(("node-1", "node-2"))
ROOTFUL = "/devcluster-a/node-1"


def test_addresses() -> None:
    assert [(a.ip, a.pods) for a in NODES] == [("10.88.0.11", "10.89.1.0/24"), ("10.88.0.12", "10.89.2.0/24")]


def test_node_network_reaches_the_other_node_but_not_itself() -> None:
    batch = network.node_batch(NODES[0], NODES)
    assert "route add 10.89.2.0/24 via 10.88.0.12" in batch
    assert "10.89.1.0/24" not in batch


def test_the_api_server_reaches_services_through_a_node_if_there_is_one() -> None:
    assert "route add 10.96.0.0/24 via 10.88.0.11\n" in network.control_plane_batch(NODES)
    assert "10.96" not in network.control_plane_batch(())


def test_clusters_with_similar_names_have_different_namespaces() -> None:
    assert not network.netns("a-b", "cp").startswith("a.")


@pytest.mark.parametrize("name", ["", "A", "a.b", "-a", "a-", "a" * 25, "1a", "a/b"])
def test_bad_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--name"):
        ClusterPaths.of(name, Cache(tmp_path))


def test_containerd_config_is_toml_and_names_the_pause_image() -> None:
    plugins = tomllib.loads(node_config.containerd())["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == "localhost/pause:1"
    assert plugins["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is True


def test_kubelet_config_takes_log_settings() -> None:
    settings = KubeletSettings(log_max_size="64Ki", log_monitor_interval="3s")
    config = json.loads(node_config.kubelet(NODES[0], ROOTFUL, settings))
    assert config["containerLogMaxSize"] == "64Ki"
    assert config["containerLogMonitorInterval"] == "3s"
    assert config["cgroupRoot"] == ROOTFUL
    assert config["failCgroupV1"] is False


def test_every_file_of_a_node_is_relative() -> None:
    assert not [name for name in node_config.files(NODES[0], ROOTFUL, KubeletSettings()) if name.startswith("/")]


def test_the_api_server_connects_to_kubelets_by_address(tmp_path: Path) -> None:
    argv = controlplane.apiserver(Path("/bin"), ClusterPaths.of("a", Cache(tmp_path)))
    assert "--kubelet-preferred-address-types=InternalIP" in argv
    assert "--authorization-mode=Node,RBAC" in argv


def test_a_spec_is_stored_and_loaded(tmp_path: Path) -> None:
    wanted = ClusterSpec(nodes=1, kubelet=KubeletSettings(log_max_size="1Mi"), port=4242, phase=spec.RUNNING)
    spec.save(tmp_path / "a" / "cluster.json", wanted)
    assert spec.load(tmp_path / "a" / "cluster.json") == wanted


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 2}', '{"kubelet": {"what": 1}}'])
def test_an_incomplete_spec_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_text(text)
    assert spec.load(tmp_path / "s") is None


def test_spec_differences_are_named() -> None:
    assert ClusterSpec(nodes=2).difference(ClusterSpec(nodes=2)) == ""
    assert "2 nodes instead of 0" in ClusterSpec(nodes=2).difference(ClusterSpec(nodes=0))
    assert "64Ki" in ClusterSpec().difference(ClusterSpec(kubelet=KubeletSettings("64Ki")))


def test_ready_nodes() -> None:
    def node(name: str, status: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}}

    assert ready_nodes({"items": [node("a", "True"), node("b", "Unknown"), {"metadata": {"name": "c"}}]}) == {"a"}


def test_go_module_uses_published_staging_versions() -> None:
    upstream = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    made = gobuild.module_file(upstream, "1.36.3")
    assert "k8s.io/api => k8s.io/api v0.36.3" in made
    assert "go 1.26.0" in made
    assert "godebug default=go1.26" in made


def test_go_module_without_staging_is_an_error() -> None:
    with pytest.raises(ValueError, match="no staging modules"):
        gobuild.module_file("module x\ngo 1.26\n", "1.36.3")


def test_the_linker_gets_the_version() -> None:
    assert f"gitVersion=v{versions.KUBERNETES}" in gobuild.kubernetes_flags(versions.KUBERNETES)


def test_another_version_of_kube_scheduler_has_its_own_folder(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert binaries.scheduler("") is binaries.scheduler(versions.KUBERNETES) is binaries.SCHEDULER
    assert binaries.SCHEDULER.path(cache) == cache.bin / "kube-scheduler"
    older = binaries.scheduler(versions.OLDER_KUBERNETES)
    path = older.path(cache)
    assert path == cache.bin / versions.OLDER_KUBERNETES / "kube-scheduler"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho Kubernetes v{older.version}\n")
    path.chmod(0o755)
    assert binaries.missing(cache, (older,)) == (older,)
    binaries.ensure(cache, (older,), Progress())  # it exists already; its version is checked
    assert binaries.missing(cache, (older, binaries.SCHEDULER)) == (binaries.SCHEDULER,)


@pytest.mark.parametrize(
    ("text", "version"), [("go version go1.26.8 linux/amd64", (1, 26)), ("go version devel", None), ("", None)]
)
def test_go_version(text: str, version: tuple[int, int] | None) -> None:
    assert gobuild.version_of(text) == version


def test_build_inputs_are_kept_in_the_cache_until_they_are_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for name in ("go/modules", "go/objects", "kubernetes-1.2.3", "etcd-3.2.1"):
        (cache.build / name).mkdir(parents=True)
    (cache.build / "kept").touch()
    gobuild.remove_inputs(cache)
    deadline = time.monotonic() + 60
    while len(list(cache.build.iterdir())) > 1:  # removed in the background
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [entry.name for entry in cache.build.iterdir()] == ["kept"]


def test_names_are_an_opt_in_of_the_kubelet() -> None:
    plain = json.loads(node_config.kubelet(NODES[0], ROOTFUL, KubeletSettings()))
    named = json.loads(node_config.kubelet(NODES[0], ROOTFUL, KubeletSettings(dns=True)))
    assert named == plain | {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}
    assert not {"clusterDNS", "clusterDomain"} & set(plain)
