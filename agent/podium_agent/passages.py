"""Which pods were let through their gates on this node, noted on its disk before each gate opens.

Read by the conductor when an agent starts. A pod that is deleted by force is gone from the API while its processes
work; was it let in a moment before the agent died, GPUNode.status does not name it either. Only this note does: without
it the next agent would let another trial in beside it. The observer removes a note when the kernel has seen the end of
the pod's processes. A note that outlived a reboot names a pod of which nothing runs: it is removed at the first look.

It is not in the folder that trials see.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium.domain.snapshot import TrialKey
from podium_agent import notes
from podium_agent.pods import TrialPod
from podium_agent.records import Hint

log = logging.getLogger(__name__)


class _Note(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    trial: str
    uid: str
    pod: str
    gpus: tuple[str, ...]


class Passages:
    """One file a pod, named by its uid. A folder that cannot be written stops no trial: that is logged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, pod: TrialPod, gpus: tuple[str, ...]) -> None:
        key = pod.key
        text = _Note(namespace=key.namespace, trial=key.name, uid=key.uid, pod=pod.name, gpus=gpus).model_dump_json()
        try:
            notes.write(self._folder, pod.uid, text)
        except OSError as error:
            log.error("%s is let through without a note of it: %s", pod.name, error)

    def forget(self, pod_uid: str) -> None:
        try:
            (self._folder / pod_uid).unlink(missing_ok=True)
        except OSError as error:
            log.error("the note of pod %s stays: %s", pod_uid, error)

    def read(self) -> dict[str, Hint]:
        """By pod uid; what is no note of ours is passed over."""
        found: dict[str, Hint] = {}
        for place in notes.places(self._folder):
            try:
                note = _Note.model_validate_json(place.read_text())
            except (OSError, ValueError) as error:
                log.error("%s is not read as a note of a pod: %s", place, error)
                continue
            found[place.name] = Hint(TrialKey(note.namespace, note.trial, note.uid), note.pod, note.gpus)
        return found
