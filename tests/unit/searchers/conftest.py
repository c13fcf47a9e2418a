"""Lets the tests of this folder import `operator_builders` (tests have no packages)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))
