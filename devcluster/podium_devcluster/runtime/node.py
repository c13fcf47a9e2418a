"""One node: a root file system, namespaces, and in them containerd, kubelet and kube-proxy.

A node does not need a container engine: it is an overlay over the shared Debian root, entered by unshare and
pivot_root. Its programs are started from outside with nsenter, so that a test can end and restart each of them alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.paths import Cache, ClusterPaths
from podium_devcluster.runtime import node_config
from podium_devcluster.runtime.cgroups import ClusterCgroups
from podium_devcluster.runtime.network import NodeAddress, netns_path
from podium_devcluster.runtime.processes import Processes
from podium_devcluster.shell import CommandError, run

PROGRAMS = ("kube-proxy", "kubelet", "containerd", "init")
READY_SECONDS = 300.0  # a program that ends is noticed at once, so only a busy machine needs most of this time
_BOOTED = "containerd successfully booted"
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


class NodeError(RuntimeError):
    """A node did not start. The text contains the end of the log."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster."""

    address: NodeAddress
    paths: ClusterPaths
    cache: Cache
    cgroups: ClusterCgroups
    processes: Processes

    @property
    def name(self) -> str:
        """The node's name."""
        return self.address.node

    @property
    def state(self) -> Path:
        """The state folder of the node."""
        return self.paths.node(self.name)

    @property
    def log(self) -> Path:
        """/var/log of the node; it contains the logs of its pods."""
        return self.paths.log / self.name

    def component(self, program: str) -> str:
        """Return the name of one of the node's programs, such as kubelet@node-1."""
        return f"{program}@{self.name}"

    def init_pid(self) -> int:
        """Return the pid, on the machine, of the node's pid 1."""
        return self.processes.payload(self.component("init"))

    def root(self) -> Path:
        """Return the node's file system as a path on the machine; valid while the node runs."""
        return Path(f"/proc/{self.init_pid()}/root")

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` in the node."""
        inside = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        environment = ["/usr/bin/env", "-i", _PATH, "HOME=/root", "SHELL=/bin/sh"]
        return ["nsenter", f"--target={self.init_pid()}", *inside, "--", *environment, *argv]

    def execute(self, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run a program in the node and return its standard output."""
        return run(self.enter(argv), timeout=timeout, stdin=stdin)

    def prepare(self, settings: node_config.KubeletSettings) -> None:
        """Make empty folders and write the configuration; containerd's image store is kept between starts."""
        for folder in ("upper", "work", "merged", "kubelet", "config"):
            shutil.rmtree(self.state / folder, ignore_errors=True)
        for folder in ("upper", "work", "merged", "kubelet", "containerd", "config"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        self.log.mkdir(parents=True, exist_ok=True)
        self.paths.shared.mkdir(parents=True, exist_ok=True)
        for name, text in node_config.files(self.address, self.cgroups.kubelet_root(self.name), settings).items():
            file = self.state / "config" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def start_init(self, lower: Path) -> None:
        """Start the node's pid 1 in new namespaces, over the root file system `lower`."""
        argv = [
            "nsenter", f"--net={netns_path(self.paths.name, self.name)}", "--",
            "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--uts", "--ipc",
            "/bin/bash", str(node_config.enter_script()), self.name, str(self.state), str(lower),
            str(self.cache.bin), str(self.cache.images), str(self.paths.pki), str(self.log),
            str(self.paths.shared),
        ]  # fmt: skip
        self.processes.start(self.component("init"), argv)
        self._wait("init", lambda: (self.root() / "run/node-is-set-up").exists())

    def start_containerd(self) -> None:
        """Start containerd and remove the containers of earlier starts."""
        name = self.component("containerd")
        self._until_ready(lambda: self.processes.start(name, self.enter(["/usr/bin/containerd"])))
        if self._remove_old_containers():
            # CRI reads the containers once, at its start
            self.processes.kill(name)
            self.start_containerd_again()

    def start_containerd_again(self) -> None:
        """Start containerd after its end, with its containers, and wait until it is ready for a kubelet."""
        self._until_ready(lambda: self.processes.start_again(self.component("containerd")))

    def _until_ready(self, start: Callable[[], object]) -> None:
        before = self.processes.log(self.component("containerd")).count(_BOOTED)
        start()
        # it answers ctr before its CRI service is ready for a kubelet
        self._wait("containerd", lambda: self._booted(before) and self._ctr_answers())

    def _booted(self, before: int) -> bool:
        return self.processes.log(self.component("containerd")).count(_BOOTED) > before

    def _ctr_answers(self) -> bool:
        try:
            self.execute(["ctr", "--connect-timeout=1s", "version"], timeout=5)
        except CommandError:
            return False
        return True

    def _remove_old_containers(self) -> bool:
        """Remove the containers of earlier starts, whose processes have ended; return whether there were any."""
        containers = self.execute(["ctr", "-n", "k8s.io", "containers", "ls", "-q"]).split()
        pods = self.execute(["ctr", "-n", "k8s.io", "sandboxes", "ls"]).splitlines()[1:]
        for kind, names in (
            ("containers", containers),
            ("sandboxes", [line.split()[0] for line in pods if line.strip()]),
        ):
            if names:
                run(self.enter(["ctr", "-n", "k8s.io", kind, "rm", *names]), timeout=60, check=False)
        return bool(containers or pods)

    def start_kubelet(self) -> None:
        """Start kubelet and kube-proxy."""
        kubelet = node_config.kubelet_argv(self.address, self.paths.name)
        self.processes.start(self.component("kubelet"), self.enter(kubelet))
        self.processes.start(self.component("kube-proxy"), self.enter(node_config.kube_proxy_argv()))

    def _wait(self, program: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        component = self.component(program)
        while True:
            try:
                if ready():
                    return
            except OSError:
                pass  # its files do not exist yet
            if not self.processes.alive(component):
                raise NodeError(
                    f"{component} ended at its start. The end of its log:\n{self.processes.tail(component)}"
                )
            if time.monotonic() > deadline:
                tail = self.processes.tail(component)
                raise NodeError(f"{component} is not ready after {READY_SECONDS:g} s. The end of its log:\n{tail}")
            time.sleep(0.05)
