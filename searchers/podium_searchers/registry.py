"""The table of searchers, by `search.algorithm`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_searchers.base import Searcher
from podium_searchers.grid import GridSearcher
from podium_searchers.random import RandomSearcher
from podium_searchers.tpe import TpeSearcher

SEARCHERS: Mapping[str, Searcher] = MappingProxyType(
    {"random": RandomSearcher(), "grid": GridSearcher(), "tpe": TpeSearcher()}
)
