"""Debian packages for this machine, programs unpacked from them, and root file systems made by mmdebstrap."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from podium_devcluster import locks
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress, Step
from podium_devcluster.shell import CommandError, run, run_logged

PROMETHEUS, PROMTOOL = "prometheus", "promtool"
SOURCES = Path("/etc/apt")
APT_LOCK = Path("/run/podium-devcluster-apt.lock")  # a second apt-get fails at once instead of waiting for the first


class PackageError(RuntimeError):
    """A package is missing and cannot be installed."""


def mirror_from(text: str) -> str | None:
    """Return the first Debian archive in apt's sources (both formats), or None. Pure."""
    uris = re.findall(r"^URIs:\s*(\S+)", text, re.M)
    uris += re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)", text, re.M)
    return next((uri for uri in uris if re.search(r"/debian/?$", uri)), None)


def mirror() -> str:
    """Return $PODIUM_DEBIAN_MIRROR, or the archive that this machine's own apt uses."""
    configured = os.environ.get("PODIUM_DEBIAN_MIRROR", "")
    if configured:
        return configured
    files = sorted([*SOURCES.glob("sources.list.d/*.sources"), *SOURCES.glob("sources.list*")])
    texts = [file.read_text(errors="replace") for file in files if file.is_file()]
    archive = mirror_from("\n".join(texts))
    if archive is None:
        raise PackageError(
            "no Debian archive in /etc/apt/sources.list*: set PODIUM_DEBIAN_MIRROR to the address of one (…/debian)"
        )
    return archive


def install_packages(packages: Sequence[str], progress: Progress, only_if: bool = True) -> None:
    """Install packages on this machine with apt-get, as root, and report it.

    Raises PackageError with the packages' names where apt-get is missing or the user is not root.
    """
    if not only_if or not packages:
        return
    names = " ".join(packages)
    if os.geteuid() or not shutil.which("apt-get"):
        raise PackageError(f"missing packages: {names}. Install them (root's apt-get is not available here)")
    progress.say(f"Installing on this machine: {names} (apt-get)")
    with locks.held(APT_LOCK, timeout=900, waiting=progress.say):
        with progress.step(f"apt-get install {names}") as step:
            try:
                _apt_install(packages, step)
                return
            except CommandError:
                step.skip("failed with the present package lists; they are updated")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update"], timeout=300, env=environment, check=False)
        with progress.step(f"apt-get install {names} (after apt-get update)") as step:
            _apt_install(packages, step)


def _apt_install(packages: Sequence[str], step: Step) -> None:
    argv = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_logged(argv, log=Path("/var/log/podium-devcluster-apt.log"), step=step, timeout=600, env=environment)


def download_package(package: str, folder: Path) -> Path:
    """Download a package into the empty `folder` and return its file; nothing is installed.

    Raises CommandError.
    """
    apt = ["apt-get", "-o", "Acquire::Retries=3"]
    with locks.held(APT_LOCK, timeout=900):
        try:
            run([*apt, "download", package], cwd=folder, timeout=300)
        except CommandError:  # the machine's package lists are missing or old
            run([*apt, "update"], timeout=300, check=False)
            run([*apt, "download", package], cwd=folder, timeout=300)
    (file,) = folder.glob("*.deb")
    return file


def unpack_programs(cache: Cache, package: str, programs: Sequence[str]) -> tuple[Path, ...]:
    """Return the programs in the cache's `bin`. Raises CommandError.

    The package is downloaded if one of them is missing. It is not installed, which would start its services.
    """
    wanted = tuple(cache.bin / name for name in programs)
    cache.bin.mkdir(parents=True, exist_ok=True)
    with locks.held(cache.root / "bin.lock", timeout=900):
        if all(program.exists() for program in wanted):
            return wanted
        with TemporaryDirectory(prefix="podium-package-") as folder:
            file = download_package(package, Path(folder))
            run(["dpkg", "-x", str(file), f"{folder}/root"], timeout=120)
            for program in wanted:
                temporary = program.with_suffix(".tmp")
                temporary.write_bytes((Path(folder) / "root/usr/bin" / program.name).read_bytes())
                temporary.chmod(0o755)
                temporary.replace(program)
    return wanted


def prometheus(cache: Cache) -> tuple[Path, Path]:
    """Return Debian's prometheus and promtool (19 MB to download). Raises CommandError."""
    server, tool = unpack_programs(cache, PROMETHEUS, (PROMETHEUS, PROMTOOL))
    return server, tool


def bootstrap(suite: str, packages: Sequence[str], out: Path, log: Path, progress: Progress, title: str) -> None:
    """Write a minimal root file system as a tar file; it gets its final name when it is complete.

    `trusted=yes`: an older machine lacks the keys of a newer release. This is test equipment, and its packages come
    from the mirror that the machine itself trusts. Nothing that Podium ships uses the option.
    """
    install_packages(["mmdebstrap"], progress, only_if=shutil.which("mmdebstrap") is None)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{os.getpid()}-{out.name}")
    argv = [
        "mmdebstrap", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"',
        "--dpkgopt=force-unsafe-io",  # a build that is interrupted starts again
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
