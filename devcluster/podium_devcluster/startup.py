"""The start of a cluster: network, control plane and nodes, in parallel where possible."""

from __future__ import annotations

import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from podium_devcluster import spec, teardown
from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import audit, controlplane, forward, loading, network, pki
from podium_devcluster.runtime.apiserver import ApiClient
from podium_devcluster.runtime.cgroups import ClusterCgroups
from podium_devcluster.runtime.node import READY_SECONDS, Node
from podium_devcluster.runtime.node_config import API_SERVER
from podium_devcluster.runtime.processes import Processes
from podium_devcluster.spec import ClusterSpec

# not the caller's environment: a proxy in it would come between the API server and its webhooks
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class ClusterError(RuntimeError):
    """The cluster cannot be used as requested. The text names the reason and the logs."""


def nodes_of(
    wanted: ClusterSpec, paths: ClusterPaths, cache: Cache, cgroups: ClusterCgroups, processes: Processes
) -> tuple[Node, ...]:
    """Return the nodes of a cluster."""
    return tuple(Node(address, paths, cache, cgroups, processes) for address in wanted.addresses)


@dataclass(frozen=True, slots=True)
class Startup:
    """One start of one cluster."""

    paths: ClusterPaths
    cache: Cache
    cgroups: ClusterCgroups
    processes: Processes
    progress: Progress

    def run(self, wanted: ClusterSpec, lower: Path | None, archives: list[Path]) -> None:
        """Start all parts and wait until they are ready.

        `lower` is the nodes' root, `archives` are their first images.
        """
        for folder in (self.paths.log, self.paths.etcd, self.paths.run, self.paths.shared):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.cache.images.mkdir(parents=True, exist_ok=True)
        with self.progress.step("certificates, network, control groups"):
            teardown.claim(self.paths)
            pki.create(self.paths.pki, wanted.addresses)
            network.create(self.paths.name, wanted.addresses)
            self.cgroups.create(tuple(a.node for a in wanted.addresses))
        nodes = nodes_of(wanted, self.paths, self.cache, self.cgroups, self.processes)
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            with self.progress.step("etcd and kube-apiserver"):
                wanted = self._start_api(wanted)
                making = [pool.submit(self._make_node, node, wanted, lower, archives) for node in nodes]
                api = ApiClient(wanted.port, self.paths.pki)
                self._until(api.ready, "kube-apiserver is not ready", ("etcd", "kube-apiserver", "forwarder"))
            with self.progress.step("kube-controller-manager and kube-scheduler"):
                self._plane("kube-controller-manager", controlplane.controller_manager(self.cache.bin, self.paths))
                self._plane("kube-scheduler", controlplane.scheduler(self.cache.bin, self.paths))
                account = "/api/v1/namespaces/default/serviceaccounts/default"
                self._until(lambda: api.exists(account), "no default service account", controlplane.COMPONENTS)
            if nodes:
                with self.progress.step(f"nodes: {', '.join(node.name for node in nodes)}"):
                    for made in making:
                        made.result()
                    names = {node.name for node in nodes}
                    kubelets = [node.component("kubelet") for node in nodes]
                    self._until(lambda: names <= api.ready_nodes(), "not all nodes are Ready", kubelets)
        spec.save(self.paths.spec, wanted.with_phase(spec.RUNNING))

    def _start_api(self, wanted: ClusterSpec) -> ClusterSpec:
        listener = _listen(wanted.port)
        wanted = replace(wanted, port=listener.getsockname()[1])
        spec.save(self.paths.spec, wanted)
        server = f"https://127.0.0.1:{wanted.port}"
        pki.write_kubeconfig(self.paths.kubeconfig, server, self.paths.pki, "admin", f"podium-{self.paths.name}")
        for user in ("kube-controller-manager", "kube-scheduler"):
            local = f"https://127.0.0.1:{controlplane.PORT}"
            pki.write_kubeconfig(self.paths.pki / f"{user}.kubeconfig", local, self.paths.pki, user, user)
        for user in ("kube-proxy", *(a.node for a in wanted.addresses)):
            pki.write_kubeconfig(self.paths.pki / f"{user}.kubeconfig", API_SERVER, self.paths.pki, user, user)
        self.paths.audit_policy.write_text(audit.policy())
        self._plane("etcd", controlplane.etcd(self.cache.bin, self.paths))
        self._plane("kube-apiserver", controlplane.apiserver(self.cache.bin, self.paths, pod_groups=wanted.pod_groups))
        with listener:
            argv = [
                sys.executable, "-I", str(Path(forward.__file__)), f"--listen={wanted.port}",
                f"--fd={listener.fileno()}", f"--netns={network.netns_path(self.paths.name, 'cp')}",
                f"--to=127.0.0.1:{controlplane.PORT}",
            ]  # fmt: skip
            self.processes.start("forwarder", argv, ENVIRONMENT, pass_fds=[listener.fileno()])
        return wanted

    def _plane(self, component: str, argv: list[str]) -> None:
        inside = controlplane.inside(network.netns_path(self.paths.name, "cp"), argv)
        self.processes.start(component, inside, ENVIRONMENT)

    def _make_node(self, node: Node, wanted: ClusterSpec, lower: Path | None, archives: list[Path]) -> None:
        if lower is None:
            raise ClusterError("a node needs a root file system; call rootfs.ensure first")
        node.prepare(wanted.kubelet)
        node.start_init(lower)
        node.start_containerd()
        loading.load(node, archives)
        node.start_kubelet()

    def _until(self, ready: Callable[[], bool], problem: str, watched: Sequence[str]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            for component in watched:
                if not self.processes.alive(component):
                    raise ClusterError(f"{component} ended; the end of its log:\n{self.processes.tail(component)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{problem} after {READY_SECONDS:g} s; logs: {self.paths.log}")
            time.sleep(0.05)


def _listen(port: int) -> socket.socket:
    """Listen on the given port if it is free, else on any."""
    if port:
        try:
            return socket.create_server(("127.0.0.1", port), backlog=256)
        except OSError:
            pass  # another program uses it
    return socket.create_server(("127.0.0.1", 0), backlog=256)
