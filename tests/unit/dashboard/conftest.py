"""Lets the tests of this folder import their helpers, and those of the CLI and of local mode."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "cli"))
sys.path.append(str(HERE.parent / "local"))
