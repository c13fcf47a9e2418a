"""Files of a running container, opened so that the trial cannot lead the privileged agent astray.

The kernel resolves the whole path inside the container's root (openat2 with RESOLVE_IN_ROOT), so that a link, also one
that is changed meanwhile, ends at a file that the trial sees under that path. Only regular files of real file systems
are opened, and only those that the trial's own process may read: the agent must not read for it what it cannot.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from podium_agent.observe.cgroup_paths import peer_of
from podium_agent.observe.cgroups import Container, status_of
from podium_core.sources.files import REOPEN, RefusedFileError, names_in

_OPENAT2 = 437  # the same number on all architectures
_HOW = struct.Struct("=QQQ")
_NO_MAGIC_LINKS, _BENEATH, _IN_ROOT = 0x02, 0x08, 0x10
_KERNEL_FILE_SYSTEMS = {  # magic numbers of statfs
    *(0x9FA0, 0x62656572, 0x64626720, 0x74726163),  # proc, sysfs, debugfs, tracefs
    *(0x27E0EB, 0x63677270, 0xCAFE4A11),  # cgroup, cgroup2, bpf
    *(0x6E736673, 0x73636673, 0x62656570),  # nsfs, securityfs, configfs
}
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Root:
    """Root of a container as a descriptor, and what its first process may read."""

    descriptor: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def open(cls, proc: Path, container: Container) -> Root:
        """Open the root. Raises OSError if the container has ended."""
        here = os.open(proc / str(container.pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            peer = peer_of(proc, container.pid)
            if peer is None or peer.container != container.id:
                raise ProcessLookupError(errno.ESRCH, "the container's first process has ended", str(container.pid))
            status = status_of(proc, container.pid)
            uid = int(status["Uid"].split()[1])
            groups = frozenset(map(int, [status["Gid"].split()[1], *status.get("Groups", "").split()]))
        except (KeyError, IndexError, ValueError) as error:
            os.close(here)
            raise OSError(errno.EIO, f"/proc/{container.pid}/status cannot be read") from error
        except BaseException:
            os.close(here)
            raise
        return cls(here, uid, groups)

    def folder(self, path: str) -> int:
        """Return a descriptor of a folder of the container; raises OSError."""
        return _openat2(self.descriptor, path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, _IN_ROOT)

    def file(self, path: str) -> int:
        """Return a descriptor of a file of the container for reading; raises OSError or RefusedFileError."""
        return self._readable(_openat2(self.descriptor, path, os.O_PATH | os.O_CLOEXEC, _IN_ROOT), path)

    def file_in(self, folder: int, name: str) -> int:
        """Return the same for a file below an open folder, also if the container has ended."""
        return self._readable(_openat2(folder, name, os.O_PATH | os.O_CLOEXEC, _BENEATH), name)

    def names(self, folder: int, most: int) -> list[str]:
        """Return at most `most` names in a folder that the trial may list; raises OSError or RefusedFileError."""
        facts = os.fstat(folder)
        if not self._may(facts, stat.S_IROTH):
            raise RefusedFileError("the trial's process may not list the folder")
        return names_in(folder, most)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def _readable(self, name: int, path: str) -> int:
        try:
            facts = os.fstat(name)
            if not stat.S_ISREG(facts.st_mode):
                raise RefusedFileError(f"{path} is not a regular file")
            if not self._may(facts, stat.S_IROTH):
                raise RefusedFileError(f"the trial's process may not read {path}")
            if _file_system(name) in _KERNEL_FILE_SYSTEMS:
                raise RefusedFileError(f"{path} is a file of the kernel")
            return os.open(f"/proc/self/fd/{name}", REOPEN)
        finally:
            os.close(name)

    def _may(self, facts: os.stat_result, bit: int) -> bool:
        """Return whether the permission bits allow it; `bit` is that of others."""
        if self.uid in (0, facts.st_uid):
            return self.uid == 0 or bool(facts.st_mode & bit << 6)
        return bool(facts.st_mode & (bit << 3 if facts.st_gid in self.groups else bit))


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    how = _HOW.pack(flags, 0, resolve | _NO_MAGIC_LINKS)
    number: int = _libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how))
    if number < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return number


def _file_system(descriptor: int) -> int:
    """Return the magic number of the file system."""
    buffer = ctypes.create_string_buffer(256)
    if _libc.fstatfs(descriptor, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    (magic,) = struct.unpack_from("@l", buffer.raw)
    return int(magic) & 0xFFFFFFFF
