"""Notes on the node's disk of the pods that passed their gates; each is written before the gate opens.

An agent reads them when it starts. A pod that is deleted by force is gone from the API while its processes run. If the
previous agent died just after it opened that pod's gate, GPUNode.status does not name the pod either. Only this note
keeps the next agent from running another trial beside it. The observer removes a note when the kernel reports that the
pod's processes have ended. A note that outlived a reboot names a pod without processes and is removed at once.

The notes are not in the folder that is mounted into trials.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium_agent.notes import Failed, Notes, ignore
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod
from podium_core.domain.keys import TrialKey


class _Note(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    trial: str
    uid: str
    pod: str
    gpus: tuple[str, ...]


class Admissions:
    """Notes of the admitted pods, by the uid of the pod; `failed` is called for each write that fails."""

    def __init__(self, folder: Path, failed: Failed = ignore) -> None:
        self._notes = Notes(folder, _Note, of="pod", failed=failed)

    def note(self, pod: TrialPod, gpus: tuple[str, ...]) -> None:
        """Note that this pod is about to pass its gate."""
        key = pod.key
        note = _Note(namespace=key.namespace, trial=key.name, uid=key.uid, pod=pod.name, gpus=gpus)
        self._notes.write(pod.uid, note, f"{pod.name} is let through")

    def forget(self, pod_uid: str) -> None:
        """Remove the note of a pod."""
        self._notes.drop(pod_uid)

    def read(self) -> dict[str, Hint]:
        """Return what an earlier agent noted, by the uid of the pod."""
        return {
            pod_uid: Hint(TrialKey(note.namespace, note.trial, note.uid), note.pod, note.gpus)
            for pod_uid, note in self._notes.all().items()
        }
