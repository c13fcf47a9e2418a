"""What the agent knows of each GPU beyond the driver's present answers, on the node's disk, so a restart forgets none.

A driver reports an Xid once, and a GPU that was lost may not even report its UUID. `nvml` writes one note for each GPU,
named after its UUID. A note counts until the node reboots: a reboot resets all GPUs.

An Xid keeps its GPU unhealthy until one of three things happens. The node reboots. The driver asked for a recovery
action (a reset, say) and no longer does. Or an administrator deletes the note. The Xid itself stays in the report.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium_agent.notes import Failed, Notes, ignore
from podium_cluster.component.logs import about

log = logging.getLogger(__name__)
BOOT_ID = "sys/kernel/random/boot_id"  # under /proc


class GpuNote(BaseModel):
    """Note about one GPU.

    `xid`: the last Xid that makes a GPU unhealthy; `xid_cleared`: the GPU has come back since.
    `recovery_requested`: the driver has asked for a recovery action since that Xid.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    boot_id: str = ""
    index: int = 0
    product: str = ""
    memory_total: int = 0
    xid: int | None = None
    xid_cleared: bool = False
    recovery_requested: bool = False


class GpuNotes:
    """Notes of all GPUs by UUID. Without a folder they are only kept in memory.

    `failed` is called for each write that fails.
    """

    def __init__(self, folder: Path | None = None, proc: Path = Path("/proc"), failed: Failed = ignore) -> None:
        self._files = Notes(folder, GpuNote, "GPU", failed) if folder is not None else None
        self._boot_id = _boot_id(proc) if folder is not None else ""
        self._notes: dict[str, GpuNote] = {}
        self._stored: set[str] = set()  # whose files were seen: a missing one was deleted
        for uuid, note in self._read().items():
            if note.boot_id == self._boot_id:
                self._notes[uuid] = note
                self._stored.add(uuid)
            elif self._files is not None:
                self._files.drop(uuid)

    @property
    def by_uuid(self) -> Mapping[str, GpuNote]:
        """Return the notes of this boot."""
        return self._notes

    def of(self, uuid: str) -> GpuNote:
        """Return the note of a GPU; an empty one if there is none."""
        return self._notes.get(uuid, GpuNote(boot_id=self._boot_id))

    def write(self, uuid: str, note: GpuNote) -> None:
        """Replace the note of a GPU if it has changed, or if it matters and could not be stored before."""
        if self._notes.get(uuid) == note and (uuid in self._stored or not self._counts(uuid)):
            return
        self._notes[uuid] = note
        if self._files is not None:
            self._files.write(uuid, note, f"GPU {uuid} will be unknown to the next agent")
            if uuid in self._names():
                self._stored.add(uuid)

    def clear_deleted(self) -> None:
        """Clear the Xids of GPUs whose files an administrator has deleted."""
        if not any(self._counts(uuid) for uuid in self._stored):
            return
        for uuid in sorted(self._stored - self._names()):
            self._stored.discard(uuid)
            if self._counts(uuid):
                self.clear(uuid, "its note was deleted")

    def clear(self, uuid: str, why: str) -> None:
        """Let the GPU come back; its Xid remains in the report."""
        note = self.of(uuid)
        with about(gpu=uuid):
            log.warning("GPU %s is no longer unhealthy because of Xid %s: %s", uuid, note.xid, why)
        self.write(uuid, note.model_copy(update={"xid_cleared": True, "recovery_requested": False}))

    def _counts(self, uuid: str) -> bool:
        note = self._notes[uuid]
        return note.xid is not None and not note.xid_cleared

    def _names(self) -> Set[str]:
        """Return the GPUs with a file; those in memory if the folder cannot be read, so that none seems deleted.

        A file that cannot be read is not deleted either.
        """
        if self._files is None:
            return self._notes.keys()
        try:
            return self._files.names()
        except OSError as error:
            log.error("the notes of the GPUs cannot be read: %s", error)
            return self._notes.keys()

    def _read(self) -> Mapping[str, GpuNote]:
        """Return the notes on disk; none if the folder cannot be read."""
        if self._files is None:
            return {}
        try:
            return self._files.all()
        except OSError as error:
            log.error("the notes of the GPUs cannot be read: %s", error)
            return {}


def _boot_id(proc: Path) -> str:
    try:
        return (proc / BOOT_ID).read_text().strip()
    except OSError:
        return ""
