"""What each container that is being moved, or is off its GPUs, held on which: in a file each.

Written by the method `cuda-checkpoint` before its first step, read before it restores, removed after its last. The
driver does not tell what a checkpointed process needs, and a restore without the memory is the end of it
(cuda-checkpoint issue 44). An agent that starts anew finds the files, and by them what the one before left half-done.
A container that was carried here from another node gets its note when it is found: `arrives`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

log = logging.getLogger(__name__)


class Arrival(BaseModel):
    """Of a container that comes checkpointed from another node: bytes by GPU (uuid) there, and how many processes of it
    hold CUDA. As JSON on the pod that it comes in."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gpus: dict[str, int] = Field(min_length=1)
    processes: int = Field(ge=1)


class Note(BaseModel):
    """`held`: bytes by GPU (uuid) of this node, its homes. `onto`: of one that came here, what lay on which GPU goes to
    which. `processes`: of those, how many the driver has to know before they are restored, since they are so all
    together. `leaving`: until then (seconds since 1970) it is being carried away, and may stand thawed for it.
    `ranks`: by process (pid) its homes, each with the GPU that the driver counts it on now. `each`: by process its part
    of `held`; what an older agent noted, or came from another node, has none. `goal`: home to the GPU on which all are
    being brought back, while some are there and others may not be."""

    model_config = ConfigDict(frozen=True)

    held: dict[str, int] = Field(default_factory=dict)
    onto: dict[str, str] = Field(default_factory=dict)
    processes: int = 0
    leaving: float = 0.0
    ranks: dict[int, dict[str, str]] = Field(default_factory=dict)
    each: dict[int, dict[str, int]] = Field(default_factory=dict)
    goal: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_older_agents(cls, value: Any) -> Any:
        """They wrote `held` alone."""
        return value if not isinstance(value, dict) or "held" in value else {"held": value}

    @property
    def left(self) -> Mapping[str, int]:
        """Bytes by GPU that the driver counts it on: one that came here and was not brought back is still on those of
        its old node."""
        return {old: self.held[new] for old, new in self.onto.items()} or self.held

    @property
    def apart(self) -> bool:
        """Some of its processes were moved to other GPUs, or brought back after they came here, others perhaps not."""
        came = bool(self.onto and self.ranks)
        return came or bool(self.goal) or any(home != now for rank in self.ranks.values() for home, now in rank.items())


NOTHING = Note()
NO_RANKS: Mapping[int, Mapping[str, int]] = {}


class Parked:
    """`folder` is made when it is first needed. A container is named by the last part of its cgroup's path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted = {file.name for file in folder.iterdir()} if folder.is_dir() else set()

    def has(self, container: str) -> bool:
        """Between the first step out and the last step in there is a note."""
        return container in self._noted

    def note(self, container: str, held: Mapping[str, int], ranks: Mapping[int, Mapping[str, int]] = NO_RANKS) -> None:
        """Whole or not at all, also if the agent dies over it. `ranks`: of `held`, by process. Raises OSError."""
        where = {pid: {uuid: uuid for uuid in gpus} for pid, gpus in ranks.items()}
        each = {pid: dict(gpus) for pid, gpus in ranks.items()}
        self.write(container, Note(held=dict(held), ranks=where, each=each))

    def arrives(self, container: str, arrival: Arrival, gpus: tuple[str, ...]) -> None:
        """The GPUs of this node that it has now, in the order of those that it left. One that has a note keeps it."""
        if self.has(container):
            return
        onto = dict(zip(sorted(arrival.gpus), gpus, strict=False))  # too few: the driver refuses the map, and says so
        held = {new: arrival.gpus[old] for old, new in onto.items()}
        self.write(container, Note(held=held, onto=onto, processes=arrival.processes))

    def read(self, container: str) -> Mapping[str, int]:
        """Bytes by GPU; empty if nothing is noted."""
        return self.whole(container).held

    def whole(self, container: str) -> Note:
        if container not in self._noted:
            return NOTHING
        try:
            return Note.model_validate_json((self._folder / container).read_text())
        except (OSError, ValidationError):
            return NOTHING

    def tidy(self, alive: Collection[str]) -> None:
        """Forget containers that ended while no agent was there to see it. `alive`: all that have processes now."""
        for container in self._noted - set(alive):
            try:
                self.forget(container)
                log.info("the note of container %s is removed: nothing of it runs", container)
            except OSError as error:
                log.error("the note of container %s stays: %s", container, error)

    def leave(self, container: str, until: float) -> None:
        """Of one that has a note: the mover, a process of its own, has it until then; 0: no more. The agent forgets it
        meanwhile if the container ends."""
        if self.has(container) and (self._folder / container).exists():
            self.write(container, self.whole(container).model_copy(update={"leaving": until}))

    def forget(self, container: str) -> None:
        if container in self._noted:
            (self._folder / container).unlink(missing_ok=True)
            self._noted.discard(container)

    def write(self, container: str, note: Note) -> None:
        """In place of the note that is there. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # of each container its own: the mover writes here too, beside the agent
        fresh = self._folder.with_name(f"{self._folder.name}.{container}.new")
        fresh.write_text(note.model_dump_json())
        os.replace(fresh, self._folder / container)
        self._noted.add(container)
