"""A cluster for tests and the command line: start, end, kubectl, and faults of single components."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podium_devcluster import locks, preflight, spec, teardown
from podium_devcluster.artifacts import binaries, rootfs, tiny_images
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import cgroups, controlplane, loading
from podium_devcluster.runtime.apiserver import ApiClient
from podium_devcluster.runtime.node import Node
from podium_devcluster.runtime.node_config import KubeletSettings
from podium_devcluster.runtime.processes import Processes
from podium_devcluster.shell import run
from podium_devcluster.spec import ClusterSpec
from podium_devcluster.startup import ClusterError, Startup, nodes_of

LOCK_SECONDS = 3600.0
POWER_OFF_SECONDS = 20.0


class Cluster:
    """A cluster by name, such as `Cluster("podium").up()`. Its nodes are node-1, node-2, and so on.

    Clusters with different names can run at the same time.
    """

    def __init__(
        self,
        name: str = "podium",
        *,
        nodes: int | None = None,
        kubelet: KubeletSettings | None = None,
        pod_groups: bool = False,
        cache: Cache | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Without `nodes` and `kubelet`, a running cluster is accepted as it is, and a new one gets two nodes.

        `pod_groups`: the API server serves PodGroups.
        """
        self.name = name
        self.cache = cache or Cache.default()
        self.paths = ClusterPaths.of(name, self.cache)
        self.progress = progress or Progress()
        self.cgroups = cgroups.ClusterCgroups(name, cgroups.detect())
        self.processes = Processes(self.paths.run, self.paths.log, self.cgroups.procs_file)
        self._requested_nodes, self._requested_kubelet = nodes, kubelet
        self._pod_groups = pod_groups

    # ---- state -----------------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.paths.kubeconfig

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.paths.log

    @property
    def spec(self) -> ClusterSpec:
        """The size and settings of the running cluster. Raises ClusterError if it is down."""
        loaded = spec.load(self.paths.spec)
        if loaded is None:
            raise ClusterError(f"cluster {self.name} is not up; run `podium-devcluster up --name {self.name}`")
        return loaded

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the running cluster."""
        return nodes_of(self.spec, self.paths, self.cache, self.cgroups, self.processes)

    def node(self, name: str) -> Node:
        """Return the node with this name. Raises ClusterError with the known names."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"no node {name!r}; choose from: {', '.join(n.name for n in self.nodes) or 'none'}")

    def components(self, wanted: ClusterSpec | None = None) -> list[str]:
        """Return the names of all components, by default of the running cluster."""
        wanted = wanted or self.spec
        programs = ("init", "containerd", "kubelet", "kube-proxy")
        node_programs = [f"{program}@{a.node}" for a in wanted.addresses for program in programs]
        return [*controlplane.COMPONENTS, "forwarder", *node_programs]

    def healthy(self) -> bool:
        """Return whether all processes run, the API server is ready, and every node is Ready."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return why the cluster is not healthy, one problem per text; empty if it is healthy."""
        loaded = spec.load(self.paths.spec)
        if loaded is None:
            return ["it was never started, or is down"]
        if loaded.phase != spec.RUNNING:
            return ["its start was interrupted"]
        ended = [component for component in self.components(loaded) if not self.processes.alive(component)]
        if ended:
            return [f"{component} is not running" for component in ended]
        api = ApiClient(loaded.port, self.paths.pki)
        if not api.ready():
            return ["its API server is not ready"]
        return [f"{a.node} is not Ready" for a in loaded.addresses if a.node not in api.ready_nodes()]

    # ---- up and down -----------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Start the cluster. A healthy one is accepted as it is; leftovers of a killed run are removed first."""
        require_root()
        started = time.monotonic()
        with locks.held(self.paths.lock, timeout=LOCK_SECONDS, waiting=self.progress.say):
            self._check_owner()
            if self._reusable():
                self.progress.say(f"cluster {self.name} is already up ({time.monotonic() - started:.1f} s)")
                return
            wanted = ClusterSpec(
                nodes=2 if self._requested_nodes is None else self._requested_nodes,
                kubelet=self._requested_kubelet or KubeletSettings(),
                port=self._old_port(),
                pod_groups=self._pod_groups,
            )
            preflight.check(self.cache, wanted.nodes, self.progress)
            self._clear_leftovers()
            build_all(self._missing_pieces(wanted.nodes), self.cache, self.progress)
            lower = rootfs.ensure(self.cache, self.progress) if wanted.nodes else None
            archives = tiny_images.ensure(self.cache, self.progress) if wanted.nodes else []
            try:
                Startup(self.paths, self.cache, self.cgroups, self.processes, self.progress).run(
                    wanted, lower, archives
                )
            except BaseException as error:
                self.progress.say(f"the start failed ({type(error).__name__}); cleaning up. Logs: {self.logs}")
                teardown.clear(self.paths, self.cgroups, self.processes, purge=False)
                raise
        seconds = time.monotonic() - started
        self.progress.say(f"cluster {self.name} is up ({seconds:.1f} s): KUBECONFIG={self.kubeconfig}")

    def check_machine(self) -> None:
        """Raise PreflightError if the machine cannot run the cluster."""
        preflight.check(self.cache, 2 if self._requested_nodes is None else self._requested_nodes, self.progress)

    def down(self, purge: bool = False) -> None:
        """End everything of this cluster, with leftovers of a killed run.

        Raises LeftoverError if anything remains.
        """
        require_root()
        with (
            locks.held(self.paths.lock, timeout=LOCK_SECONDS, waiting=self.progress.say),
            self.progress.step(f"cluster {self.name} down") as step,
        ):
            self._check_owner()
            step.note(f"{teardown.clear(self.paths, self.cgroups, self.processes, purge)} processes ended")

    def leftovers(self) -> list[str]:
        """Return the cluster's processes, network namespaces, mounts and control groups, if there are any."""
        return teardown.leftovers(self.paths, self.cgroups, self.processes)

    def _check_owner(self) -> None:
        other = teardown.other_owner(self.paths, self.cgroups)
        if other:
            cure = "use another --name, or run `down` with the PODIUM_CACHE that it was started with"
            raise ClusterError(f"a cluster named {self.name} is already running, with its state in {other}; {cure}")

    def _reusable(self) -> bool:
        problems = self.problems()
        if problems:
            if self.leftovers():
                self.progress.say(f"cluster {self.name} cannot be used as it is: {'; '.join(problems)}")
            return False
        running = self.spec
        requested = replace(
            running,
            nodes=running.nodes if self._requested_nodes is None else self._requested_nodes,
            kubelet=self._requested_kubelet or running.kubelet,
            pod_groups=self._pod_groups,
        )
        difference = running.difference(requested)
        if difference:
            cure = f"run `podium-devcluster down --name {self.name}` first, or use another --name"
            raise ClusterError(f"cluster {self.name} is already running, but {difference}; {cure}")
        return True

    def _missing_pieces(self, nodes: int) -> list[Piece]:
        root = rootfs.pieces(self.cache, self.progress) if nodes else []
        return binaries.pieces(self.cache, binaries.needed(nodes), self.progress) + root

    def _old_port(self) -> int:
        """Return the former port, to be used again if it is free: kubeconfigs in open shells remain valid."""
        old = spec.load(self.paths.spec)
        return old.port if old else 0

    def _clear_leftovers(self) -> None:
        leftovers = self.leftovers()
        if leftovers:
            with self.progress.step(f"remove {len(leftovers)} leftovers of an earlier run"):
                teardown.clear(self.paths, self.cgroups, self.processes, purge=False)

    # ---- use -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run kubectl and return its standard output.

        A failure raises shell.CommandError with the error output.
        """
        argv = [str(self.cache.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(argv, timeout=timeout, stdin=stdin)

    def node_exec(self, node: str, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run a program in the node's namespaces and return its standard output."""
        return self.node(node).execute(argv, timeout=timeout, stdin=stdin)

    def node_root(self, node: str) -> Path:
        """Return the node's file system as a path on the machine; valid while the node runs."""
        return self.node(node).root()

    def provide(self, folder: Path) -> str:
        """Return the path of a folder of the cache's `bin` in the nodes, which mount it."""
        return f"/opt/k8s/{folder.relative_to(self.cache.bin)}"

    def load_images(self, archives: Sequence[Path]) -> dict[str, list[str]]:
        """Load archives of the cache's `images` folder and return the imported images by node."""
        outside = [file for file in archives if file.parent != self.cache.images]
        if outside:
            raise ClusterError(f"not in {self.cache.images}: {', '.join(map(str, outside))}; copy them there")
        return loading.load_all(self.nodes, archives)

    def kill(self, component: str, node: str | None = None, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal one program (`kube-scheduler`, or `kubelet` of a node) and wait until it has ended."""
        self.processes.kill(self._component(component, node), number)

    def start(self, component: str, node: str | None = None) -> None:
        """Start a program that was ended, with the same command line.

        It waits for containerd, because a kubelet ends if it starts before containerd is ready.
        """
        if component == "containerd" and node is not None:
            self.node(node).start_containerd_again()
        else:
            self.processes.start_again(self._component(component, node))

    def restart(self, component: str, node: str | None = None) -> None:
        """Kill a program and start it again."""
        self.kill(component, node)
        self.start(component, node)

    def power_off(self, node: str) -> None:
        """End all processes of a node at once, without notice to any other component."""
        init = self.node(node).component("init")
        deadline = time.monotonic() + POWER_OFF_SECONDS
        while self.processes.alive(init):
            self.cgroups.thaw(node)
            try:
                self.processes.kill(init, timeout=0.2)  # the node's pid 1: the kernel kills all others with it
            except TimeoutError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"node {node} did not end within {POWER_OFF_SECONDS:g} s: {error}") from error

    def running(self, component: str, node: str | None = None) -> bool:
        """Return whether a program runs."""
        return self.processes.alive(self._component(component, node))

    def pid(self, component: str, node: str | None = None) -> int:
        """Return a program's process id. Raises ProcessLookupError if it does not run."""
        return self.processes.payload(self._component(component, node))

    @staticmethod
    def _component(component: str, node: str | None) -> str:
        return f"{component}@{node}" if node else component


def require_root() -> None:
    """Raise PreflightError for other users than root.

    Called before the lock file is opened, which root may own.
    """
    if os.geteuid():
        cure = "run it as root, or use `make kind` with Docker"
        raise preflight.PreflightError([preflight.Problem("not root", cure)])
