"""Loads a Python file of this repository that is in no package (benchmarks, examples, tables and parts of tests).

Importable by every test: `tests/conftest.py` puts this folder on the path. Tests that are given the module by a fixture
use `load_script`; a table that parametrises tests, or a part that keeps state, is loaded with `load`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(path: Path, *, again: bool = False) -> ModuleType:
    """The module of this file; executed once in a process, or (`again`) anew."""
    if path.stem in sys.modules and not again:
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up there, and scripts one another
    spec.loader.exec_module(module)
    return module
