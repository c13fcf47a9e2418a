"""What the e2e tests read from outside: the fake driver's record of work, container logs, cgroup states.

Nothing here asks Podium: the record is the driver's, the logs are containerd's, the states are the kernel's.
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
    """One process at work on one GPU (seconds of the node's monotonic clock). `start` and `end` are the inner bounds:
    between them it surely was at work; each is off by one sample of the driver (20 ms) at most."""

    start: float
    end: float
    gpu: str
    container: str


def work_of(log: str) -> Iterator[Work]:
    """The lines of a node's work.log; see agent/driver/README.md for the format."""
    for line in log.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split(" ", 10)
        yield Work(float(fields[6]), float(fields[7]), fields[2], fields[4])


def by_gpu(work: Iterable[Work]) -> Mapping[str, list[Work]]:
    found: dict[str, list[Work]] = defaultdict(list)
    for item in work:
        found[item.gpu].append(item)
    for items in found.values():
        items.sort(key=lambda item: (item.start, item.end))
    return found


def overlaps(work: Iterable[Work]) -> list[tuple[Work, Work]]:
    """Pairs of different containers that surely were at work on the same GPU at the same time."""
    found = []
    for items in by_gpu(work).values():
        open_items: list[Work] = []
        for item in items:
            open_items = [other for other in open_items if other.end > item.start]
            if item.end <= item.start:
                continue  # shorter than a sample: no moment is sure
            found += [(other, item) for other in open_items if other.container != item.container]
            open_items.append(item)
    return found


def returns(work: Iterable[Work]) -> int:
    """How often a container came back to its GPU after another had worked there: a suspension seen from outside."""
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
    """(step, value) of every json line of a container's log in CRI format, in the order printed."""
    points = []
    for line in log.splitlines():
        text = line.split(" ", 3)[-1]
        if text.startswith("{"):
            row = json.loads(text)
            if metric in row:
                points.append((int(row[step]), float(row[metric])))
    return points


def summary(points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """The latest, the lowest and the highest value with their steps, spelled as a trial's status spells them."""
    step, latest = points[-1]
    told: dict[str, Any] = {"step": step, "latest": latest if math.isfinite(latest) else str(latest)}
    finite = [point for point in points if math.isfinite(point[1])]
    for name, chosen in (("min", min), ("max", max)):
        if finite:
            found = chosen(finite, key=lambda point: point[1])
            told |= {name: found[1], f"{name}Step": found[0]}
    return told


def frozen_cgroups(roots: Iterable[Path]) -> list[Path]:
    """Cgroups below `roots` that are frozen by their own setting now (v1 and v2)."""
    frozen = []
    for root in roots:
        for folder, _, files in os.walk(root):  # unlike rglob it does not mind folders that go while it walks
            for name, thawed in THAWED.items():
                if name not in files:
                    continue
                try:
                    if Path(folder, name).read_text().strip() != thawed:
                        frozen.append(Path(folder))
                except OSError:  # the container ended between listing and reading
                    continue
    return frozen
