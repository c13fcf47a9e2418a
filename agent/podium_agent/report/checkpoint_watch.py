"""Watch on the checkpoints of one trial while it runs, and on the last one after its end; used by the trial writer.

Each read has a thread of its own, since a volume that hangs (NFS) blocks its reader.
"""

from __future__ import annotations

import logging
from pathlib import Path

from podium_agent.observe.cgroups import Container
from podium_agent.observe.sources.hanging import BusyError, HangingCalls
from podium_agent.report.checkpoints import Folder
from podium_agent.report.trial_record import TrialRecord
from podium_cluster import clock
from podium_core.attempts.lost_work import CompletionMarker
from podium_core.schema.gpunode import SlotState

log = logging.getLogger(__name__)


class CheckpointWatch:
    """Notes each new completion marker in the trial record; a volume must be read within `seconds`."""

    def __init__(self, trial_record: TrialRecord, proc: Path, seconds: float) -> None:
        self._record = trial_record
        self._proc = proc
        self._seconds = seconds
        self._looker: CheckpointReader | None = None
        self._marker: CompletionMarker | None = None
        self._frozen = False
        self._over = False

    async def look(self) -> None:
        """Check once in each pass of the writer.

        The folder is closed after the check that follows the trial's end.
        """
        trial_record, over = self._record, self._record.life.ended
        folder = trial_record.pod.settings.checkpoint
        if self._looker is None and not self._over and trial_record.main is not None and folder:
            self._looker = CheckpointReader(self._proc, trial_record.main, folder)
        frozen, was_frozen = trial_record.state is SlotState.SUSPENDED, self._frozen
        self._frozen = frozen
        if self._looker is not None and not (frozen and was_frozen):  # a frozen trial writes no checkpoint
            await self._ask(self._looker)
        if over:
            self.close()

    async def _ask(self, looker: CheckpointReader) -> None:
        trouble = looker.trouble
        marker = await looker.look(self._seconds)
        if marker is not None and marker != self._marker:
            self._marker = marker
            self._record.saw_marker(marker, clock.now())
        if looker.trouble and looker.trouble != trouble and not self._record.life.ended:
            log.warning("%s: its checkpoints cannot be read: %s", self._record.pod.name, looker.trouble)

    def close(self) -> None:
        """Close the folder: an open folder keeps its volume from being detached."""
        self._over = True
        if self._looker is not None:
            self._looker.close()
            self._looker = None


class CheckpointReader:
    """Reader of one checkpoint folder; it stays open after the first read.

    So the folder can still be read when the container is gone. `trouble` explains why the last read failed.
    """

    def __init__(self, proc: Path, container: Container, path: str) -> None:
        self._place = (proc, container, path)
        self._folder: Folder | None = None
        self._calls: HangingCalls[CompletionMarker | None] = HangingCalls("saves", self._let_go)
        self.trouble = ""

    async def look(self, seconds: float) -> CompletionMarker | None:
        """Return the completion marker.

        None without a checkpoint, or if it could not be read within `seconds`.
        """
        try:
            marker = await self._calls.call(self._read, seconds)
        except BusyError:
            return None
        except TimeoutError:
            self.trouble = f"VolumeUnresponsive: the checkpoint folder was not read within {seconds:g} s"
            return None
        except Exception as error:  # a folder may hold anything: it must not end the writer
            self.trouble = f"{type(error).__name__}: {error}"
            return None
        self.trouble = ""
        return marker

    def close(self) -> None:
        """Release the volume; a thread that hangs in it releases it when the volume answers."""
        self._calls.close()

    def _read(self) -> CompletionMarker | None:
        if self._folder is None:
            self._folder = Folder.open(*self._place)
        return self._folder.read()

    def _let_go(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()
