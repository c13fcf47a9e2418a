"""Evidence of the e2e tests that is not Podium's: work.log, container logs and cgroup states.

The fake driver writes work.log, containerd writes the logs, and the kernel has the cgroup states.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THAWED = {"freezer.state": "THAWED", "cgroup.freeze": "0"}


@dataclass(frozen=True, slots=True)
class Work:
    """An interval in which a process worked on a GPU, in seconds of the node's monotonic clock.

    `start` and `end` are the inner bounds, between which the process certainly worked. Each is off by at most one
    sample of the driver (20 ms).
    """

    start: float
    end: float
    gpu: str
    container: str


def work_of(log: str) -> Iterator[Work]:
    """Yield the intervals of a work.log; agent/driver/README.md describes the format."""
    for line in log.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split(" ", 10)
        yield Work(float(fields[6]), float(fields[7]), fields[2], fields[4])


def by_gpu(work: Iterable[Work]) -> Mapping[str, list[Work]]:
    """Return the intervals of each GPU in the order of time."""
    found: dict[str, list[Work]] = defaultdict(list)
    for item in work:
        found[item.gpu].append(item)
    for items in found.values():
        items.sort(key=lambda item: (item.start, item.end))
    return found


def overlaps(work: Iterable[Work]) -> list[tuple[Work, Work]]:
    """Return pairs of intervals in which two containers certainly worked on one GPU at the same time."""
    found = []
    for items in by_gpu(work).values():
        open_items: list[Work] = []
        for item in items:
            open_items = [other for other in open_items if other.end > item.start]
            if item.end <= item.start:
                continue  # shorter than a sample, so no moment is certain
            found += [(other, item) for other in open_items if other.container != item.container]
            open_items.append(item)
    return found


def resumptions(work: Iterable[Work]) -> int:
    """Return how often a container worked on a GPU again after another one had worked there."""
    count = 0
    for items in by_gpu(work).values():
        seen: set[str] = set()
        last = ""
        for item in items:
            if item.container != last:
                count += item.container in seen
                seen.add(item.container)
                last = item.container
    return count


def printed(log: str, metric: str, step: str) -> list[tuple[int, float]]:
    """Return (step, value) of every JSON line of a container's log in CRI format, in the order of the log."""
    points = []
    for line in log.splitlines():
        text = line.split(" ", 3)[-1]
        if text.startswith("{"):
            row = json.loads(text)
            if metric in row:
                points.append((int(row[step]), float(row[metric])))
    return points


def summary(points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Return the latest, lowest and highest values with their steps, in the format of a trial's status."""
    step, latest = points[-1]
    result: dict[str, Any] = {"step": step, "latest": latest if math.isfinite(latest) else str(latest)}
    finite = [point for point in points if math.isfinite(point[1])]
    for name, chosen in (("min", min), ("max", max)):
        if finite:
            found = chosen(finite, key=lambda point: point[1])
            result |= {name: found[1], f"{name}Step": found[0]}
    return result


def frozen_cgroups(roots: Iterable[Path]) -> list[Path]:
    """Return the cgroups below `roots` whose own setting is frozen (v1 and v2)."""
    frozen = []
    for root in roots:
        for folder, _, files in os.walk(root):  # unlike rglob, it ignores folders that are removed meanwhile
            for name, thawed in THAWED.items():
                if name not in files:
                    continue
                try:
                    if Path(folder, name).read_text().strip() != thawed:
                        frozen.append(Path(folder))
                except OSError:  # the container ended between listing and reading
                    continue
    return frozen
