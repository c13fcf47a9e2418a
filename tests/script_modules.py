"""Loads a Python file of this repository that is in no package (examples, tables and parts of tests).

Every test can import this module: `tests/conftest.py` puts this folder on the path. Tests that receive a module from a
fixture use `load_script`. Tables that parametrise tests, and parts that keep state, are loaded with `load`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(path: Path, *, again: bool = False) -> ModuleType:
    """Return the module of this file. It is executed once in a process, or at each call if `again` is set."""
    if path.stem in sys.modules and not again:
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look up their module there, and scripts import each other
    spec.loader.exec_module(module)
    return module
