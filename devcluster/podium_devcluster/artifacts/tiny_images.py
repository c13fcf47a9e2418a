"""Images without a Dockerfile: pause, busybox and kube-scheduler, made of existing programs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.artifacts.debian import install_packages
from podium_devcluster.artifacts.oci import Entry, write_archive
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
SCHEDULER = f"localhost/kube-scheduler:v{versions.KUBERNETES}"
_PAUSE_SCRIPT = 'trap "exit 0" TERM INT; sleep 2147483647 & wait'


def archive_name(image: str) -> str:
    """Return the file name of an image's archive: `podium-dev.tar` for `localhost/podium:dev`."""
    return image.rpartition("/")[2].replace(":", "-") + ".tar"


def ensure(cache: Cache, progress: Progress) -> list[Path]:
    """Return the archives; make those that are missing or whose inputs have changed."""
    busybox = _busybox(progress)
    scheduler = cache.bin / "kube-scheduler"
    tools = _shell_entries(busybox)
    return [
        _make(cache, PAUSE, tools, ["/bin/sh", "-c", _PAUSE_SCRIPT], [busybox]),
        _make(cache, BUSYBOX, tools, ["/bin/sh"], [busybox]),
        _make(cache, SCHEDULER, [*_entries_of(scheduler)], ["/usr/local/bin/kube-scheduler"], [scheduler]),
    ]


def shell(progress: Progress) -> list[Entry]:
    """Return the entries of an image with a shell and its tools."""
    return _shell_entries(_busybox(progress))


def _make(cache: Cache, image: str, entries: Sequence[Entry], entrypoint: Sequence[str], inputs: list[Path]) -> Path:
    out = cache.images / archive_name(image)
    stamp = out.with_suffix(".inputs")
    wanted = hashlib.sha256(repr((image, entries, entrypoint, [_identity(file) for file in inputs])).encode())
    if not (out.exists() and stamp.exists() and stamp.read_text() == wanted.hexdigest()):
        write_archive(out, image, entries, entrypoint)
        stamp.write_text(wanted.hexdigest())
    return out


def _identity(file: Path) -> tuple[int, int]:
    """Return size and time of a program: cheaper than a hash, and only this package writes these programs."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _entries_of(scheduler: Path) -> Iterable[Entry]:
    """Return the entries of kube-scheduler: at both paths that charts use."""
    yield Entry("usr/local/bin/kube-scheduler", source=scheduler)
    yield Entry("usr/bin/kube-scheduler", target="/usr/local/bin/kube-scheduler")
    yield Entry("tmp", mode=0o1777)


def _shell_entries(busybox: Path) -> list[Entry]:
    applets = [name for name in run([str(busybox), "--list"], timeout=10).split() if name != "busybox"]
    links = [Entry(f"bin/{name}", target="busybox") for name in applets]
    return [Entry("bin/busybox", source=busybox), *links, Entry("tmp", mode=0o1777)]


def _busybox(progress: Progress) -> Path:
    """Return the path of a statically linked busybox: the image contains no libraries."""
    install_packages(["busybox-static"], progress, only_if=not _is_static_busybox())
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("busybox is missing; install the package busybox-static")
    return Path(program)


def _is_static_busybox() -> bool:
    program = shutil.which("busybox")
    # the first bytes of a dynamically linked program name its loader
    return program is not None and b"ld-linux" not in Path(program).read_bytes()[:4096]
