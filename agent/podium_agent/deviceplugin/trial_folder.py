"""The folder that every pod with a slot sees read-only at /podium: the gate helper and the Python helper.

The agent fills it when it starts. It replaces each file atomically, because a trial may be reading it. The agent's
socket is there too (`podium_agent.schedule.gate`).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

HELPER = "podium-gate"
MODULES = ("trial", "push")


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
    _replace(b"", package / "__init__.py", 0o644)
    for name, content in sources.items():
        _replace(content, package / f"{name}.py", 0o644)


def _source(module: str) -> bytes:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{module} is not installed with the agent; install the complete wheel kube-podium")
    return Path(spec.origin).read_bytes()


def _replace(content: bytes, target: Path, mode: int) -> None:
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    os.replace(fresh, target)
