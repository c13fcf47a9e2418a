"""The table of searchers, by `search.algorithm`, and the packages that some of them need."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from podium_searchers.auto import AutoSearcher
from podium_searchers.base import Searcher
from podium_searchers.cmaes import CmaesSearcher
from podium_searchers.gp import GpSearcher
from podium_searchers.grid import GridSearcher
from podium_searchers.qmc import QmcSearcher
from podium_searchers.random import RandomSearcher
from podium_searchers.tpe import TpeSearcher

SEARCHERS: Mapping[str, Searcher] = MappingProxyType(
    {
        "auto": AutoSearcher(),
        "cmaes": CmaesSearcher(),
        "gp": GpSearcher(),
        "grid": GridSearcher(),
        "qmc": QmcSearcher(),
        "random": RandomSearcher(),
        "tpe": TpeSearcher(),
    }
)
_PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"auto": ("cmaes", "scipy"), "cmaes": ("cmaes",), "gp": ("torch", "scipy"), "qmc": ("scipy",)}
)


def missing_packages(algorithm: str) -> tuple[str, ...]:
    """Return the packages that the algorithm needs and that are not installed here."""
    return tuple(name for name in _PACKAGES.get(algorithm, ()) if find_spec(name) is None)
