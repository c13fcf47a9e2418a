"""Fixtures with a GPU node for the example's tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cuda_node import cuda_machine, cuda_node, driver

__all__ = ["cuda_machine", "cuda_node", "driver"]
