"""Create the pod that removes the folder of a deleted job from its volume. Pure; used by `cleanup`.

The pod mounts the volume as the trials did, and runs as their user (`trial_user`).
"""

from __future__ import annotations

from typing import Any

from podium_core.schema.job import HyperParamJob
from podium_operator.act.checkpoint_volume import VOLUME, folder_of_job, source
from podium_operator.act.pod_manifest import owner
from podium_operator.act.trial_user import container_context, is_root

Manifest = dict[str, Any]

CLEANUP_LABEL = "podium.dev/cleanup"
MOUNT = "/volume"
SECONDS = 60
# to read the folders of any user that the trial's image has, and to remove files from sticky folders
_CAPABILITIES = ("DAC_OVERRIDE", "FOWNER")


def make_cleanup_pod(job: HyperParamJob, image: str, number: int, node: str | None) -> Manifest:
    """Return the manifest of the pod.

    `node`: where the folder is, for a hostPath; None: every node can mount the volume.
    """
    checkpoint = job.spec.checkpoint
    if checkpoint is None:
        raise ValueError(f"job {job.metadata.name} has no checkpoint; nothing has to be removed")
    template: Manifest = job.spec.template["spec"]
    spec: Manifest = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "securityContext": _of_pod(template),
        "containers": [
            {
                "name": "remove",
                "image": image,
                "command": [
                    "python3",
                    "-m",
                    "podium_operator.cleanup.remove_folder",
                    MOUNT,
                    folder_of_job(job.metadata),
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",  # why it failed, for the Event
                "resources": {"requests": {"cpu": "50m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}},
                "securityContext": container_context(template, _CAPABILITIES),
                "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}],
            }
        ],
        "volumes": [{"name": VOLUME, **source(checkpoint.volume)}],
    }
    for field in ("imagePullSecrets", "tolerations", "nodeSelector"):
        if field in template:
            spec[field] = template[field]
    if node is not None:
        spec |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}  # bypasses the scheduler on drained nodes
        spec.pop("nodeSelector", None)
    meta = job.metadata
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta.name}-cleanup-{meta.uid[:8]}-{number}",  # differs from the pod of an older job
            "namespace": meta.namespace,
            "labels": {CLEANUP_LABEL: meta.uid},
            "ownerReferences": [owner("HyperParamJob", meta.name, meta.uid) | {"blockOwnerDeletion": False}],
        },
        "spec": spec,
    }


def _of_pod(template: Manifest) -> Manifest:
    given = dict(template.get("securityContext") or {})
    given["seccompProfile"] = {"type": "RuntimeDefault"}
    return given if is_root(template) else given | {"runAsNonRoot": True}
