"""Which pods were let through their gates on this node, noted on its disk before each gate opens.

Read by the conductor when an agent starts. A pod that is deleted by force is gone from the API while its processes
work; was it let in a moment before the agent died, GPUNode.status does not name it either. Only this note does: without
it the next agent would let another trial in beside it. The observer removes a note when the kernel has seen the end of
the pod's processes. A note that outlived a reboot names a pod of which nothing runs: it is removed at the first look.

It is not in the folder that trials see.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium_agent.notes import Notes
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod
from podium_core.domain.snapshot import TrialKey


class _Note(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    trial: str
    uid: str
    pod: str
    gpus: tuple[str, ...]


class Passages:
    """By uid of the pod."""

    def __init__(self, folder: Path) -> None:
        self._notes = Notes(folder, _Note, of="pod")

    def note(self, pod: TrialPod, gpus: tuple[str, ...]) -> None:
        key = pod.key
        note = _Note(namespace=key.namespace, trial=key.name, uid=key.uid, pod=pod.name, gpus=gpus)
        self._notes.write(pod.uid, note, f"{pod.name} is let through")

    def forget(self, pod_uid: str) -> None:
        self._notes.drop(pod_uid)

    def read(self) -> dict[str, Hint]:
        return {
            pod_uid: Hint(TrialKey(note.namespace, note.trial, note.uid), note.pod, note.gpus)
            for pod_uid, note in self._notes.all().items()
        }
