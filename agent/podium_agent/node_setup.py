"""What the agent sets up on its node before it serves it: the lock of the node, and the folder of the trials.

The lock allows one agent a node: a second one waits until the first has ended, and reports why. A second agent appears
during a rolling update, for example. Two agents would each serve half of the gates and would freeze trials without
knowing of each other. The kernel releases the lock when its process ends. The lock file is not in the folder that is
mounted into trials, because a trial could take the lock there.

Every pod with a slot sees the folder read-only at /podium: the gate helper and the Python helper. The agent replaces
each file atomically, because a trial may be reading it. A file that is right already is not written, so that an agent
starts on a full disk too. The agent's socket is there too (`podium_agent.schedule.gate`).
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
HELPER = "podium-gate"
MODULES = ("trial", "push")
INIT = "from podium.trial import Checkpoint, load, mark, params, report, save, should_save, stopping\n"


class NodeLock:
    """The lock of this node; `trouble` explains why this agent does not act yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trouble: str | None = "AgentLockHeld: the lock of this node was not requested yet"

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait without a limit for the lock, and hold it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while not self._take(file):  # noqa: ASYNC110 - another process releases it
                await asyncio.sleep(LOOK_SECONDS)
            with suppress(OSError):  # a full disk: the pid is only for the message of another agent
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
            self.trouble = None
            yield
        finally:
            os.close(file)

    def _take(self, file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 32, 0).decode(errors="replace") or "unknown"
            trouble = f"AgentLockHeld: the agent with pid {owner} holds {self._path}; this one waits until it has ended"
            if trouble != self.trouble:
                log.warning("%s", trouble)
            self.trouble = trouble
            return False
        return True


def fill_trial_folder(folder: Path, helper: Path) -> None:
    """Install both helpers; raise FileNotFoundError if the image does not contain the gate helper."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if not helper.exists():
        raise FileNotFoundError(
            f"PODIUM_HELPER: {helper} does not exist; the image contains it in /usr/local/lib/podium"
        )
    _replace(helper.read_bytes(), folder / HELPER, 0o755)
    _install_library(folder / "python")


def _install_library(folder: Path) -> None:
    """Install `podium.trial` and what it imports; both need only the standard library."""
    sources = {name: _source(f"podium.{name}") for name in MODULES}
    package = folder / "podium"
    package.mkdir(parents=True, exist_ok=True)
    for path in (folder, package):
        path.chmod(0o755)
    _replace(INIT.encode(), package / "__init__.py", 0o644)
    for name, content in sources.items():
        _replace(content, package / f"{name}.py", 0o644)


def _source(module: str) -> bytes:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{module} is not installed with the agent; install the complete wheel kube-podium")
    return Path(spec.origin).read_bytes()


def _replace(content: bytes, target: Path, mode: int) -> None:
    if target.is_file() and target.read_bytes() == content and target.stat().st_mode & 0o777 == mode:
        return
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    os.replace(fresh, target)
