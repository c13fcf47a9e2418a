"""The command lines of qemu, and whether it can use KVM. A device file alone does not prove that KVM works."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.shell import CommandError, run
from podium_devcluster.vm import guest_files
from podium_devcluster.vm.root_image import RootImage

PROGRAM = "qemu-system-x86_64"
KVM, EMULATION = "kvm", "tcg,thread=multi,tb-size=1024"
TEST_BOOT_SECONDS = 15.0
_DEVICE = Path("/dev/kvm")
_SILENT = ("-nodefaults", "-no-user-config", "-display", "none")


@dataclass(frozen=True, slots=True)
class Hardware:
    """The size of a virtual machine and its accelerator."""

    accelerator: str = EMULATION
    cpus: int = 2
    memory: int = 3072
    """In megabytes."""

    @property
    def arguments(self) -> list[str]:
        """The arguments of qemu."""
        cpu = "host" if self.accelerator == KVM else "max"
        return [
            "-M", "q35,hpet=off,smbus=off", "-accel", self.accelerator, "-cpu", cpu,
            "-smp", str(self.cpus), "-m", str(self.memory),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Files:
    """The disks, sockets and the console's log of one virtual machine."""

    folder: Path
    console: Path

    @property
    def root(self) -> Path:
        """The root disk: the changes to the image."""
        return self.folder / "root.qcow2"

    @property
    def store(self) -> Path:
        """The disk of containerd's store."""
        return self.folder / "store.qcow2"

    @property
    def config(self) -> Path:
        """The disk with a tar file of the node's configuration."""
        return self.folder / "config.tar"

    @property
    def guest(self) -> Path:
        """The socket of the guest agent."""
        return self.folder / "guest.sock"


def command(name: str, image: RootImage, files: Files, hardware: Hardware, tap: str) -> list[str]:
    """Return the command line of a node. Pure."""
    line = (
        "console=ttyS0 root=/dev/vda systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 quiet loglevel=4 "
        f"mitigations=off net.ifnames=0 systemd.hostname={name}"
    )
    disks: list[str] = []
    for number, (file, options) in enumerate(
        (
            (files.root, "format=qcow2,cache=unsafe,aio=threads"),
            (files.store, "format=qcow2,cache=unsafe,aio=threads"),
            (files.config, "format=raw,readonly=on"),
        )
    ):
        disks += ["-drive", f"if=none,id=d{number},file={file},{options}"]
        disks += ["-device", f"virtio-blk-pci,drive=d{number}"]
    return [
        PROGRAM, "-name", name, *hardware.arguments, *_SILENT, "-serial", f"file:{files.console}",
        "-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", line, *disks,
        "-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no", "-device", "virtio-net-pci,netdev=n0,romfile=",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=ga,path={files.guest},server=on,wait=off",
        "-device", "virtserialport,chardev=ga,name=org.qemu.guest_agent.0",
        "-object", "rng-random,id=r0,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=r0",
    ]  # fmt: skip


def create_overlay(base: Path, disk: Path) -> None:
    """Make a disk that keeps only the changes to a raw image."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(disk)], timeout=30)


def kvm_works(image: RootImage) -> bool:
    """Return whether the guest's kernel starts under KVM and switches the machine off again."""
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return False
    try:
        return guest_files.TEST_BOOT_ENDED in run(boot_test(image), timeout=TEST_BOOT_SECONDS)
    except CommandError:
        return False


def boot_test(image: RootImage, accelerator: str = KVM) -> Sequence[str]:
    """Return the command line of a boot that ends in the initramfs. Pure."""
    hardware = Hardware(accelerator, cpus=1, memory=512)
    return [
        PROGRAM, *hardware.arguments, *_SILENT, "-serial", "stdio", "-no-reboot", "-kernel", str(image.kernel),
        "-initrd", str(image.initramfs), "-append", f"console=ttyS0 quiet {guest_files.TEST_BOOT}",
    ]  # fmt: skip
