"""CoreDNS and Katib for the dev cluster: the pinned modules, the images, and the changes to Katib's manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from podium_devcluster.artifacts import builders, katib
from podium_devcluster.artifacts.gomodule import GoModule
from podium_devcluster.artifacts.oci import read_archive
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import dns
from podium_devcluster.runtime import katib as runtime

PARTS = (*katib.MODULE.programs, katib.MEDIANSTOP)
IMAGES = {part: katib.image_name(part, "1.2.3") for part in PARTS}


@pytest.mark.parametrize("module", [dns.MODULE, katib.MODULE], ids=lambda module: module.name)
def test_the_version_is_pinned_by_hashes(module: GoModule) -> None:
    lines = (module.pinned.folder / "go.sum").read_text().splitlines()
    assert all(re.fullmatch(r"\S+ v\S+ h1:[A-Za-z0-9+/]{43}=", line) for line in lines)
    assert any(line.startswith(f"{module.module} v{module.version} h1:") for line in lines)


class Built(builders.Buildah):
    """Records the context of an image instead of building it."""

    def base_key(self) -> str:
        return "base"

    def build(self, order: builders.Order, out: Path) -> Path:
        out.mkdir()
        for file in order.context.rglob("*"):
            if file.is_file():
                (out / file.name).write_text(file.relative_to(order.context).as_posix())
        return out


def test_the_median_stopping_image_has_the_modules_own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    cache.images.mkdir(parents=True)
    folder = cache.bin / katib.MODULE.folder_name
    for program in katib.MODULE.programs:
        (folder / program).parent.mkdir(parents=True, exist_ok=True)
        (folder / program).write_text(program)
    for name in ("cmd/earlystopping/medianstop", "pkg/earlystopping", "pkg/apis/manager/v1beta1/python"):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{Path(name).name}.py").write_text("")
    monkeypatch.setattr(builders, "choose", Built)
    made = katib.ensure(cache, Progress())
    assert katib.ensure(cache, Progress()) == made
    assert set(made.images) == set(PARTS)
    *programs, medianstop = made.archives
    assert [image.name for one in programs if (image := read_archive(one))] == [
        made.images[part] for part in katib.MODULE.programs
    ]
    context = {(medianstop / file.name).read_text() for file in medianstop.iterdir()}
    assert context == {
        "Dockerfile", "requirements.lock", "cmd/earlystopping/medianstop/medianstop.py",
        "pkg/earlystopping/earlystopping.py",
        "pkg/apis/manager/v1beta1/python/python.py",
    }  # fmt: skip


def test_the_manifests_get_images_and_the_database() -> None:
    found = runtime.kustomization(IMAGES)
    patches = {one["target"]["name"]: json.loads(one["patch"]) for one in found["patches"]}
    values = {name: {one["path"].rpartition("/")[2]: one["value"] for one in many} for name, many in patches.items()}
    assert {name: one["image"] for name, one in values.items()} == {name: IMAGES[name] for name in runtime.DEPLOYMENTS}
    assert values["katib-controller"]["command"] == ["/katib-controller"]
    assert {"name": "KATIB_POSTGRESQL_DB_HOST", "value": "10.88.0.1"} in values["katib-db-manager"]["env"]


def test_the_configuration_names_the_images_of_all_services() -> None:
    config: dict[str, Any] = {
        "kind": "KatibConfig",
        "init": {"certGenerator": {"enable": True}, "controller": {"a": 1}},
    }
    found = runtime.configuration(config, IMAGES)
    assert found["init"]["certGenerator"] == {"enable": True}
    assert found["init"]["controller"] == {"a": 1, "trialResources": ["Job.v1.batch"]}
    services = [one for many in found["runtime"].values() for one in many]
    assert {one["image"] for one in services} == {IMAGES[part] for part in PARTS if part not in runtime.DEPLOYMENTS}
    assert all(one["resources"]["limits"]["ephemeral-storage"] == "-1" for one in services)


def test_coredns_has_the_address_that_kubelets_name() -> None:
    objects = {one["kind"]: one for one in YAML(typ="safe").load_all(dns.manifest("localhost/coredns:v1"))}
    assert objects["Service"]["spec"]["clusterIP"] == "10.96.0.10"
    assert objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/coredns:v1"
    assert "kubernetes cluster.local in-addr.arpa" in objects["ConfigMap"]["data"]["Corefile"]
