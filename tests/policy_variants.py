"""The settings with which the contract tests run every policy: all words of each setting, and unusual numbers."""

from __future__ import annotations

from podium_core.domain.snapshot import Scalar
from podium_core.policies.registry import NAMES

Settings = dict[str, Scalar]
VARIANTS: list[tuple[str, Settings]] = [
    *((name, {}) for name in NAMES),
    ("asha", {"onCut": "stop"}),
    ("asha", {"onCut": "suspend", "eta": 1.5, "rungs": 16}),
    ("best_so_far", {"warmup": 0}),
    ("pareto", {"warmup": 0}),
    ("envelope", {"minShare": 0.0, "hysteresis": 0.0}),
    ("envelope", {"minShare": 0.1, "warmup": 0.0}),
    ("envelope", {"minShare": 0.5, "warmup": 1.0}),
    ("hermes", {"start": "own"}),
    ("hermes", {"start": "pool", "warmup": 0, "hysteresis": 0.0, "minTimeSlice": 0}),
    ("hyperband", {"mode": "sync", "onCut": "stop", "eta": 2, "rungs": 1}),
    ("hyperband", {"mode": "async", "onCut": "suspend"}),
    ("hyperband", {"mode": "async", "onCut": "stop"}),
    ("median_stop", {"onCut": "stop", "grace": 0.0, "peers": 1}),
    ("median_stop", {"onCut": "suspend", "grace": 0.0, "peers": 1}),
    ("pop", {"onCut": "stop", "warmup": 3, "poor": 0.9}),
    ("pop", {"onCut": "suspend", "warmup": 3, "rounds": 1}),
    ("round_robin", {"quantum": 0.5}),
    ("slaq", {"warmup": 0, "window": 4}),
]
