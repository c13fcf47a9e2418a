"""The programs of a cluster, each looked for in this order: $KUBEBUILDER_ASSETS, the cache, the official release (given
up fast where there is no internet), a build from Go modules. All end up in the cache's `bin`, which nodes see too;
those of another version of Kubernetes than the cluster's in a folder of it.
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
    folder: str = ""
    """Of the cache's `bin`; the cluster's own programs are in none."""

    @property
    def pattern(self) -> str:
        return self.shows or re.escape(self.version) + r"\b"

    def path(self, cache: Cache) -> Path:
        return cache.bin / self.folder / self.name


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


def scheduler(version: str) -> Program:
    """kube-scheduler of another version than the cluster's other programs; none is given: the cluster's own."""
    if version in ("", versions.KUBERNETES):
        return SCHEDULER
    return Program("kube-scheduler", version, folder=version)


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
    stamps, target = _Stamps(cache), program.path(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_right(target, program):  # put there by hand
        stamps.write(program)
        return
    temporary = target.parent / f".{os.getpid()}-{program.name}"
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    try:
        if assets and _is_right(Path(assets) / program.name, program):
            shutil.copy2(Path(assets) / program.name, temporary)
        elif not download.fetch(program.name, program.version, temporary, progress):
            gobuild.build(program.name, program.version, temporary, cache, progress)
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
        self._cache, self._file = cache, cache.bin / ".versions.json"

    def _read(self) -> dict[str, list[object]]:
        try:
            read: dict[str, list[object]] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return read

    def _now(self, program: Program) -> list[object] | None:
        try:
            status = program.path(self._cache).stat()
        except OSError:
            return None
        return [program.version, status.st_size, status.st_mtime_ns]

    def holds(self, program: Program) -> bool:
        now = self._now(program)
        return now is not None and self._read().get(_key(program)) == now

    def write(self, program: Program) -> None:
        now = self._now(program)
        if now is not None:
            temporary = self._file.with_name(f".versions-{os.getpid()}")
            temporary.write_text(json.dumps({**self._read(), _key(program): now}))
            temporary.replace(self._file)


def _key(program: Program) -> str:
    return str(Path(program.folder) / program.name)
