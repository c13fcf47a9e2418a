"""The programs of a cluster, from the cache, an official release or a build from Go modules.

Sources are tried in this order: the cache, $KUBEBUILDER_ASSETS, an official release, a build from Go modules. All
programs are stored in the cache's `bin`, which nodes mount. Programs of another version of Kubernetes than the
cluster's are in a subfolder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks, versions
from podium_devcluster.artifacts import download, gobuild
from podium_devcluster.artifacts.preparation import Piece
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run


@dataclass(frozen=True, slots=True)
class Program:
    """A program in one version, and how to check which version a file is."""

    name: str
    version: str
    version_arguments: tuple[str, ...] = ("--version",)
    shows: str = ""
    """Regular expression for the output of the right version; "" stands for the version itself."""
    folder: str = ""
    """Subfolder of the cache's `bin`; the cluster's own programs are in none."""

    @property
    def pattern(self) -> str:
        """Regular expression for the output of the right version."""
        return self.shows or re.escape(self.version) + r"\b"

    def path(self, cache: Cache) -> Path:
        """Return the path of the program in the cache."""
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
# a helm built by `go install` knows its minor version only
HELM = Program("helm", versions.HELM, ("version", "--short"), re.escape("v" + versions.HELM.rpartition(".")[0]))
KIND = Program("kind", versions.KIND)


def scheduler(version: str) -> Program:
    """Return kube-scheduler in a version of its own; "" stands for the cluster's version."""
    if version in ("", versions.KUBERNETES):
        return SCHEDULER
    return Program("kube-scheduler", version, folder=version)


def needed(nodes: int) -> tuple[Program, ...]:
    """Return the programs of a cluster with `nodes` nodes."""
    return (*CONTROL_PLANE, *(NODE if nodes else ()))


STANDARD = (HELM, *needed(nodes=2))
"""The programs of the demo and the tests. Once all are in the cache, what builds need is removed from it."""


def missing(cache: Cache, programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Return the programs that the cache does not hold in the right version."""
    stamps = _Stamps(cache)
    return tuple(program for program in programs if not stamps.holds(program))


def ensure(cache: Cache, programs: tuple[Program, ...], progress: Progress) -> None:
    """Bring the missing programs into the cache. One process at a time does this."""
    if not missing(cache, programs):
        return
    with locks.held(cache.root / "bin.lock", timeout=3600, waiting=progress.say):
        for program in missing(cache, programs):  # another process may have brought them meanwhile
            _obtain(cache, program, progress)
        if not missing(cache, STANDARD):
            gobuild.remove_inputs(cache)


def pieces(cache: Cache, programs: tuple[Program, ...], progress: Progress) -> list[Piece]:
    """Return the missing programs as pieces to be built (or downloaded) one by one."""
    return [
        Piece(
            f"{program.name} {program.version}",
            gobuild.TYPICAL_SECONDS.get(program.name, 60.0),
            partial(ensure, cache, (program,), progress),
        )
        for program in missing(cache, programs)
    ]


def _obtain(cache: Cache, program: Program, progress: Progress) -> None:
    stamps, target = _Stamps(cache), program.path(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_right(target, program):  # a user put it there
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
            raise RuntimeError(
                f"the {program.name} just obtained is not version {program.version} (logs: {cache.root / 'log'})"
            )
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
    """The files whose version was checked already: starting eight programs takes a second."""

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
        """Return whether the cache holds the program in its version."""
        now = self._now(program)
        return now is not None and self._read().get(_key(program)) == now

    def write(self, program: Program) -> None:
        """Record the present file as the right version."""
        now = self._now(program)
        if now is not None:
            temporary = self._file.with_name(f".versions-{os.getpid()}")
            temporary.write_text(json.dumps({**self._read(), _key(program): now}))
            temporary.replace(self._file)


def _key(program: Program) -> str:
    return str(Path(program.folder) / program.name)
