"""Fixtures for the tests of the SDK; makes the modules of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from trial_process import folder, fresh, mounted

__all__ = ["folder", "fresh", "mounted"]
