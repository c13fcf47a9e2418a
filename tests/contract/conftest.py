"""Make the fixtures of the shared GPU node available to the contract tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuda_node import cuda_machine, cuda_node, driver

__all__ = ["cuda_machine", "cuda_node", "driver"]
