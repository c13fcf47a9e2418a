"""Method `freeze`: the kernel's cgroup freezer, v1 and v2. Frees compute; GPU memory stays.

Used by the carrier. A write to the freezer is a request; the outcome is success only when the kernel says that every
process has stopped (or that none is left). What cannot be frozen in time is thawed again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from podium_agent.observe.cgroups import Freezer, FreezerState
from podium_agent.suspension.base import Outcome, Standing

FIRST_POLL = 0.0005
LONGEST_POLL = 0.02


class Freeze:
    """`timeout` bounds one suspension or resumption; the asking itself is never given up half-way."""

    name = "freeze"

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    async def suspend(self, targets: tuple[Freezer, ...]) -> Outcome:
        begin = time.monotonic()
        try:
            for target in targets:
                target.ask(True)
            left = await self._until(targets, FreezerState.FROZEN, begin)
        except OSError as error:
            self.let_go(targets)
            return Outcome(False, time.monotonic() - begin, "FreezerRefused", f"{error.filename}: {error.strerror}")
        except BaseException:  # cancelled, or what nobody has thought of: never half of them stopped
            self.let_go(targets)
            raise
        if left:
            self.let_go(targets)
            message = f"{left[0].path} was not frozen within {self._timeout:g} s; it was thawed again"
            return Outcome(False, time.monotonic() - begin, "FreezeTimeout", message)
        # who ended as it was being frozen leaves an empty cgroup, frozen, that the runtime cannot clear away: its pod
        # would never end
        with suppress(OSError):
            self.let_go(tuple(target for target in targets if target.frost() is FreezerState.GONE))
        return Outcome(True, time.monotonic() - begin, "Frozen")

    async def resume(self, targets: tuple[Freezer, ...]) -> Outcome:
        begin = time.monotonic()
        try:
            for target in targets:
                target.ask(False)
            left = await self._until(targets, FreezerState.THAWED, begin)
        except OSError as error:
            return Outcome(False, time.monotonic() - begin, "FreezerRefused", f"{error.filename}: {error.strerror}")
        if left:
            message = f"{left[0].path} was not thawed within {self._timeout:g} s"
            return Outcome(False, time.monotonic() - begin, "ThawTimeout", message)
        return Outcome(True, time.monotonic() - begin, "Thawed")

    def standing(self, targets: tuple[Freezer, ...]) -> Standing:
        frosts = [frost for target in targets if (frost := target.frost()) is not FreezerState.GONE]
        if not frosts:
            return Standing.GONE
        if all(frost is FreezerState.THAWED for frost in frosts):
            return Standing.WORKING
        return Standing.PARKED if all(frost is FreezerState.FROZEN for frost in frosts) else Standing.PARTLY_SUSPENDED

    async def _until(self, targets: tuple[Freezer, ...], wanted: FreezerState, begin: float) -> list[Freezer]:
        """Poll until all are as wanted (or gone); what is not when time is over."""
        pause = FIRST_POLL
        while True:
            left = [target for target in targets if target.frost() not in (wanted, FreezerState.GONE)]
            if not left or time.monotonic() - begin >= self._timeout:
                return left
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_POLL)

    def let_go(self, targets: tuple[Freezer, ...]) -> None:
        """Ask for all to be thawed, and wait for nothing."""
        for target in targets:
            with suppress(OSError):  # the cgroup went away, and its processes with it
                target.ask(False)
