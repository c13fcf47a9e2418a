"""References to the checkpoint images of migrated trials. Pure; agent and operator use them.

An image holds a trial's memory, and its pod runs what is in it. So both sides accept one form only: in the configured
registry, under the trial's namespace, by digest (OCI distribution-spec 1.1, "name" and "digest").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REPOSITORY = "podium-checkpoints"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(
    rf"(?P<registry>[A-Za-z0-9.\[\]:-]{{1,260}})/{REPOSITORY}/(?P<namespace>{_LABEL})/"
    rf"(?P<pod>(?=.{{1,253}}@){_LABEL}(?:\.{_LABEL})*)@sha256:(?P<digest>[0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Reference to a checkpoint image: registry, checkpointed pod, and SHA-256 (hex) of the manifest."""

    registry: str
    namespace: str
    pod: str
    digest: str

    @classmethod
    def parse(cls, reference: str) -> ImageReference:
        """Parse a reference; raises ValueError for every other form, also for one with `..` or a tag."""
        match = _NAME.fullmatch(reference) if len(reference) <= 1024 else None
        if match is None:
            raise ValueError(
                f"{reference[:200]!r} is not a checkpoint image: "
                f"it must be REGISTRY/{REPOSITORY}/NAMESPACE/POD@sha256:DIGEST"
            )
        return cls(**match.groupdict())

    @property
    def repository(self) -> str:
        """Repository of the image in its registry."""
        return repository_of(self.namespace, self.pod)


def repository_of(namespace: str, pod: str) -> str:
    """Return the repository of a pod's checkpoint images."""
    return f"{REPOSITORY}/{namespace}/{pod}"


def image_problem(reference: str, registry: str, namespace: str, trial: str) -> str:
    """Return why a trial may not continue from this image; empty if it may.

    `registry` is the configured one; empty: live migration is off.
    """
    if not registry:
        return "no registry for checkpoint images is configured (agent.checkpointRegistry)"
    try:
        image = ImageReference.parse(reference)
    except ValueError as error:
        return str(error)
    if image.registry != registry:
        return f"the image is in the registry {image.registry}, not in agent.checkpointRegistry ({registry})"
    name, _, attempt = image.pod.rpartition("-")
    if image.namespace != namespace or name != trial or not attempt.isdecimal():
        return f"the image belongs to the pod {image.namespace}/{image.pod}, not to a pod of this trial"
    return ""
