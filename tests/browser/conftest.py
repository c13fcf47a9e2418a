"""Lets the tests of this folder import the browser, and the scenes of the dashboard and of local mode."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path += [str(HERE.parent / "unit" / folder) for folder in ("dashboard", "local")]
