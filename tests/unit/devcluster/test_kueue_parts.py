"""Kueue for the dev cluster: the pinned module, the cache, and the changes to its manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from podium_devcluster.artifacts import binaries, gobuild
from podium_devcluster.artifacts.gomodule import program_image
from podium_devcluster.artifacts.oci import read_archive
from podium_devcluster.main import parser
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime.kueue import FEATURE_GATES, IMAGE, MODULE, kustomization


def test_the_version_is_pinned_by_hashes() -> None:
    name, version = MODULE.module, MODULE.version
    lines = (MODULE.pinned.folder / "go.sum").read_text().splitlines()
    assert all(re.fullmatch(r"\S+ v\S+ h1:[A-Za-z0-9+/]{43}=", line) for line in lines)
    assert any(line.startswith(f"{name} v{version} h1:") for line in lines)


def test_program_and_manifests_are_built_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "module"
    (source / "config/default").mkdir(parents=True)
    (source / "config/default/kustomization.yaml").write_text("resources: []\n")
    built: list[Path] = []

    def build(self: gobuild.PinnedModule, package: str, flags: str, target: Path, *_: object) -> None:
        built.append(target)
        target.write_text("program")

    monkeypatch.setattr(gobuild.PinnedModule, "build", build)
    monkeypatch.setattr(gobuild.PinnedModule, "source", lambda *_: source)
    monkeypatch.setattr(binaries, "missing", lambda *_: ["one"])  # inputs of other builds are kept
    cache = Cache(tmp_path / "cache")
    cache.images.mkdir(parents=True)
    cache.bin.mkdir()
    first = MODULE.ensure(cache, Progress())
    assert MODULE.ensure(cache, Progress()) == first
    assert len(built) == 1
    assert (first / "config/default/kustomization.yaml").exists()
    image = read_archive(program_image(first, "manager", IMAGE, cache))
    assert image is not None
    assert image.name == IMAGE == f"localhost/kueue:v{MODULE.version}"
    assert [entry.name for entry in cache.bin.iterdir()] == [MODULE.folder_name], "nothing unfinished is left"


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gobuild.PinnedModule, "build", build)
    cache = Cache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        MODULE.ensure(cache, Progress())
    assert list(cache.bin.iterdir()) == []


def test_the_manifests_get_image_user_and_feature_gates() -> None:
    found = kustomization("localhost/kueue:v1")
    (patch,) = found["patches"]
    changes = {change["path"].rpartition("/")[2]: change["value"] for change in json.loads(patch["patch"])}
    assert found["resources"] == ["kueue/default"]
    assert changes["image"] == "localhost/kueue:v1"
    assert changes["runAsUser"] > 0, "the manifests forbid root"
    assert changes["-"] == f"--feature-gates={','.join(FEATURE_GATES)}"


def test_the_command_line() -> None:
    assert parser().parse_args(["kueue", "--name", "other"]).name == "other"
