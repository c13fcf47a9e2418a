"""Every image is built from bases that a digest names, so that the same commit builds from the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium_devcluster.artifacts.builders import docker_base

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT, *(ROOT / name for name in ("agent", "benchmarks", "charts", "devcluster", "examples", "tests")))
DOCKERFILES = sorted(
    {
        path
        for folder in FOLDERS
        for path in (folder.glob("*Dockerfile*") if folder == ROOT else folder.rglob("*Dockerfile*"))
        if path.is_file()
    }
)
PINNED = re.compile(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def bases(text: str) -> list[str]:
    """Return the images that a Dockerfile builds from, if no argument is given."""
    defaults = {f"${{{name}}}": value for name, value in re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE)}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    used = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    used += re.findall(r"^(?:COPY|RUN).*?--(?:from|mount=\S*from)=([^\s,]+)", text, re.MULTILINE)
    return [defaults.get(image, image) for image in used if image not in stages]


def test_all_dockerfiles_are_known() -> None:
    assert [path.relative_to(ROOT).as_posix() for path in DOCKERFILES] == [
        "Dockerfile",
        "devcluster/katib/Dockerfile",
        "examples/digits/Dockerfile",
        "examples/pytorch/Dockerfile",
    ]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_base_has_a_digest(path: Path) -> None:
    found = bases(path.read_text())
    assert found
    unpinned = [image for image in found if not PINNED.fullmatch(image)]
    assert not unpinned, f"{path}: pin {unpinned} as docs/how-to/contribute.md describes"


def test_an_unpinned_base_would_be_seen() -> None:
    text = "ARG BASE=python:3.13\nFROM ${BASE} AS a\nFROM a AS b\nFROM scratch:1\n"
    text += "COPY --from=a /x /\nCOPY --from=gcc:14 /y /\n"
    assert bases(text) == ["python:3.13", "scratch:1", "gcc:14"]


def test_the_dev_cluster_builds_with_docker_from_the_same_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODIUM_BASE_IMAGE", raising=False)
    monkeypatch.delenv("PODIUM_BUILD_BASE_IMAGE", raising=False)
    used = [docker_base("PODIUM_BASE_IMAGE"), docker_base("PODIUM_BUILD_BASE_IMAGE")]
    assert sorted(set(bases((ROOT / "Dockerfile").read_text()))) == sorted(used)
    monkeypatch.setenv("PODIUM_BASE_IMAGE", "mine:1")
    assert docker_base("PODIUM_BASE_IMAGE") == "mine:1"
