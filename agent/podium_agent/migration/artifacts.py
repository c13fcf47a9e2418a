"""Records of the artifacts of live migrations, on the node's disk: one file per pod, written before the artifacts.

The controller writes the records, and the garbage collector reads them. An agent that is killed half-way leaves an
archive on the node and an image in the registry. Only the next agent of the same node knows them, by these records.
The functions block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium_agent.migration.kubelet import ContainerRef
from podium_agent.notes import Notes
from podium_agent.observe.pods import TrialPod
from podium_core.domain.keys import TrialKey


class ArtifactRecord(BaseModel):
    """Artifacts of one pod; `images` are references by digest, pushed or about to be pushed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    trial: str
    uid: str
    pod: str
    container: str
    images: tuple[str, ...] = ()

    @property
    def key(self) -> TrialKey:
        """Key of the pod's trial."""
        return TrialKey(self.namespace, self.trial, self.uid)

    @property
    def container_ref(self) -> ContainerRef:
        """The container of the archive."""
        return ContainerRef(self.namespace, self.pod, self.container)


class ArtifactRecords:
    """The records by UID of the pod. `clock` is monotonic: the wall clock of a node may jump."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = Notes(folder, ArtifactRecord, of="migration artifacts of pod")
        self._clock = clock
        self._known_since: dict[str, float] = {}  # last write by this agent, or first read of an earlier agent's record

    def begin(self, pod: TrialPod) -> None:
        """Write the record of a pod before its checkpoint is requested."""
        key, before = pod.key, self.read().get(pod.uid)
        images = () if before is None else before.images
        record = ArtifactRecord(
            namespace=key.namespace,
            trial=key.name,
            uid=key.uid,
            pod=pod.name,
            container=pod.containers.names[0],
            images=images,
        )
        self._write(pod.uid, record)

    def add_image(self, pod_uid: str, image: str) -> None:
        """Add an image before it is pushed."""
        before = self.read().get(pod_uid)
        if before is not None:
            self._write(pod_uid, before.model_copy(update={"images": (*before.images, image)}))

    def remove_images(self, pod_uid: str, images: Collection[str]) -> tuple[str, ...]:
        """Remove deleted images from the record and return the remaining ones."""
        record = self.read().get(pod_uid)
        if record is None:
            return ()
        remaining = tuple(image for image in record.images if image not in images)
        if remaining != record.images:
            self._write(pod_uid, record.model_copy(update={"images": remaining}))
        return remaining

    def remove(self, pod_uid: str) -> None:
        """Remove the record of a pod."""
        self._notes.drop(pod_uid)
        self._known_since.pop(pod_uid, None)

    def age(self, pod_uid: str) -> float:
        """Return the seconds since the record was written, or since this agent first read it."""
        now = self._clock()
        return now - self._known_since.get(pod_uid, now)

    def read(self) -> dict[str, ArtifactRecord]:
        """Read all records."""
        records = self._notes.all()
        for pod_uid in records:
            self._known_since.setdefault(pod_uid, self._clock())
        return records

    def _write(self, pod_uid: str, record: ArtifactRecord) -> None:
        self._notes.write(pod_uid, record, f"live migration of {record.pod}")
        self._known_since[pod_uid] = self._clock()
