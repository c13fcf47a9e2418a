"""Kueue, JobSet and Kubeflow Trainer for the dev cluster: pinned modules, the cache, and changes to their manifests."""

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
from podium_devcluster.runtime.controllers import (
    BY_COMMAND,
    JOBSET,
    KUEUE,
    KUEUE_FEATURE_GATES,
    PROGRAM,
    TRAINER,
    Controller,
)

every_controller = pytest.mark.parametrize("controller", BY_COMMAND.values(), ids=BY_COMMAND)


@every_controller
def test_the_version_is_pinned_by_hashes(controller: Controller) -> None:
    name, version = controller.module.module, controller.module.version
    lines = (controller.module.pinned.folder / "go.sum").read_text().splitlines()
    assert all(re.fullmatch(r"\S+ v\S+ h1:[A-Za-z0-9+/]{43}=", line) for line in lines)
    assert any(line.startswith(f"{name} v{version} h1:") for line in lines)


@every_controller
def test_program_and_manifests_are_built_once_for_each_version(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (manifests,) = controller.module.sources
    source = tmp_path / "module"
    (source / manifests).mkdir(parents=True)
    (source / manifests / "kustomization.yaml").write_text("resources: []\n")
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
    first = controller.module.ensure(cache, Progress())
    assert controller.module.ensure(cache, Progress()) == first
    assert len(built) == 1
    assert (first / manifests / "kustomization.yaml").exists()
    image = read_archive(program_image(first, PROGRAM, controller.image, cache))
    assert image is not None
    assert image.name == controller.image == f"localhost/{controller.module.name}:v{controller.module.version}"
    assert [entry.name for entry in cache.bin.iterdir()] == [controller.module.folder_name], (
        "nothing unfinished is left"
    )


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gobuild.PinnedModule, "build", build)
    cache = Cache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        KUEUE.module.ensure(cache, Progress())
    assert list(cache.bin.iterdir()) == []


def changes(controller: Controller) -> dict[str, object]:
    """Return the new values in the deployment, by the last word of their paths."""
    (patch,) = controller.kustomization()["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": controller.deployment}
    return {change["path"].rpartition("/")[2]: change["value"] for change in json.loads(patch["patch"])}


@every_controller
def test_the_manifests_get_image_and_user(controller: Controller) -> None:
    found = changes(controller)
    assert found["image"] == controller.image
    assert found["runAsUser"] == 65532, "the manifests forbid root"


def test_kueue_gets_its_feature_gates() -> None:
    assert changes(KUEUE)["-"] == f"--feature-gates={','.join(KUEUE_FEATURE_GATES)}"
    assert "-" not in changes(JOBSET)


def test_the_trainer_refers_to_nothing_on_the_web_and_has_a_secret_for_its_certificate() -> None:
    found = TRAINER.kustomization()
    assert all(name.startswith(("manifests/base/", "manifests/overlays/manager/n")) for name in found["resources"])
    assert [secret["name"] for secret in found["secretGenerator"]] == [TRAINER.secret]
    assert found["namespace"] == TRAINER.namespace
    assert TRAINER.requires is JOBSET


@pytest.mark.parametrize("command", BY_COMMAND)
def test_the_command_line(command: str) -> None:
    assert parser().parse_args([command, "--name", "other"]).name == "other"
