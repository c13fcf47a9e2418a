"""Limits of the connections to the gate's socket: for each pod and in all, in number and in frequency.

Every pod of the node can connect as often as it likes. A pod that does so is refused before anything is read from it,
so it wakes no other part of the agent, and the gates of other pods are served as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

C = TypeVar("C")
MAX_CONNECTIONS = 1024
MAX_PER_POD = 4  # a gate has one, and a second one while the kernel still reports the first
BURST = 10  # connections of one pod in succession
SECONDS_PER_CONNECTION = 1.0  # of one pod, on average; a gate waits for up to a second before it connects again


class GateLimits(Generic[C]):
    """The open connections of each pod, and when it may connect again.

    Pods are named by uid; processes in no pod share the empty one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, list[C]] = {}
        self._count = 0
        self._next: dict[str, float] = {}

    def admit(self, pod_uid: str, connection: C) -> tuple[bool, C | None]:
        """Return whether the connection is accepted, and the pod's oldest one if that must be closed."""
        now = self._clock()
        earliest = max(self._next.get(pod_uid, now), now)
        if earliest - now > (BURST - 1) * SECONDS_PER_CONNECTION or self._count >= MAX_CONNECTIONS:
            return False, None
        self._next = {uid: at for uid, at in self._next.items() if at > now}
        self._next[pod_uid] = earliest + SECONDS_PER_CONNECTION
        opened = self._open.setdefault(pod_uid, [])
        oldest = opened.pop(0) if len(opened) >= MAX_PER_POD else None
        opened.append(connection)
        self._count += oldest is None
        return True, oldest

    def release(self, pod_uid: str, connection: C) -> None:
        """Forget an accepted connection that is closed now; one that was replaced is forgotten already."""
        opened = self._open.get(pod_uid, [])
        if connection not in opened:
            return
        opened.remove(connection)
        self._count -= 1
        if not opened:
            del self._open[pod_uid]
