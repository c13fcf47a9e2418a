"""Sees the saves of one trial while it runs, and the last one after its end. Used by the trial writer.

Each look is a thread of its own, since a volume that hangs (NFS) hangs whoever looks: not one of asyncio's pool, which
is shared and small, and for which a process waits at its end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

from podium_agent.observe.cgroups import Container
from podium_agent.report.checkpoints import Folder
from podium_agent.report.lost_work import CompletionMarker
from podium_agent.report.trial_record import TrialRecord
from podium_core.schema.gpunode import TrialState

log = logging.getLogger(__name__)


class CheckpointWatch:
    """Notes each new marker in the book. `seconds` is how long a volume may take to be read."""

    def __init__(self, trial_record: TrialRecord, proc: Path, seconds: float) -> None:
        self._record = trial_record
        self._proc = proc
        self._seconds = seconds
        self._looker: CheckpointReader | None = None
        self._marker: CompletionMarker | None = None
        self._frozen = False
        self._over = False

    async def look(self) -> None:
        """Once every turn of the writer; the folder is let go of after the look that follows the trial's end."""
        trial_record, over = self._record, self._record.ended
        if self._looker is None and not self._over and trial_record.main is not None and trial_record.pod.checkpoint:
            self._looker = CheckpointReader(self._proc, trial_record.main, trial_record.pod.checkpoint)
        frozen, was_frozen = trial_record.state is TrialState.SUSPENDED, self._frozen
        self._frozen = frozen
        if self._looker is not None and not (frozen and was_frozen):  # what is frozen saves nothing
            await self._ask(self._looker)
        if over:
            self.close()

    async def _ask(self, looker: CheckpointReader) -> None:
        trouble = looker.trouble
        marker = await looker.look(self._seconds)
        if marker is not None and marker != self._marker:
            self._marker = marker
            self._record.saw_marker(marker, time.time())
        if looker.trouble and looker.trouble != trouble and not self._record.ended:
            log.warning("%s: its saves are not seen: %s", self._record.pod.name, looker.trouble)

    def close(self) -> None:
        """A folder that is kept open keeps its volume from being detached."""
        self._over = True
        if self._looker is not None:
            self._looker.close()
            self._looker = None


class CheckpointReader:
    """Opens the folder at the first look and keeps it: it can still be read when the container is gone.

    `trouble` says why the last look saw nothing.
    """

    def __init__(self, proc: Path, container: Container, path: str) -> None:
        self._place = (proc, container, path)
        self._lock = threading.Lock()  # of the three below
        self._folder: Folder | None = None
        self._busy = False
        self._closed = False
        self.trouble = ""

    async def look(self, seconds: float) -> CompletionMarker | None:
        """The marker now; None: no save, or none that could be read in this time."""
        with self._lock:
            if self._busy or self._closed:
                return None
            self._busy = True
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[CompletionMarker | None, str]] = loop.create_future()
        threading.Thread(target=self._run, args=(loop, answer), name="saves", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                marker, self.trouble = await answer
        except TimeoutError:
            self.trouble = f"VolumeUnresponsive: the checkpoint folder was not read within {seconds:g} s"
            return None
        return marker

    def close(self) -> None:
        """Lets go of the volume; a thread that hangs in it does so when it comes back."""
        with self._lock:
            self._closed = True
            if not self._busy:
                self._let_go()

    def _run(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[tuple[CompletionMarker | None, str]]
    ) -> None:
        result: tuple[CompletionMarker | None, str] = (None, "")
        try:
            if self._folder is None:
                self._folder = Folder.open(*self._place)
            result = (self._folder.read(), "")
        except (OSError, ValueError) as error:
            result = (None, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._busy = False
                if self._closed:
                    self._let_go()
        with suppress(RuntimeError):  # the agent has ended meanwhile
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(result))

    def _let_go(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()
