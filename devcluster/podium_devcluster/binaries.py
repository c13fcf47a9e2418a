"""The programs of a cluster, each looked for in this order: $KUBEBUILDER_ASSETS, the cache, the official release (given
up fast where there is no internet), a build from Go modules. All end up in the cache's `bin`, which nodes see too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import download, gobuild, locks, versions
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    version: str
    version_arguments: tuple[str, ...] = ("--version",)
    shows: str = ""
    """What a right one prints (a pattern); default: its version."""

    @property
    def pattern(self) -> str:
        return self.shows or re.escape(self.version) + r"\b"


def _kubernetes(name: str, *arguments: str) -> Program:
    return Program(name, versions.KUBERNETES, arguments or ("--version",))


ETCD = Program("etcd", versions.ETCD)
APISERVER = _kubernetes("kube-apiserver")
KUBECTL = _kubernetes("kubectl", "version", "--client")
SCHEDULER = _kubernetes("kube-scheduler")
CONTROL_PLANE = (
    ETCD,
    APISERVER,
    _kubernetes("kube-controller-manager"),
    SCHEDULER,
    KUBECTL,
)
NODE = (_kubernetes("kubelet"), _kubernetes("kube-proxy"))
# built by `go install` helm knows its minor version only
HELM = Program("helm", versions.HELM, ("version", "--short"), re.escape("v" + versions.HELM.rpartition(".")[0]))
KIND = Program("kind", versions.KIND)


def needed(nodes: int) -> tuple[Program, ...]:
    return (*CONTROL_PLANE, *(NODE if nodes else ()))


def missing(cache: Cache, programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Those that the cache does not hold in the right version."""
    stamps = _Stamps(cache)
    return tuple(program for program in programs if not stamps.holds(program))


def ensure(cache: Cache, programs: tuple[Program, ...], progress: Progress) -> None:
    if not missing(cache, programs):
        return
    with locks.held(cache.root / "bin.lock", timeout=3600, waiting=progress.say):
        for program in missing(cache, programs):  # another process may just have made them
            _obtain(cache, program, progress)


def _obtain(cache: Cache, program: Program, progress: Progress) -> None:
    cache.bin.mkdir(parents=True, exist_ok=True)
    stamps, target = _Stamps(cache), cache.bin / program.name
    if _is_right(target, program):  # put there by hand
        stamps.write(program)
        return
    temporary = cache.bin / f".{os.getpid()}-{program.name}"
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    try:
        if assets and _is_right(Path(assets) / program.name, program):
            shutil.copy2(Path(assets) / program.name, temporary)
        elif not download.fetch(program.name, program.version, temporary, progress):
            gobuild.build(program.name, temporary, cache, progress)
        temporary.chmod(0o755)
        if not _is_right(temporary, program):
            raise RuntimeError(f"the {program.name} just obtained is not version {program.version}")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    stamps.write(program)


def _is_right(file: Path, program: Program) -> bool:
    if not file.is_file():
        return False
    try:
        return re.search(program.pattern, run([str(file), *program.version_arguments], timeout=30)) is not None
    except (CommandError, OSError):
        return False


class _Stamps:
    """Remembers which file was found to be right: starting eight programs to ask costs a second."""

    def __init__(self, cache: Cache) -> None:
        self._file, self._bin = cache.bin / ".versions.json", cache.bin

    def _read(self) -> dict[str, list[object]]:
        try:
            read: dict[str, list[object]] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return read

    def _now(self, program: Program) -> list[object] | None:
        try:
            status = (self._bin / program.name).stat()
        except OSError:
            return None
        return [program.version, status.st_size, status.st_mtime_ns]

    def holds(self, program: Program) -> bool:
        now = self._now(program)
        return now is not None and self._read().get(program.name) == now

    def write(self, program: Program) -> None:
        now = self._now(program)
        if now is not None:
            temporary = self._file.with_name(f".versions-{os.getpid()}")
            temporary.write_text(json.dumps({**self._read(), program.name: now}))
            temporary.replace(self._file)
