"""A registry for a cluster's nodes: Debian's docker-registry, in each node at localhost:5000, all on one store.

Runtimes speak plain HTTP with localhost alone, so each node has its own server; the store is the cluster's `/shared`.
Only what moves containers needs one (`benchmarks/bench_moving.py`), so no cluster starts it by itself; `down` ends it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from podium_devcluster import debian, locks
from podium_devcluster.cluster import Cluster
from podium_devcluster.network import netns_path
from podium_devcluster.paths import Cache
from podium_devcluster.shell import run
from podium_devcluster.startup import ClusterError

ADDRESS = "localhost:5000"
PACKAGE = "docker-registry"
PROGRAM = "docker-registry"
READY_SECONDS = 60.0


def ensure(cache: Cache) -> Path:
    """The program, out of Debian's package into the cache: nothing is installed on this machine."""
    program = cache.bin / PROGRAM
    with locks.held(cache.root / "bin.lock", timeout=900):
        if not program.exists():
            with TemporaryDirectory(prefix="podium-registry-") as folder:
                package = debian.download_package(PACKAGE, Path(folder))
                run(["dpkg", "-x", str(package), f"{folder}/root"], timeout=60)
                temporary = program.with_suffix(".tmp")
                temporary.write_bytes((Path(folder) / "root/usr/bin" / PROGRAM).read_bytes())
                temporary.chmod(0o755)
                temporary.replace(program)
    return program


def start(cluster: Cluster) -> None:
    """In each node; returns when all answer."""
    program, store = ensure(cluster.cache), cluster.paths.shared / "registry"
    config = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(store)}, "delete": {"enabled": True}},
        "http": {"addr": "127.0.0.1:5000"},
    }
    file = cluster.paths.run / "registry.yaml"
    file.write_text(json.dumps(config))
    for node in cluster.nodes:
        enter = ["nsenter", f"--net={netns_path(cluster.name, node.name)}", "--"]
        environment = {"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"}
        cluster.processes.start(f"registry@{node.name}", [*enter, str(program), "serve", str(file)], environment)
    for node in cluster.nodes:
        _await(cluster, node.name)


def end(cluster: Cluster, node: str) -> None:
    """One node's server, by force; what it holds stays."""
    cluster.processes.kill(f"registry@{node}")


def again(cluster: Cluster, node: str) -> None:
    """After `end`; returns when it answers."""
    cluster.processes.again(f"registry@{node}")
    _await(cluster, node)


def images(cluster: Cluster, repository: str) -> list[Path]:
    """Those below `repository` that could be pulled, as the store has them."""
    store = cluster.paths.shared / "registry/docker/registry/v2/repositories" / repository
    return list(store.glob("**/_manifests/revisions/sha256/*/link"))


def push(cluster: Cluster, node: str, image: str) -> str:
    """An image that the node holds, under the registry's address; returns the name to pull it by.

    The node itself has to pull it too: only what was pulled is known by a registry's digest.
    """
    name = f"{ADDRESS}/{image.removeprefix('localhost/')}"
    ctr = ["ctr", "-n", "k8s.io", "images"]
    cluster.node_exec(node, [*ctr, "tag", "--force", image, name])
    cluster.node_exec(node, [*ctr, "push", "--plain-http", name], timeout=300)
    cluster.node_exec(node, [*ctr, "rm", "--sync", name])
    return name


def _await(cluster: Cluster, node: str) -> None:
    script = f"import urllib.request as u; print(u.urlopen('http://{ADDRESS}/v2/', timeout=2).status)"
    enter = ["nsenter", f"--net={netns_path(cluster.name, node)}", "--", "python3", "-c", script]
    deadline = time.monotonic() + READY_SECONDS
    while run(enter, timeout=20, check=False).strip() != "200":
        if not cluster.processes.alive(f"registry@{node}") or time.monotonic() > deadline:
            tail = cluster.processes.tail(f"registry@{node}")
            raise ClusterError(f"the registry of {node} does not answer; the end of its log:\n{tail}")
        time.sleep(0.1)
