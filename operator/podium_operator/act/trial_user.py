"""Security context of containers that work on the trials' volume with Podium's image. Pure.

They run as the user that the template names (`runAsUser`), so they have the permissions of the trials and no others. A
template with `runAsNonRoot` alone leaves the user to its image, which cannot be read; then they run as the user of
Podium's image (65532). In both cases they pass Pod Security `restricted`. Otherwise they run as root, with no rights
except the named capabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Manifest = dict[str, Any]

_USER_FIELDS = ("runAsUser", "runAsGroup")


def is_root(template: Manifest) -> bool:
    """Return whether the trials may run as root; `template`: the spec of their pods."""
    user = _user_context(template)
    return not user.get("runAsNonRoot") and not user.get("runAsUser")


def container_context(template: Manifest, capabilities: Sequence[str]) -> Manifest:
    """Return the security context of the container. `capabilities`: those that root needs."""
    bounds: Manifest = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    if is_root(template):
        bounds["capabilities"]["add"] = [*capabilities]
        return bounds | {"runAsUser": 0}
    user = _user_context(template)
    return bounds | {field: user[field] for field in _USER_FIELDS if field in user}


def _user_context(template: Manifest) -> Manifest:
    """Return the template's security context for the trial's user: the container's fields override the pod's."""
    of_pod = template.get("securityContext") or {}
    of_main = template["containers"][0].get("securityContext") or {}
    return {**of_pod, **of_main}
