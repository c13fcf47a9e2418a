"""The folder that every trial with a share of a GPU sees read-only at /podium: the gate's helper, the Python helper.

Filled by the agent when it starts, each file in one step, since a trial may be reading it now. The agent's socket is
there too (gate.py).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

HELPER = "podium-gate"
LIBRARY = "podium.trial"


def install(share: Path, helper: Path) -> None:
    """Raises FileNotFoundError where the image lacks the helper."""
    share.mkdir(parents=True, exist_ok=True)
    share.chmod(0o755)
    if not helper.exists():
        raise FileNotFoundError(f"PODIUM_HELPER: {helper} is not there; the image holds it under /usr/local/lib/podium")
    _place(helper.read_bytes(), share / HELPER, 0o755)
    _install_library(share / "python")


def _install_library(folder: Path) -> None:
    """`podium.trial` alone, in a package that holds nothing else: it needs only the standard library."""
    spec = importlib.util.find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{LIBRARY} is not installed beside the agent; install the whole wheel kube-podium")
    package = folder / "podium"
    package.mkdir(parents=True, exist_ok=True)
    for place in (folder, package):
        place.chmod(0o755)
    _place(b"", package / "__init__.py", 0o644)
    _place(Path(spec.origin).read_bytes(), package / "trial.py", 0o644)


def _place(content: bytes, target: Path, mode: int) -> None:
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    os.replace(fresh, target)
