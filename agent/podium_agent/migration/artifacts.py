"""What the making of an image leaves behind, noted on the node's disk before it is there: a file for each pod.

Written by `departures`, read by `sweeping`. An agent that is killed in the middle leaves an archive on the node and an
image in the registry that nobody knows of but the next agent of this node, by this note. Other nodes' are in their own.
Blocking.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from podium_agent.migration.kubelet import Container
from podium_agent.notes import Notes
from podium_agent.observe.pods import TrialPod
from podium_core.domain.snapshot import TrialKey


class Trace(BaseModel):
    """`images`: by digest, pushed or about to be."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    trial: str
    uid: str
    pod: str
    container: str
    images: tuple[str, ...] = ()

    @property
    def key(self) -> TrialKey:
        return TrialKey(self.namespace, self.trial, self.uid)

    @property
    def place(self) -> Container:
        return Container(self.namespace, self.pod, self.container)


class Traces:
    """By uid of the pod."""

    def __init__(self, folder: Path) -> None:
        self._notes = Notes(folder, Trace, of="what is left by pod")

    def begin(self, pod: TrialPod) -> None:
        """Before the archive is asked for."""
        key, before = pod.key, self.read().get(pod.uid)
        images = () if before is None else before.images
        trace = Trace(
            namespace=key.namespace,
            trial=key.name,
            uid=key.uid,
            pod=pod.name,
            container=pod.containers[0],
            images=images,
        )
        self._write(pod.uid, trace)

    def pushes(self, pod_uid: str, image: str) -> None:
        """Before the image is in the registry."""
        before = self.read().get(pod_uid)
        if before is not None:
            self._write(pod_uid, before.model_copy(update={"images": (*before.images, image)}))

    def drop(self, pod_uid: str, images: Collection[str]) -> tuple[str, ...]:
        """They are removed; those that are left."""
        trace = self.read().get(pod_uid)
        if trace is None:
            return ()
        left = tuple(image for image in trace.images if image not in images)
        if left != trace.images:
            self._write(pod_uid, trace.model_copy(update={"images": left}))
        return left

    def forget(self, pod_uid: str) -> None:
        self._notes.drop(pod_uid)

    def age(self, pod_uid: str, now: float) -> float:
        """Seconds since it was written last; `now`: since 1970."""
        return self._notes.age(pod_uid, now)

    def read(self) -> dict[str, Trace]:
        return self._notes.all()

    def _write(self, pod_uid: str, trace: Trace) -> None:
        self._notes.write(pod_uid, trace, f"{trace.pod} leaves")
