"""Podium for Python: helpers for training scripts, and searches (`tune`, `Client`, `uniform`, ...).

The helpers need only the standard library. The first use of a search's name loads `podium_api`, which needs more.
"""

from __future__ import annotations

import importlib
from typing import Any

from podium.trial import Checkpoint, load, mark, params, report, save, should_save, stopping

__version__ = "0.1.0"
__all__ = ["Checkpoint", "load", "mark", "params", "report", "save", "should_save", "stopping", "trial"]
_SEARCH = (
    "GPU_SECONDS",
    "Client",
    "Search",
    "SearchError",
    "SearchWarning",
    "Trial",
    "choice",
    "loguniform",
    "randint",
    "tune",
    "uniform",
)


def __getattr__(name: str) -> Any:
    if name not in _SEARCH:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module("podium_api"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"podium.{name} needs {error.name}: pip install 'kube-podium[local]' (or 'kube-podium[cluster,cli]')"
        ) from error


def __dir__() -> list[str]:
    return sorted([*__all__, *_SEARCH])
