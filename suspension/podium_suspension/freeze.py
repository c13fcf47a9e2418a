"""Method `freeze`: the kernel's cgroup freezer, v1 and v2. It frees compute; GPU memory remains allocated.

A write to the freezer is only a request. The outcome is a success once the kernel reports that every process has
stopped or ended. If a container cannot be frozen in time, all containers are thawed again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from podium_core.domain.backoff import backoff_pause
from podium_suspension.base import SuspensionOutcome, SuspensionState, outcome_of
from podium_suspension.target import FreezerState, Target

FIRST_POLL = 0.0005
LONGEST_POLL = 0.02


class Freeze:
    """The method; `timeout` limits the wait for the kernel in one suspension or resume, in seconds."""

    name = "freeze"

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    async def suspend(self, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Freeze all containers, or thaw all of them again."""
        begin = time.monotonic()
        try:
            for target in targets:
                target.ask(True)
            left = await self._until(targets, FreezerState.FROZEN, begin)
        except OSError as error:
            self.request_thaw(targets)
            return outcome_of(error, time.monotonic() - begin)
        except BaseException:  # cancelled, or an unexpected error: never leave only some frozen
            self.request_thaw(targets)
            raise
        if left:
            self.request_thaw(targets)
            message = f"{left[0].name} was not frozen within {self._timeout:g} s; it was thawed again"
            return SuspensionOutcome(False, time.monotonic() - begin, "FreezeTimeout", message)
        # a container that ended while it was being frozen leaves an empty frozen cgroup, which the runtime cannot
        # remove: its pod would never end
        with suppress(OSError):
            self.request_thaw(tuple(target for target in targets if target.frost() is FreezerState.GONE))
        return SuspensionOutcome(True, time.monotonic() - begin, "Frozen")

    async def resume(self, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Thaw all containers."""
        begin = time.monotonic()
        try:
            for target in targets:
                target.ask(False)
            left = await self._until(targets, FreezerState.THAWED, begin)
        except OSError as error:
            return outcome_of(error, time.monotonic() - begin)
        if left:
            message = f"{left[0].name} was not thawed within {self._timeout:g} s"
            return SuspensionOutcome(False, time.monotonic() - begin, "ThawTimeout", message)
        return SuspensionOutcome(True, time.monotonic() - begin, "Thawed")

    def suspension_state(self, targets: tuple[Target, ...]) -> SuspensionState:
        """Return the state of all containers that still have processes."""
        frosts = [frost for target in targets if (frost := target.frost()) is not FreezerState.GONE]
        if not frosts:
            return SuspensionState.GONE
        if all(frost is FreezerState.THAWED for frost in frosts):
            return SuspensionState.RUNNING
        return (
            SuspensionState.SUSPENDED
            if all(frost is FreezerState.FROZEN for frost in frosts)
            else SuspensionState.PARTLY_SUSPENDED
        )

    async def _until(self, targets: tuple[Target, ...], wanted: FreezerState, begin: float) -> list[Target]:
        """Poll until all containers are in the wanted state or gone; return those that are not at the timeout."""
        polls = 0
        while True:
            left = [target for target in targets if target.frost() not in (wanted, FreezerState.GONE)]
            if not left or time.monotonic() - begin >= self._timeout:
                return left
            polls += 1
            await asyncio.sleep(backoff_pause(polls, FIRST_POLL, LONGEST_POLL))

    def request_thaw(self, targets: tuple[Target, ...]) -> None:
        """Request that all containers be thawed, without waiting."""
        for target in targets:
            with suppress(OSError):  # the cgroup and its processes are gone
                target.ask(False)
