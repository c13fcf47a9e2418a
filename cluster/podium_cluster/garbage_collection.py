"""The collector of garbage in a process whose caches hold a cluster. Called by extender and operator once theirs are
filled.
"""

from __future__ import annotations

import gc


def settle_memory() -> None:
    """What the caches hold now stays for long and has no cycles: the collector need not walk through it again and again
    (200 ms a time at 5,000 nodes, in the middle of an answer). What comes later has few cycles, too: a plan leaves
    none, and makes tens of thousands of objects that all go with it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
