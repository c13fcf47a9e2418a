"""The record of one trial that is written to its status: curve, log cursor, holds, suspensions. One per pod.

The conductor and the carrier note what happens; the trial writer loads what an earlier agent wrote, reads the log, and
patches. What happens before it could be loaded waits in a backlog, so that nothing is lost when the API is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from podium.curves.growing import Curve
from podium.schema.gpunode import TrialState
from podium_agent.account import Account, Cost, follow, resumed, suspended
from podium_agent.logs.tail import Position
from podium_agent.pods import TrialPod


@dataclass(eq=False, slots=True)
class Book:
    """`urgent` wakes the writer at once; `version` grows with everything that deserves a patch."""

    pod: TrialPod
    node: str
    state: TrialState | None = None
    gpus: tuple[str, ...] = ()
    ended: bool = False  # its processes are gone
    closed: bool = False  # the pod has ended or is gone, as the API says: no more log will come
    account: Account | None = None
    curve: Curve = field(default_factory=Curve)
    position: Position = field(default_factory=Position)
    version: int = 0
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    _backlog: list[Callable[[Account], Account]] = field(default_factory=list)

    def load(self, account: Account, curve: Curve, position: Position) -> None:
        for change in self._backlog:
            account = change(account)
        self._backlog.clear()
        self.account, self.curve, self.position = account, curve, position

    def follow(self, state: TrialState | None, gpus: tuple[str, ...], now: float) -> None:
        """Note the state; called after every look, so only changes count."""
        if (state, gpus) == (self.state, self.gpus) and not (state is None and not self.ended):
            return
        self.state, self.gpus, self.ended = state, gpus, state is None
        self._note(lambda account: follow(account, state, gpus, self.node, now))

    def suspended(self, cost: Cost) -> None:
        self._note(lambda account: suspended(account, cost))

    def resumed(self, seconds: float) -> None:
        self._note(lambda account: resumed(account, seconds))

    def held_since(self) -> float | None:
        if self.account is None or not self.account.holds or self.account.holds[-1].end is not None:
            return None
        return self.account.holds[-1].start

    def touch(self) -> None:
        self.version += 1

    def _note(self, change: Callable[[Account], Account]) -> None:
        if self.account is None:
            self._backlog.append(change)
        else:
            self.account = change(self.account)
        self.touch()
        self.urgent.set()
