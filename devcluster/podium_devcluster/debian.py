"""Debian's tools: packages of this machine that are missing, and root file systems by mmdebstrap."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from podium_devcluster import locks
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run
from podium_devcluster.streaming import run_logged

SOURCES = Path("/etc/apt")
APT_LOCK = Path("/run/podium-devcluster-apt.lock")  # two apt-get at once: the second is refused, it does not wait


class PackageError(RuntimeError):
    """A package is missing and cannot be installed from here."""


def mirror_from(text: str) -> str | None:
    """The first Debian archive named in apt's sources (both formats). Pure."""
    uris = re.findall(r"^URIs:\s*(\S+)", text, re.M)
    uris += re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)", text, re.M)
    return next((uri for uri in uris if re.search(r"/debian/?$", uri)), None)


def mirror() -> str:
    """$PODIUM_DEBIAN_MIRROR, or the archive that this machine's own apt uses."""
    configured = os.environ.get("PODIUM_DEBIAN_MIRROR", "")
    if configured:
        return configured
    files = sorted([*SOURCES.glob("sources.list.d/*.sources"), *SOURCES.glob("sources.list*")])
    texts = [file.read_text(errors="replace") for file in files if file.is_file()]
    found = mirror_from("\n".join(texts))
    if found is None:
        raise PackageError(
            "no Debian archive in /etc/apt/sources.list*: set PODIUM_DEBIAN_MIRROR to the address of one (…/debian)"
        )
    return found


def install_packages(packages: Sequence[str], progress: Progress, only_if: bool = True) -> None:
    """Installs as root with apt-get, and says so. A machine without apt is told what to install."""
    if not only_if or not packages:
        return
    names = " ".join(packages)
    if os.geteuid() or not shutil.which("apt-get"):
        raise PackageError(f"missing: {names}. Install these packages (here is no apt-get that root could run)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    log = Path("/var/log/podium-devcluster-apt.log")
    with locks.held(APT_LOCK, timeout=900, waiting=progress.say):
        for attempt in ("as listed", "after apt-get update"):
            with progress.step(f"apt-get install {names} ({attempt})") as step:
                try:
                    argv = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
                    run_logged([*argv, *packages], log=log, step=step, timeout=600, env=environment)
                    return
                except RuntimeError:
                    if attempt != "as listed":
                        raise
                    step.note("not found, updating the lists")
                    run(["apt-get", "update"], timeout=300, env=environment, check=False)


def download_package(package: str, folder: Path) -> Path:
    """The package's file, fetched into the empty `folder`; nothing is installed. Raises CommandError."""
    apt = ["apt-get", "-o", "Acquire::Retries=3"]
    with locks.held(APT_LOCK, timeout=900):
        try:
            run([*apt, "download", package], cwd=folder, timeout=300)
        except CommandError:  # a machine whose lists are missing or old
            run([*apt, "update"], timeout=300, check=False)
            run([*apt, "download", package], cwd=folder, timeout=300)
    (file,) = folder.glob("*.deb")
    return file


def bootstrap(suite: str, packages: Sequence[str], out: Path, log: Path, progress: Progress, title: str) -> None:
    """A minimal root file system as a tar file; written beside its place, then moved there.

    `trusted=yes`: an older machine does not have the keys of a newer release. This is test equipment, fed from the
    mirror that the machine itself trusts; the option is not used for anything that Podium ships.
    """
    install_packages(["mmdebstrap"], progress, only_if=shutil.which("mmdebstrap") is None)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{os.getpid()}-{out.name}")
    argv = [
        "mmdebstrap", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"',
        "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--include={','.join(packages)}", suite, str(temporary), f"deb [trusted=yes] {mirror()} {suite} main",
    ]  # fmt: skip
    try:
        with progress.step(title) as step:
            run_logged(argv, log=log, step=step, timeout=900)
            step.note(f"{temporary.stat().st_size >> 20} MB")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
