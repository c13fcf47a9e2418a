"""A registry for the nodes of a cluster: Debian's docker-registry at localhost:5000 in each node.

Container runtimes use plain HTTP with localhost only, so each node has a server of its own. They share one store in
the cluster's `/shared`. Only live migration needs a registry, so no cluster starts one by itself; `down` ends it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from podium_devcluster.artifacts import debian
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.runtime.network import netns_path
from podium_devcluster.shell import run
from podium_devcluster.startup import ClusterError

ADDRESS = "localhost:5000"
PACKAGE = "docker-registry"
PROGRAM = "docker-registry"
READY_SECONDS = 60.0


def ensure(cache: Cache) -> Path:
    """Return the program, unpacked from Debian's package into the cache without an installation."""
    (program,) = debian.unpack_programs(cache, PACKAGE, (PROGRAM,))
    return program


def start(cluster: Cluster) -> None:
    """Start a server in each node and wait until all answer."""
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


def kill(cluster: Cluster, node: str) -> None:
    """Kill the server of one node; the store remains."""
    cluster.processes.kill(f"registry@{node}")


def start_again(cluster: Cluster, node: str) -> None:
    """Start the server of one node after `kill` and wait until it answers."""
    cluster.processes.start_again(f"registry@{node}")
    _await(cluster, node)


def images(cluster: Cluster, repository: str) -> list[Path]:
    """Return the images below `repository` that can be pulled, as links in the store."""
    store = cluster.paths.shared / "registry/docker/registry/v2/repositories" / repository
    return list(store.glob("**/_manifests/revisions/sha256/*/link"))


def push(cluster: Cluster, node: str, image: str) -> str:
    """Push an image of the node to the registry and return the name to pull it by.

    The node has to pull the image as well, because containerd records a registry's digest only for pulled images.
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
            raise ClusterError(f"the registry of {node} does not answer. The end of its log:\n{tail}")
        time.sleep(0.1)
