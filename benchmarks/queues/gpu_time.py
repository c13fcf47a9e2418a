"""GPU-seconds of each search in the fake driver's own record, work.log (format: agent/driver/README.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """An interval in which a container worked on a GPU, in seconds of the machine's monotonic clock."""

    start: float
    end: float
    container: str


def work_of(record: str) -> Iterator[Work]:
    """Yield the intervals of a work.log, with their outer bounds."""
    for line in record.splitlines():
        if line and not line.startswith("#"):
            start, end, _, _, container = line.split(" ", 5)[:5]
            yield Work(float(start), float(end), container)


def gpu_seconds(work: Iterable[Work], owners: Mapping[str, str], start: float, end: float) -> dict[str, float]:
    """Return the seconds from `start` to `end` in which the containers of each owner worked.

    `owners`: the owner of each container, by its id; other containers do not count.
    """
    found = dict.fromkeys(owners.values(), 0.0)
    for one in work:
        if one.container in owners:
            found[owners[one.container]] += max(0.0, min(one.end, end) - max(one.start, start))
    return found


def first_work(work: Iterable[Work], owners: Mapping[str, str], owner: str, after: float) -> float | None:
    """Return the time at which a container of the owner first worked after a time; None if none did."""
    return min((one.start for one in work if owners.get(one.container) == owner and one.end > after), default=None)


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the part of each owner; zero for all if none worked."""
    total = sum(seconds.values())
    return {owner: used / total if total else 0.0 for owner, used in seconds.items()}
