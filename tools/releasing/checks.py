"""Whether a checkout can be released: its version is stated equally everywhere, and its commit is all there is."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import sbom

GIT_SECONDS = 30
PAGES_WITH_VERSION = ("docs/how-to/install-offline.md",)


def check_version(root: Path, tag: str = "") -> str:
    """Return the version. Raises ValueError if the tag or a file has another one.

    `tag`: for example `v1.2.3`; the version in sdk/podium/__init__.py decides.
    """
    version = sbom.project_version(root)
    if tag and tag != f"v{version}":
        raise ValueError(
            f"the tag {tag} is not v{version}; set __version__ in sdk/podium/__init__.py, or tag v{version}"
        )
    chart = re.search(r"^version: (\S+)", (root / "charts/podium/Chart.yaml").read_text(), re.MULTILINE)
    if chart is None or chart[1] != version:
        raise ValueError(f"charts/podium/Chart.yaml: version must be {version} (got {chart and chart[1]})")
    if not re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        raise ValueError(f"CHANGELOG.md has no heading `## {version} - DATE`; rename `## Unreleased`")
    for page in PAGES_WITH_VERSION:
        for stated in re.findall(r"^ *(?:export )?VERSION=(\S+)", (root / page).read_text(), re.MULTILINE):
            if stated != version:
                raise ValueError(f"{page}: VERSION must be {version} (got {stated})")
    return version


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version in the changelog, without its heading. Pure."""
    section = re.search(rf"^## {re.escape(version)} - [^\n]*\n+(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise ValueError(f"CHANGELOG.md has no entries for {version}; add what users will see")
    return section[1].strip() + "\n"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit by its hash, and the number of files of the checkout that differ from it."""

    sha: str
    changed: int


def commit(root: Path, uncommitted: bool = False) -> Commit:
    """Return the commit. Raises ValueError if files differ from it, because the provenance would be wrong.

    `uncommitted` permits that, for trials.
    """
    try:
        head = _git(root, "rev-parse", "HEAD").strip()
        changed = [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{root} is not a git checkout ({error}); release from a clone") from error
    if changed and not uncommitted:
        shown = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        raise ValueError(f"{len(changed)} files differ from the commit: {shown}. Commit them, or set UNCOMMITTED=1")
    return Commit(head, len(changed))


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True).stdout
