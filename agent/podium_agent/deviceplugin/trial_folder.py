"""The folder that every pod with a slot sees read-only at /podium: the gate helper and the Python helper.

The agent fills it when it starts. It replaces each file atomically, because a trial may be reading it. A file that is
right already is not written, so that an agent starts on a full disk too. The agent's
socket is there too (`podium_agent.schedule.gate`).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

HELPER = "podium-gate"
MODULES = ("trial", "push")
INIT = "from podium.trial import Checkpoint, load, mark, params, report, save, should_save, stopping\n"


def install(folder: Path, helper: Path) -> None:
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
