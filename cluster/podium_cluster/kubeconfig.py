"""Which cluster is meant, and which namespace: kubectl's rules. Used by `client`, the operator's kopf and the command
line.

The client library reads $KUBECONFIG when it is imported, takes an empty one for a name, stumbles over an empty file,
and goes by the current context of the *last* file: next to kubectl it would speak to another cluster.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of a pod, as the kubelet mounts it
_NONE = (OSError, ValueError, YAMLError, AttributeError, KeyError, TypeError)  # of a file that is no kubeconfig


@dataclass(frozen=True, slots=True)
class Told:
    """What the kubeconfigs say. `files`: those that are there and say something, else all that were named; `account`:
    the pod's own account is meant."""

    files: tuple[Path, ...]
    context: str | None
    namespace: str
    account: bool


def kubeconfigs(given: Path | None) -> list[Path]:
    """The file given, else those of $KUBECONFIG, else ~/.kube/config; none where $KUBECONFIG names none (":")."""
    told = os.environ.get("KUBECONFIG") or "~/.kube/config"
    # not Path.expanduser: it raises where there is no such home, and not every pod's user has one
    named = [str(given)] if given else told.split(os.pathsep)
    return [Path(os.path.expanduser(one)) for one in named if one]


def look(given: Path | None, wanted: str | None) -> Told:
    """`given`: a file; `wanted`: a context. Of several files the first that names a context, or a namespace of it,
    counts. The account is meant in a pod, where no file and no context was given and no kubeconfig has a current one.
    One that cannot be read is an error, and no reason to go elsewhere: the client, which needs it, will say what is
    wrong with it.
    """
    named, files = kubeconfigs(given), list[Path]()
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
        except _NONE:
            files.append(path)
            broken = True
    context = wanted or current
    return Told(
        files=tuple(files or named),
        context=context,
        namespace=str(namespaces.get(context or "") or _namespace_here()),
        account=_in_pod() and not (given or context or broken),
    )


def _read(path: Path) -> tuple[str | None, dict[str, Any]] | None:
    """The current context, and each context's namespace; None: the file is empty."""
    content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    if content is None:
        return None
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
