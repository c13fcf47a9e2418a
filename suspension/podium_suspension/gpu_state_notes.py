"""Notes on disk about the GPU state of each checkpointed container: how many bytes it held on which GPU.

The method `cuda-checkpoint` writes a container's note before the first step of a suspension, reads it before a restore,
and removes it after the last step. The driver does not report how much memory a checkpointed process needs, and a
restore without that memory destroys the process (issue 44 of NVIDIA/cuda-checkpoint). An agent that restarts learns
from the notes which operations its predecessor left unfinished.
A container that was migrated from another node gets its note when the agent first observes it: `add_migrated`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

log = logging.getLogger(__name__)
LONGEST_MIGRATION = 7260.0  # seconds: twice the longest time limit of a step, and a minute


class GpuState(BaseModel):
    """GPU state of a container that was checkpointed on another node.

    The new pod has it as a JSON annotation. `gpus` is the number of bytes by GPU UUID of that node, `processes` the
    number of processes with a CUDA context.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    gpus: dict[str, int] = Field(min_length=1)
    processes: int = Field(ge=1)


class GpuStateNote(BaseModel):
    """Note about one container.

    Its home GPUs are those of this node on which it had memory when it was checkpointed.

    `held`: bytes by home GPU (UUID).
    `gpu_map`: for a migrated container, GPU of the old node to its home GPU on this node.
    `processes`: for a migrated container, the number of processes that the driver must know before they are restored.
    `migrating_until`: until this time a live migration may thaw the container. It is a time of the
        monotonic clock, which all processes of a node share.
    `current_gpus`: by process (pid), each home GPU with the GPU on which the driver counts the process now.
    `held_by_process`: by process, its part of `held`; missing in notes of older agents and of migrated containers.
    `target_gpus`: home GPU to the GPU on which an unfinished resume restores; some processes may already be there.
    """

    model_config = ConfigDict(frozen=True)

    held: dict[str, int] = Field(default_factory=dict)
    gpu_map: dict[str, str] = Field(default_factory=dict)
    processes: int = 0
    migrating_until: float = 0.0
    current_gpus: dict[int, dict[str, str]] = Field(default_factory=dict)
    held_by_process: dict[int, dict[str, int]] = Field(default_factory=dict)
    target_gpus: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_older_agents(cls, value: Any) -> Any:
        """Accept the notes of older agents, which consist of `held` alone."""
        return value if not isinstance(value, dict) or "held" in value else {"held": value}

    def is_migrating(self, now: float) -> bool:
        """Return whether a live migration may thaw the container; `now` is a time of the monotonic clock.

        A time that is further ahead than any migration takes is not of this clock, and does not count.
        """
        return 0.0 < self.migrating_until - now <= LONGEST_MIGRATION

    @property
    def bytes_by_driver_gpu(self) -> Mapping[str, int]:
        """Bytes by the GPU on which the driver counts them; before its first restore, GPUs of the old node."""
        return {old: self.held[new] for old, new in self.gpu_map.items()} or self.held

    @property
    def is_split(self) -> bool:
        """Whether some processes may be on other GPUs, or restored after a migration, and others not."""
        migrated = bool(self.gpu_map and self.current_gpus)
        moved = any(home != now for gpus in self.current_gpus.values() for home, now in gpus.items())
        return migrated or bool(self.target_gpus) or moved


EMPTY_NOTE = GpuStateNote()
NO_PROCESSES: Mapping[int, Mapping[str, int]] = {}


