"""Which kubeconfig files name the cluster, and which of their contexts is meant: kubectl's rules. Used by `client` and
by the command line.

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


def kubeconfigs(given: Path | None) -> list[Path]:
    """The file given, else those of $KUBECONFIG, else ~/.kube/config; none where $KUBECONFIG names none (":")."""
    told = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [given] if given else [Path(one).expanduser() for one in told.split(os.pathsep) if one]


def context_of(files: Sequence[Path], wanted: str | None) -> tuple[str | None, str]:
    """The context, `wanted` or the current one, and its namespace: of several files the first that says it counts."""
    namespaces: dict[str, Any] = {}
    for path in files:
        try:
            content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
            current = content.get("current-context")
            there = {one["name"]: (one.get("context") or {}).get("namespace") for one in content.get("contexts") or []}
        except (OSError, ValueError, YAMLError, AttributeError, KeyError, TypeError):
            continue  # the client, which needs the file, will say what is wrong with it
        wanted = wanted or (str(current) if current else None)
        namespaces = there | namespaces
    return wanted, str(namespaces.get(wanted or "") or "default")
