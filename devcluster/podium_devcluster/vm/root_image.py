"""The disk and kernel of the virtual node: Debian with systemd and a kubelet, built once and named by their recipe."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks, versions
from podium_devcluster.artifacts.debian import bootstrap, install_packages
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run
from podium_devcluster.vm import guest_files

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "kmod", "linux-image-cloud-amd64", "qemu-guest-agent", "containerd", "runc",
    "crun", "criu", "conmon", "iproute2", "iptables", "nftables", "conntrack", "procps", "ca-certificates",
    "containernetworking-plugins", "mount", "util-linux", "busybox-static", "iputils-ping",
)  # fmt: skip
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "cpio": "cpio", "mkfs.ext4": "e2fsprogs"}
"""Programs of this machine and their packages."""
SIZE = "3G"
TYPICAL_SECONDS = 60.0
_PROGRAMS = ("kubelet", "kube-proxy")
_UNITS = "etc/systemd/system"


@dataclass(frozen=True, slots=True)
class RootImage:
    """A folder with the root disk, the kernel and the initramfs."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The root file system (ext4)."""
        return self.folder / "root.ext4"

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        """The initramfs: busybox and the one module that the kernel has not built in."""
        return self.folder / "initramfs.cpio"


def missing_packages() -> list[str]:
    """Return the packages of the programs that this machine lacks."""
    return [package for program, package in TOOLS.items() if shutil.which(program) is None]


def folder_name() -> str:
    """Return the folder's name: a hash of the recipe."""
    texts = (guest_files.UNITS, guest_files.SETTINGS, guest_files.MASKED, guest_files.FOLDERS, guest_files.INIT)
    recipe = (versions.NODE_SUITE, versions.KUBERNETES, PACKAGES, SIZE, texts)
    return f"{versions.NODE_SUITE}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]}"


def ensure(cache: Cache, progress: Progress) -> RootImage:
    """Return the image; build it if it is missing. A folder with its final name is complete."""
    install_packages(missing_packages(), progress)
    target = cache.machines / folder_name()
    with locks.held(cache.machines / ".lock", timeout=900, waiting=progress.say):
        if not target.is_dir():
            make = partial(_build, cache, target, progress)
            build_all([Piece("disk of the virtual node", TYPICAL_SECONDS, make)], cache, progress)
    return RootImage(target)


def ext4(folder: Path, image: Path, size: str) -> None:
    """Write a folder as a file system into a file; nothing is mounted."""
    image.unlink(missing_ok=True)
    options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    run(["mkfs.ext4", "-q", "-F", "-E", options, "-m", "0", "-d", str(folder), str(image), size], timeout=300)


def _build(cache: Cache, target: Path, progress: Progress) -> None:
    started = target.with_name(f".{os.getpid()}-{target.name}")
    root, archive = started / "root", started / "root.tar"
    try:
        root.mkdir(parents=True)
        log = cache.root / "log" / "vm.log"
        bootstrap(versions.NODE_SUITE, PACKAGES, archive, log, progress, "root file system (mmdebstrap)")
        run(["tar", "-C", str(root), "--exclude=./dev/*", "-xf", str(archive)], timeout=300)
        archive.unlink()
        _configure(root)
        for program in _PROGRAMS:
            shutil.copy2(cache.bin / program, root / "opt/k8s" / program)
        kernel = next((root / "usr/lib/modules").iterdir()).name
        shutil.copy2(root / f"boot/vmlinuz-{kernel}", started / "vmlinuz")
        for image in (root / "boot").glob("initrd*"):
            image.unlink()
        _initramfs(root, kernel, started)
        ext4(root, started / "root.ext4", SIZE)
        shutil.rmtree(root)
        started.rename(target)
    finally:
        shutil.rmtree(started, ignore_errors=True)


def _configure(root: Path) -> None:
    """Write the files of the guest, start its units and mask those that it does not need."""
    for folder in guest_files.FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    units = {f"{_UNITS}/{name}.service": text for name, text in guest_files.UNITS.items()}
    for name, text in (guest_files.SETTINGS | units).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    links = dict.fromkeys(guest_files.MASKED, "/dev/null")
    links |= {
        f"{guest_files.wanted_by(text)}.wants/{name}.service": f"../{name}.service"
        for name, text in guest_files.UNITS.items()
    }
    links["multi-user.target.wants/containerd.service"] = "/usr/lib/systemd/system/containerd.service"
    links["default.target"] = "/usr/lib/systemd/system/multi-user.target"
    for name, to in links.items():
        link = root / _UNITS / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(to)


def _initramfs(root: Path, kernel: str, out: Path) -> None:
    """Write an initramfs of 2 MB, which an emulated processor unpacks quickly."""
    folder = out / "initramfs"
    (folder / "bin").mkdir(parents=True)
    (folder / "m").mkdir()
    shutil.copy2(root / "usr/bin/busybox", folder / "bin/busybox")
    (module,) = (root / "usr/lib/modules" / kernel).rglob("virtio_blk.ko.xz")
    shutil.copy2(module, folder / "m/virtio_blk.ko.xz")
    run(["xz", "--decompress", str(folder / "m/virtio_blk.ko.xz")], timeout=60)
    (folder / "init").write_text(guest_files.INIT)
    (folder / "init").chmod(0o755)
    files = "\n".join(str(file.relative_to(folder)) for file in sorted(folder.rglob("*")))
    archive = ["cpio", "--create", "--format=newc", "--quiet", f"--file={out / 'initramfs.cpio'}"]
    run(archive, cwd=folder, stdin=f"{files}\n", timeout=60)
    shutil.rmtree(folder)
