"""The table of searchers, by `search.algorithm`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_operator.searchers.base import Searcher
from podium_operator.searchers.grid import GridSearcher
from podium_operator.searchers.random import RandomSearcher
from podium_operator.searchers.tpe import TpeSearcher

SEARCHERS: Mapping[str, Searcher] = MappingProxyType(
    {"random": RandomSearcher(), "grid": GridSearcher(), "tpe": TpeSearcher()}
)
