"""A node in a virtual machine that joins a running cluster: start, programs in it, end.

qemu is a process of the cluster. So `podium-devcluster down` ends it, its network and its disks, too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import controlplane
from podium_devcluster.runtime.apiserver import ApiClient
from podium_devcluster.runtime.network import NodeAddress, netns_path
from podium_devcluster.shell import CommandError
from podium_devcluster.startup import ENVIRONMENT, ClusterError
from podium_devcluster.vm import guest, join, qemu, root_image

NAME = "vm-1"
NUMBER = 41  # its addresses are 10.88.0.51 and 10.89.41.0/24
TAP = "vm1"
STORE_SIZE = "6G"
ANSWER_SECONDS = 100.0  # measured under emulation: 9 to 33
READY_SECONDS = 250.0  # measured under emulation: 22 to 83
_LONGEST_SOCKET = 100  # the kernel accepts 107 bytes


class Machine:
    """The virtual node of a cluster."""

    def __init__(self, cluster: Cluster, name: str = NAME) -> None:
        self.cluster, self.name = cluster, name
        self.address = NodeAddress(name, NUMBER)
        self.component = f"qemu@{name}"
        log = cluster.paths.log / name
        self.files = qemu.Files(cluster.paths.machine(name), log / "console.log")

    def start(self) -> str:
        """Start the machine, wait until its Node is Ready, and return the accelerator.

        It has the images of the first node, because a guest would unpack them slowly.
        """
        if self.cluster.processes.alive(self.component):
            raise ClusterError(f"{self.name} runs already; run `podium-devcluster vm stop` first")
        if len(str(self.files.guest)) > _LONGEST_SOCKET:
            cure = f"set PODIUM_CACHE to a folder with a path of at most {_LONGEST_SOCKET - 40} characters"
            raise ClusterError(f"{self.files.guest}: too long for a socket; {cure}")
        image = root_image.ensure(self.cluster.cache, self.cluster.progress)
        accelerator = qemu.KVM if qemu.kvm_works(image) else qemu.EMULATION
        argv = qemu.command(self.name, image, self.files, qemu.Hardware(accelerator), TAP)
        inside = controlplane.inside(netns_path(self.cluster.name, "cp"), argv)
        try:
            with self.cluster.progress.step(f"disks of {self.name}"):
                self._make_disks(image)
            join.connect(self.cluster.name, self.address, self.cluster.spec.addresses, TAP)
            with self.cluster.progress.step(f"virtual node {self.name} ({accelerator.partition(',')[0]})"):
                self.cluster.processes.start(self.component, inside, ENVIRONMENT)
                self._until(self.answers, f"{self.name} does not answer", ANSWER_SECONDS)
                self._until(self._ready, f"{self.name} is not Ready", READY_SECONDS)
        except BaseException:
            self.stop()
            raise
        return accelerator

    def stop(self) -> None:
        """End the machine at once, without a shutdown; remove its network, disks and Node."""
        if self.component in self.cluster.processes.records():
            self.cluster.processes.kill(self.component)
        join.disconnect(self.cluster.name, self.address, self.cluster.spec.addresses, TAP)
        self.cluster.kubectl("delete", "node", self.name, "--ignore-not-found")
        shutil.rmtree(self.files.folder, ignore_errors=True)

    def execute(self, argv: Sequence[str], timeout: float = 120.0) -> str:
        """Run a program in the guest and return its standard output. Raises CommandError."""
        done = guest.execute(self.files.guest, argv, timeout)
        if done.code:
            raise CommandError(argv, f"failed with exit status {done.code} in {self.name}", done.stderr or done.stdout)
        return done.stdout

    def shell(self, script: str, timeout: float = 120.0) -> str:
        """Run a script of bash in the guest and return its standard output. Raises CommandError."""
        return self.execute(["/bin/bash", "-c", script], timeout)

    def answers(self) -> bool:
        """Return whether the guest agent answers. Raises ClusterError if qemu has ended."""
        self._check_running()
        return guest.answers(self.files.guest)

    def _ready(self) -> bool:
        self._check_running()
        return self.name in ApiClient(self.cluster.spec.port, self.cluster.paths.pki).ready_nodes()

    def _check_running(self) -> None:
        if not self.cluster.processes.alive(self.component):
            tail = self.cluster.processes.tail(self.component)
            raise ClusterError(f"{self.component} ended. The end of its log:\n{tail}")

    def _until(self, condition: Callable[[], bool], problem: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"{problem} after {seconds:g} s; see {self.files.console}\n{self._kubelet_log()}")
            time.sleep(0.3)

    def _kubelet_log(self) -> str:
        try:
            return self.execute(["/usr/bin/tail", "-n", "20", "/var/log/kubelet.log"], 10)
        except (OSError, CommandError, guest.GuestError) as error:
            return f"(no log of its kubelet: {error})"

    def _make_disks(self, image: root_image.RootImage) -> None:
        self.files.console.parent.mkdir(parents=True, exist_ok=True)
        self.files.folder.mkdir(parents=True, exist_ok=True)
        store = self.files.folder / "store.ext4"
        self._make_store(store)
        qemu.create_overlay(image.disk, self.files.root)
        qemu.create_overlay(store, self.files.store)
        contents = join.files(self.address, self.cluster.name, self.cluster.spec.addresses)
        join.write_disk(contents | join.certificates(self.cluster.paths, self.address), self.files.config)

    def _make_store(self, disk: Path) -> None:
        """Make a disk of the first node's containerd folder. Its containerd is stopped, so that nothing changes."""
        first = self.cluster.nodes[0]
        self.cluster.kill("containerd", first.name)
        try:
            root_image.ext4(first.state / "containerd", disk, STORE_SIZE)
        finally:
            self.cluster.start("containerd", first.name)
