"""The permissions of the chart, as docs/reference/permissions.md explains them and as Helm renders them.

Each row explains one resource of one role. A text in its last column says why the tests on clusters use none of its
verbs. Every test can import this module: `tests/conftest.py` puts this folder on the path.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rbac_grants import Grant, Permission

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "permissions.md"
CHART = ROOT / "charts" / "podium"
RELEASE, NAMESPACE = "podium", "podium-system"
# with these values the chart grants every permission that it can grant
WIDEST = {
    "gpus.mode": "reservations",
    "gpus.reservations.priorityBoost": "true",
    "operator.rebalancing.enabled": "true",
    "scheduler.replicas": "2",
    "agent.checkpointRegistry": "registry.example:5000",
    "dashboard.enabled": "true",
}
PLACES = {"everywhere": "", "own namespace": NAMESPACE}
RESOURCE = re.compile(r"`(?P<kind>[a-z/]+)(?:\.(?P<group>[a-z0-9.-]+))?`(?: named `(?P<name>[a-z-]+)`)?")
Key = tuple[str, str, Permission]  # role, namespace, permission


@dataclass(frozen=True, slots=True)
class Explanation:
    """One permission of the page. `unused` says why the tests on clusters do not use it; empty if they do."""

    why: str
    unused: str


def key_of(grant: Grant) -> Key:
    """Return what identifies a grant on the page."""
    return grant.role, grant.namespace, grant.permission


def explanations(text: str) -> dict[Key, Explanation]:
    """Return the permissions of the page. Raises ValueError with the row that is malformed or a duplicate. Pure."""
    found: dict[Key, Explanation] = {}
    for role, cells in _rows(text):
        if len(cells) != 5:
            continue  # the tables of values and of Kubernetes' roles
        resource, where, verbs, why, unused = cells
        match = RESOURCE.fullmatch(resource)
        names = re.findall(r"`([a-z]+)`", verbs)
        if match is None or where not in PLACES or not names or not why:
            raise ValueError(f"{role}: the row {' | '.join(cells)} has no resource, place, verbs or reason")
        for verb in names:
            permission = Permission(verb, match["group"] or "", match["kind"], match["name"] or "")
            key = (role, PLACES[where], permission)
            if key in found:
                raise ValueError(f"{role}: {permission} is listed twice")
            found[key] = Explanation(why, unused)
    return found


def bound_roles(text: str) -> dict[str, str]:
    """Return the namespace of each role of Kubernetes that the page lists; "" for a ClusterRole. Pure."""
    rows = [cells for heading, cells in _rows(text) if heading == "Roles of Kubernetes"]
    return {role.strip("`"): PLACES.get(where, where.strip("`")) for role, where, _ in rows}


def _rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the cells of each row of a table, without the tables' heads."""
    heading, above = "", ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip("`")
        if line.startswith("|") and above.startswith("|") and not line.startswith("| ---"):
            yield heading, [cell.strip() for cell in line.strip().strip("|").split("|")]
        above = line


def unexplained(grants: Iterable[Grant], in_use: Container[Grant], known: Mapping[Key, Explanation]) -> list[Grant]:
    """Return the grants that are neither in use nor explained as unused. Pure."""
    return [one for one in grants if one not in in_use and not ((row := known.get(key_of(one))) and row.unused)]


def rendered(helm: Path, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the objects of the chart with these values, with those of hooks."""
    options = [f"--set={name}={value}" for name, value in values.items()]
    command = [
        str(helm),
        "template",
        RELEASE,
        str(CHART),
        f"--namespace={NAMESPACE}",
        "--kube-version=1.36.3",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"helm template failed: {done.stderr}")
    return [item for item in yaml.safe_load_all(done.stdout) if item]
