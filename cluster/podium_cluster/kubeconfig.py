"""Which cluster is meant, and which namespace: kubectl's rules. Used by `client`, the operator's kopf and the command
line.

The client library reads $KUBECONFIG when it is imported, takes an empty one for a name, and goes by the current context
of the *last* file: next to kubectl it would speak to another cluster.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of a pod, as the kubelet mounts it
_NONE = (OSError, ValueError, YAMLError, AttributeError, KeyError, TypeError)  # of a file that is no kubeconfig


def kubeconfigs(given: Path | None) -> list[Path]:
    """The file given, else those of $KUBECONFIG, else ~/.kube/config; none where $KUBECONFIG names none (":")."""
    told = os.environ.get("KUBECONFIG") or "~/.kube/config"
    # not Path.expanduser: it raises where there is no such home, and not every pod's user has one
    return [given] if given else [Path(os.path.expanduser(one)) for one in told.split(os.pathsep) if one]


def context_of(files: Sequence[Path], wanted: str | None) -> tuple[str | None, str]:
    """The context, `wanted` or the current one, and its namespace: of several files the first that says it counts."""
    namespaces: dict[str, Any] = {}
    for path in files:
        try:
            current, there = _read(path)
        except _NONE:
            continue  # the client, which needs the file, will say what is wrong with it
        wanted = wanted or current
        namespaces = there | namespaces
    return wanted, str(namespaces.get(wanted or "") or _namespace_here())


def by_account(given: Path | None, wanted: str | None) -> bool:
    """Whether the pod's own account is meant: in a pod, where no file and no context was given and no kubeconfig has a
    current one. A kubeconfig that cannot be read is an error, and no reason to go elsewhere.
    """
    return _in_pod() and not given and not wanted and not any(map(_counts, kubeconfigs(None)))


def _counts(path: Path) -> bool:
    try:
        return _read(path)[0] is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except _NONE:
        return True


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """The current context, and each context's namespace; an empty file says nothing."""
    content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")) or {}
    current = content.get("current-context")
    there = {one["name"]: (one.get("context") or {}).get("namespace") for one in content.get("contexts") or []}
    return str(current) if current else None, there


def _namespace_here() -> str:
    """Where no context names one: the pod's own, whichever cluster is spoken to."""
    if not _in_pod():
        return "default"
    try:
        own = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        own = ""
    return os.environ.get("POD_NAMESPACE") or own or "default"


def _in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
