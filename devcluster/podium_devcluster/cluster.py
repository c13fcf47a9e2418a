"""A cluster as tests and the command line see it: up, down, kubectl, and ends of single components on purpose."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podium_devcluster import (
    binaries,
    cgroups,
    controlplane,
    loading,
    locks,
    preflight,
    rootfs,
    spec,
    teardown,
    tiny_images,
)
from podium_devcluster.apiserver import ApiClient
from podium_devcluster.node import Node
from podium_devcluster.node_config import KubeletSettings
from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.processes import Processes
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run
from podium_devcluster.spec import ClusterSpec
from podium_devcluster.startup import ClusterError, Startup, nodes_of

LOCK_SECONDS = 3600.0
POWER_OFF_SECONDS = 20.0


class Cluster:
    """`Cluster("podium").up()`. Several names run side by side; nodes are called node-1, node-2, ..."""

    def __init__(
        self,
        name: str = "podium",
        *,
        nodes: int | None = None,
        kubelet: KubeletSettings | None = None,
        cache: Cache | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`nodes` and `kubelet` left out: what runs is taken as it is (or two nodes are started)."""
        self.name = name
        self.cache = cache or Cache.default()
        self.paths = ClusterPaths.of(name, self.cache)
        self.progress = progress or Progress()
        self.cgroups = cgroups.ClusterCgroups(name, cgroups.detect())
        self.processes = Processes(self.paths.run, self.paths.log, self.cgroups.procs_file)
        self._asked_nodes, self._asked_kubelet = nodes, kubelet

    # ---- what it is ------------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        return self.paths.kubeconfig

    @property
    def logs(self) -> Path:
        return self.paths.log

    @property
    def spec(self) -> ClusterSpec:
        found = spec.load(self.paths.spec)
        if found is None:
            raise ClusterError(f"cluster {self.name} is not up: run `podium-devcluster up --name {self.name}`")
        return found

    @property
    def nodes(self) -> tuple[Node, ...]:
        return nodes_of(self.spec, self.paths, self.cache, self.cgroups, self.processes)

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"no node {name!r}; there are: {', '.join(n.name for n in self.nodes) or 'none'}")

    def components(self, wanted: ClusterSpec | None = None) -> list[str]:
        wanted = wanted or self.spec
        programs = ("init", "containerd", "kubelet", "kube-proxy")
        node_programs = [f"{program}@{a.node}" for a in wanted.addresses for program in programs]
        return [*controlplane.COMPONENTS, "forwarder", *node_programs]

    def healthy(self) -> bool:
        """All processes run, the API server is ready, every node is Ready."""
        return not self.complaints()

    def complaints(self) -> list[str]:
        found = spec.load(self.paths.spec)
        if found is None:
            return ["it was never started, or is down"]
        if found.phase != spec.RUNNING:
            return ["its start was cut short"]
        dead = [component for component in self.components(found) if not self.processes.alive(component)]
        if dead:
            return [f"{component} is not running" for component in dead]
        api = ApiClient(found.port, self.paths.pki)
        if not api.ready():
            return ["its API server is not ready"]
        return [f"{a.node} is not Ready" for a in found.addresses if a.node not in api.ready_nodes()]

    # ---- up and down -----------------------------------------------------------------------------------------------

    def up(self) -> None:
        """A healthy cluster is taken as it is; what a killed run left is cleared first."""
        preflight_root(self.progress)
        started = time.monotonic()
        with locks.held(self.paths.lock, timeout=LOCK_SECONDS, waiting=self.progress.say):
            self._check_owner()
            if self._reusable():
                self.progress.say(f"cluster {self.name} is up already ({time.monotonic() - started:.1f} s)")
                return
            wanted = ClusterSpec(
                nodes=2 if self._asked_nodes is None else self._asked_nodes,
                kubelet=self._asked_kubelet or KubeletSettings(),
                port=self._old_port(),
            )
            preflight.check(self.cache, wanted.nodes, self.progress)
            self._clear_leftovers()
            binaries.ensure(self.cache, binaries.needed(wanted.nodes), self.progress)
            lower = rootfs.ensure(self.cache, self.progress) if wanted.nodes else None
            archives = tiny_images.ensure(self.cache, self.progress) if wanted.nodes else []
            try:
                Startup(self.paths, self.cache, self.cgroups, self.processes, self.progress).run(
                    wanted, lower, archives
                )
            except BaseException as error:
                self.progress.say(f"not started ({type(error).__name__}); clearing up. Logs: {self.logs}")
                teardown.clear(self.paths, self.cgroups, self.processes, purge=False)
                raise
        seconds = time.monotonic() - started
        self.progress.say(f"cluster {self.name} is up ({seconds:.1f} s): KUBECONFIG={self.kubeconfig}")

    def down(self, purge: bool = False) -> None:
        """Ends everything of this cluster, also what a killed run left; fails if anything survives."""
        preflight_root(self.progress)
        with (
            locks.held(self.paths.lock, timeout=LOCK_SECONDS, waiting=self.progress.say),
            self.progress.step(f"cluster {self.name} down") as step,
        ):
            self._check_owner()
            step.note(f"{teardown.clear(self.paths, self.cgroups, self.processes, purge)} processes ended")

    def leftovers(self) -> list[str]:
        """Processes, network namespaces, mounts and control groups of this cluster. Empty when it is down."""
        return teardown.leftovers(self.paths, self.cgroups, self.processes)

    def _check_owner(self) -> None:
        other = teardown.foreign(self.paths, self.cgroups)
        if other:
            cure = "use another --name, or `down` it with the PODIUM_CACHE that it was started with"
            raise ClusterError(f"a cluster named {self.name} runs already, with its state in {other}: {cure}")

    def _reusable(self) -> bool:
        complaints = self.complaints()
        if complaints:
            if self.leftovers():
                self.progress.say(f"cluster {self.name} cannot be used as it is: {'; '.join(complaints)}")
            return False
        now = self.spec
        asked = replace(
            now,
            nodes=now.nodes if self._asked_nodes is None else self._asked_nodes,
            kubelet=self._asked_kubelet or now.kubelet,
        )
        difference = now.differs(asked)
        if difference:
            cure = "`down` it first, or use another --name"
            raise ClusterError(f"cluster {self.name} runs already, but {difference}: {cure}")
        return True

    def _old_port(self) -> int:
        """The same address again where it is free: open shells keep working."""
        old = spec.load(self.paths.spec)
        return old.port if old else 0

    def _clear_leftovers(self) -> None:
        left = self.leftovers()
        if left:
            with self.progress.step(f"clear what a former run left ({len(left)} things)"):
                teardown.clear(self.paths, self.cgroups, self.processes, purge=False)

    # ---- use -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, timeout: float = 30.0, stdin: str | None = None) -> str:
        """Standard output of kubectl; a failure raises shell.CommandError with what it said."""
        argv = [str(self.cache.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(argv, timeout=timeout, stdin=stdin)

    def node_exec(self, node: str, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run a program in the node's own namespaces."""
        return self.node(node).execute(argv, timeout=timeout, stdin=stdin)

    def node_root(self, node: str) -> Path:
        """The node's file system as seen from outside (while the node runs)."""
        return self.node(node).root()

    def load_images(self, archives: Sequence[Path]) -> dict[str, list[str]]:
        """Archives must lie in the cache's `images` folder; returns what was imported, by node."""
        outside = [file for file in archives if file.parent != self.cache.images]
        if outside:
            raise ClusterError(f"not in {self.cache.images}: {', '.join(map(str, outside))}")
        return loading.load_all(self.nodes, archives)

    def kill(self, component: str, node: str | None = None, number: signal.Signals = signal.SIGKILL) -> None:
        """End one program (`kube-scheduler`, or `kubelet` of a node) and wait until it is gone."""
        self.processes.kill(self._component(component, node), number)

    def start(self, component: str, node: str | None = None) -> None:
        """Start a program that was ended, just as it was started before."""
        self.processes.again(self._component(component, node))

    def restart(self, component: str, node: str | None = None) -> None:
        self.kill(component, node)
        self.start(component, node)

    def power_off(self, node: str) -> None:
        """A node is gone from one moment to the next, with all its processes; nobody is told."""
        init = self.node(node).component("init")
        deadline = time.monotonic() + POWER_OFF_SECONDS
        while self.processes.alive(init):
            self.cgroups.thaw(node)
            try:
                self.processes.kill(init, timeout=0.2)  # pid 1 of the node: the kernel ends all others with it
            except TimeoutError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"node {node} does not end within {POWER_OFF_SECONDS:g} s: {error}") from error

    def running(self, component: str, node: str | None = None) -> bool:
        return self.processes.alive(self._component(component, node))

    def pid(self, component: str, node: str | None = None) -> int:
        return self.processes.payload(self._component(component, node))

    @staticmethod
    def _component(component: str, node: str | None) -> str:
        return f"{component}@{node}" if node else component


def preflight_root(progress: Progress) -> None:
    """Before the lock file: its folder may belong to root."""
    if os.geteuid():
        cure = "run it as root, or use `make kind` with Docker"
        raise preflight.PreflightError([preflight.Problem("not root", cure)])
