"""The choice of cluster and namespace by kubectl's rules.

The client library has other rules. It reads $KUBECONFIG when it is imported, treats an empty value as a file name,
fails on an empty file, and uses the current context of the *last* file. Thus it could use another cluster than kubectl.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of a pod, as the kubelet mounts it
_INVALID = (OSError, ValueError, YAMLError, AttributeError, KeyError, TypeError)  # errors of an invalid kubeconfig


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The cluster, user and namespace to use.

    `files` are the kubeconfigs that exist and are not empty, else all that were named. `account` states that the pod's
    own service account is to be used.
    """

    files: tuple[Path, ...]
    context: str | None
    namespace: str
    account: bool


def kubeconfig_paths(given: Path | None) -> list[Path]:
    """Return the file given, else those of $KUBECONFIG, else ~/.kube/config.

    The list is empty if $KUBECONFIG contains only separators (":").
    """
    variable = os.environ.get("KUBECONFIG") or "~/.kube/config"
    # Path.expanduser raises if the user has no home, as in some pods
    named = [str(given)] if given else variable.split(os.pathsep)
    return [Path(os.path.expanduser(one)) for one in named if one]


def find_target(given: Path | None, wanted: str | None) -> ClusterTarget:
    """Choose the cluster and namespace for a kubeconfig file and a context, which may both be None.

    The first of several files that names a context, or the namespace of one, decides. The service account is used in a
    pod if neither a file nor a context is given and no kubeconfig has a current context. An unreadable file is an error
    and never leads to another cluster; the client reports the error when it reads the file.
    """
    named, files = kubeconfig_paths(given), list[Path]()
    current: str | None = None
    namespaces: dict[str, Any] = {}
    broken = False
    for path in named:
        try:
            content = _read(path)
            if content is not None:
                files.append(path)
                current = current or content[0]
                namespaces = content[1] | namespaces
        except (FileNotFoundError, NotADirectoryError):
            continue
        except _INVALID:
            files.append(path)
            broken = True
    context = wanted or current
    return ClusterTarget(
        files=tuple(files or named),
        context=context,
        namespace=str(namespaces.get(context or "") or _default_namespace()),
        account=_in_pod() and not (given or context or broken),
    )


def _read(path: Path) -> tuple[str | None, dict[str, Any]] | None:
    """Return the current context and each context's namespace; None: the file is empty."""
    content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    if content is None:
        return None
    current = content.get("current-context")
    namespaces = {one["name"]: (one.get("context") or {}).get("namespace") for one in content.get("contexts") or []}
    return str(current) if current else None, namespaces


def _default_namespace() -> str:
    """Return the namespace for a context without one: in a pod its own namespace, whichever cluster is used."""
    if not _in_pod():
        return "default"
    try:
        own = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        own = ""
    return os.environ.get("POD_NAMESPACE") or own or "default"


def _in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
