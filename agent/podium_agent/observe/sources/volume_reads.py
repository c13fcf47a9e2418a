"""Reads of a file or folder of the trial, whose volume may hang, and why the last one yielded nothing."""

from __future__ import annotations

from collections.abc import Callable

from podium_agent.observe.sources.base import is_fault
from podium_agent.observe.sources.hanging import BusyError, HangingCalls


class VolumeReads:
    """Reads of one place in the container.

    `what`: "file" or "folder"; `named`: the place, as a message about a silent volume names it. `trouble`: why it
    yields nothing, empty while it does; `fault`: the error of the disk or kernel behind it.
    """

    def __init__(self, what: str, named: str, seconds: float, release: Callable[[], None]) -> None:
        self.trouble = "its container has not started yet"
        self.fault: OSError | None = None
        self._what = what
        self._named = named
        self._seconds = seconds
        self._calls: HangingCalls[bool] = HangingCalls("metrics", release)

    async def more(self, read: Callable[[], bool]) -> bool | None:
        """Read once and return whether more is there; None while the volume does not answer."""
        try:
            return await self._calls.call(lambda: self._pass(read), self._seconds)
        except BusyError:
            return None
        except TimeoutError:
            self.trouble = f"VolumeUnresponsive: {self._named} was not read within {self._seconds:g} s"
            return None
        except OSError as error:  # no thread could start
            self._note(error)
            return None

    def close(self) -> None:
        """Close what is open: an open file keeps its volume from being detached."""
        self._calls.close()

    def _pass(self, read: Callable[[], bool]) -> bool:
        self.fault = None
        try:
            return read()
        except FileNotFoundError:
            self.trouble = f"the {self._what} does not exist in the container yet"
        except ProcessLookupError:
            self.trouble = f"the container has ended, and the {self._what} was not there before"
        except OSError as error:
            self._note(error)
        except ValueError as error:
            self.trouble = f"{error}"
        return False

    def _note(self, error: OSError) -> None:
        self.trouble = f"it cannot be read: {error.strerror}"
        self.fault = error if is_fault(error) else None
