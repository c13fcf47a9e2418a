"""Where each process of a trial is brought back: its GPU map, from what the container's note says. Pure.

Used by the method `cuda-checkpoint`. A map names GPUs as the trial's note does, its homes, whatever became of each
process since: of several some may have been moved and others refused. The driver wants the pairs of each process from
where that one is, and all of its GPUs in them (CUDA driver API 13.x, CUcheckpointRestoreArgs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podium_agent.suspension.parked_memory import Note


def pairs(note: Note, pid: int, onto: Mapping[str, str]) -> Mapping[str, str]:
    """For the driver: GPU (uuid) that this process is on to the one that it is to have: home, if `onto` names none."""
    return {now: onto.get(home, home) for home, now in _stands(note, pid).items()}


def restored(note: Note, pids: Iterable[int], onto: Mapping[str, str]) -> Note:
    """The note once these have made their restore with that map, and others perhaps not."""
    moved = {pid: {home: onto.get(home, home) for home in _stands(note, pid)} for pid in pids}
    return note.model_copy(update={"ranks": {**note.ranks, **moved}})


def _stands(note: Note, pid: int) -> Mapping[str, str]:
    """Home to the GPU that the driver counts it on now. Of one that the note does not name: all that its container left
    (a note of an older agent, or of a container that came from another node, where its processes had other pids).
    """
    if pid in note.ranks:
        return note.ranks[pid]
    return {here: left for left, here in note.onto.items()} or {home: home for home in note.held}