class GpuStateNotes:
    """The notes in one folder, which is created when first needed.

    A container's key is the last part of its cgroup's path.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
        self._last: dict[str, GpuStateNote] = {}  # as last read or written, for a disk that does not answer

    def has(self, container: str) -> bool:
        """Return whether a note exists: from the first step of a suspension to the last step of a resume."""
        return container in self._noted

    def write_held(
        self, container: str, held: Mapping[str, int], by_process: Mapping[int, Mapping[str, int]] = NO_PROCESSES
    ) -> None:
        """Write a new note atomically: bytes by GPU, in total and by process. Raises OSError."""
        current_gpus = {pid: {uuid: uuid for uuid in gpus} for pid, gpus in by_process.items()}
        held_by_process = {pid: dict(gpus) for pid, gpus in by_process.items()}
        self.write(container, GpuStateNote(held=dict(held), current_gpus=current_gpus, held_by_process=held_by_process))

    def add_migrated(self, container: str, gpu_state: GpuState, gpus: tuple[str, ...]) -> None:
        """Write the note of a migrated container unless it has one.

        `gpus` are its GPUs on this node, in the sorted order of the GPUs of its old node. Raises OSError.
        """
        if self.has(container):
            return
        # with too few GPUs the driver refuses the map and reports the error
        gpu_map = dict(zip(sorted(gpu_state.gpus), gpus, strict=False))
        held = {new: gpu_state.gpus[old] for old, new in gpu_map.items()}
        self.write(container, GpuStateNote(held=held, gpu_map=gpu_map, processes=gpu_state.processes))

    def held_bytes(self, container: str) -> Mapping[str, int]:
        """Return the bytes by home GPU; empty without a note."""
        return self.read(container).held

    def read(self, container: str) -> GpuStateNote:
        """Return the note of a container, as last known if the disk does not answer; empty if there is none.

        A migration in another process may have changed it, so it is read each time.
        """
        if container not in self._noted:
            return EMPTY_NOTE
        try:
            note = GpuStateNote.model_validate_json((self._folder / container).read_text())
        except (OSError, ValidationError):
            return self._last.get(container, EMPTY_NOTE)
        self._last[container] = note
        return note

    def remove_stale(self, alive: Collection[str]) -> None:
        """Remove the notes of containers that ended while no agent ran; `alive` are those that have processes."""
        for container in self._noted - set(alive):
            try:
                self.remove(container)
                log.info("removed the note of container %s, which has ended", container)
            except OSError as error:
                log.error("cannot remove the note of container %s: %s", container, error)

    def set_migrating_until(self, container: str, until: float) -> None:
        """Allow a live migration to thaw the container until this time; 0 ends that.

        Does nothing without a note. The migration may run in a process of its own. Meanwhile the agent may remove the
        note if the container ends.
        """
        if self.has(container) and (self._folder / container).exists():
            self.write(container, self.read(container).model_copy(update={"migrating_until": until}))

    def remove(self, container: str) -> None:
        """Remove the note, if there is one. Raises OSError."""
        if container in self._noted:
            (self._folder / container).unlink(missing_ok=True)
            self._noted.discard(container)
            self._last.pop(container, None)

    def write(self, container: str, note: GpuStateNote) -> None:
        """Replace the note atomically. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # one temporary file per container: a migration writes here too, from its own process
        fresh = self._folder.with_name(f"{self._folder.name}.{container}.new")
        fresh.write_text(note.model_dump_json())
        os.replace(fresh, self._folder / container)
        self._noted.add(container)
        self._last[container] = note


def gpu_pairs(note: GpuStateNote, pid: int, gpu_map: Mapping[str, str]) -> Mapping[str, str]:
    """Return the driver's GPU map for one process.

    It maps the GPU (UUID) that the process is on to the GPU that it shall have. `gpu_map` maps home GPUs; a home GPU
    that it does not name is restored in place. The driver expects the pairs of
    each process from that process's current GPUs, and all of them (CUDA Driver API 13.x, CUcheckpointRestoreArgs).
    """
    return {now: gpu_map.get(home, home) for home, now in _current_gpus(note, pid).items()}


def note_after_restore(note: GpuStateNote, pids: Iterable[int], gpu_map: Mapping[str, str]) -> GpuStateNote:
    """Return the note after these processes were restored with that map; others may not have been."""
    moved = {pid: {home: gpu_map.get(home, home) for home in _current_gpus(note, pid)} for pid in pids}
    return note.model_copy(update={"current_gpus": {**note.current_gpus, **moved}})


def _current_gpus(note: GpuStateNote, pid: int) -> Mapping[str, str]:
    """Map each home GPU of a process to the GPU on which the driver counts it now.

    A process that the note does not name counts with all GPUs of its container. That happens with notes of older agents
    and with migrated containers, whose processes had other pids on the old node.
    """
    if pid in note.current_gpus:
        return note.current_gpus[pid]
    return {here: old for old, here in note.gpu_map.items()} or {home: home for home in note.held}
