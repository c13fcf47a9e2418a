"""GPU-seconds of a trial until its first value: the start of its process, and the training until then."""

from __future__ import annotations

from collections.abc import Sequence

Held = tuple[float, float | None, int]  # begin, end (None: it lasts) and number of GPUs


def first_value_seconds(allocations: Sequence[Held], first_value: float | None) -> float | None:
    """Return the GPU-seconds until the first value, at time `first_value`.

    None before it, and if the first allocation is not in the list any more.
    """
    if first_value is None or not allocations or allocations[0][0] > first_value:
        return None
    return sum(
        max(0.0, min(first_value, first_value if end is None else end) - begin) * gpus
        for begin, end, gpus in allocations
    )
