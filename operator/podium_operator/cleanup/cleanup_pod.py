"""Create the pod that removes the folder of a deleted job from its volume. Pure; used by `cleanup`.

The pod mounts the volume as the trials did and runs as the user that the template names (`runAsUser`). So it has the
same permissions as they had, and no others. A template with `runAsNonRoot` alone leaves the user to its image, which
cannot be read. Then the pod runs as the user of Podium's image (65532) and removes what that user may remove
(`fsGroup`). In both cases it passes Pod Security `restricted`. Otherwise it runs as root, with no rights except those
to remove other users' files.
"""

from __future__ import annotations

from typing import Any

from podium_core.schema.job import HyperParamJob
from podium_operator.act.checkpoint_volume import VOLUME, folder_of_job, source
from podium_operator.act.pod_manifest import owner

Manifest = dict[str, Any]

CLEANUP_LABEL = "podium.dev/cleanup"
MOUNT = "/volume"
SECONDS = 60
_USER_FIELDS = ("runAsUser", "runAsGroup")


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
                "securityContext": _of_container(template),
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


def _user_context(template: Manifest) -> Manifest:
    """Return the template's security context for the trial's user: the container's fields override the pod's."""
    of_pod = template.get("securityContext") or {}
    of_main = template["containers"][0].get("securityContext") or {}
    return {**of_pod, **of_main}


def _is_root(template: Manifest) -> bool:
    user = _user_context(template)
    return not user.get("runAsNonRoot") and not user.get("runAsUser")


def _of_pod(template: Manifest) -> Manifest:
    given = dict(template.get("securityContext") or {})
    given["seccompProfile"] = {"type": "RuntimeDefault"}
    return given if _is_root(template) else given | {"runAsNonRoot": True}


def _of_container(template: Manifest) -> Manifest:
    bounds: Manifest = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    if _is_root(template):
        # to read the folders of any user that the trial's image has, and to remove files from sticky folders
        bounds["capabilities"]["add"] = ["DAC_OVERRIDE", "FOWNER"]
        return bounds | {"runAsUser": 0}
    user = _user_context(template)
    return bounds | {field: user[field] for field in _USER_FIELDS if field in user}
