"""What the e2e tests read from outside: the fake driver's record of work, container logs, cgroup states.

Nothing here asks Podium: the record is the driver's, the logs are containerd's, the states are the kernel's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Work:
    """One process at work on one GPU from `start` to `end` (seconds, the node's monotonic clock)."""

    start: float
    end: float
    gpu: str
    container: str
    comm: str


def overlaps(work: Iterable[Work], tolerance: float) -> list[tuple[Work, Work]]:
    """Pairs of different containers at work on the same GPU for longer than `tolerance` seconds at the same time."""
    by_gpu: dict[str, list[Work]] = defaultdict(list)
    for item in work:
        by_gpu[item.gpu].append(item)
    found = []
    for items in by_gpu.values():
        items.sort(key=lambda item: item.start)
        for index, first in enumerate(items):
            for second in items[index + 1 :]:
                if second.start >= first.end - tolerance:
                    break
                if second.container != first.container and min(first.end, second.end) - second.start > tolerance:
                    found.append((first, second))
    return found


def handovers(work: Iterable[Work]) -> int:
    """How often a GPU went from one container to another one that had worked on it before, or came back to it."""
    by_gpu: dict[str, list[Work]] = defaultdict(list)
    for item in work:
        by_gpu[item.gpu].append(item)
    count = 0
    for items in by_gpu.values():
        seen: set[str] = set()
        last = ""
        for item in sorted(items, key=lambda item: item.start):
            if item.container != last:
                count += item.container in seen
                seen.add(item.container)
                last = item.container
    return count


def printed_points(log: str, metric: str, step: str) -> list[tuple[int, float]]:
    """(step, value) of every json line of a container's log in CRI format, in the order printed."""
    points = []
    for line in log.splitlines():
        text = line.split(" ", 3)[-1]
        if text.startswith("{"):
            row = json.loads(text)
            if metric in row:
                points.append((int(row[step]), float(row[metric])))
    return points


def frozen_cgroups(roots: Sequence[Path]) -> list[Path]:
    """Cgroups below `roots` that are frozen by their own setting now (v1 and v2)."""
    frozen = []
    for root in roots:
        for state in root.rglob("freezer.state"):
            try:
                if state.read_text().strip() != "THAWED":
                    frozen.append(state.parent)
            except OSError:  # the container ended between listing and reading
                continue
        for state in root.rglob("cgroup.freeze"):
            try:
                if state.read_text().strip() == "1":
                    frozen.append(state.parent)
            except OSError:
                continue
    return frozen
