"""NVIDIA's programs for the dev cluster: the pinned modules, the manifests, and the script that runs in a node."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from podium_devcluster.artifacts import gobuild
from podium_devcluster.artifacts.nvidia import DRA_DRIVER, FEATURE_DISCOVERY, PROGRAMS, NvidiaProgram, folder_name
from podium_devcluster.main import parser
from podium_devcluster.paths import project_dir
from podium_devcluster.runtime import nvidia

HEADER = (project_dir() / "agent/driver/state.h").read_text()
SCRIPT = Path(nvidia.__file__).with_name("nvidia_node.sh")


def documents(name: str) -> list[Any]:
    return list(YAML(typ="safe").load_all((project_dir() / "devcluster/manifests" / name).read_text()))


@pytest.mark.parametrize("program", [*PROGRAMS, *FEATURE_DISCOVERY, *DRA_DRIVER], ids=lambda program: program.name)
def test_the_version_of_each_program_is_pinned_by_hashes(program: NvidiaProgram) -> None:
    module = "k8s.io/dynamic-resource-allocation" if program.own else program.package.partition("/cmd/")[0]
    lines = (program.pinned.folder / "go.sum").read_text().splitlines()
    assert all(re.fullmatch(r"\S+ v\S+ h1:[A-Za-z0-9+/]{43}=", line) for line in lines)
    assert any(line.startswith(f"{module} v{program.version} h1:") for line in lines)


def test_the_folder_of_the_programs_changes_with_what_they_are_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gobuild, "project_dir", lambda: tmp_path)
    folder = tmp_path / "devcluster/gomodules/k8s-device-plugin"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module m\n\ngo 1.26.0\n\nrequire github.com/NVIDIA/k8s-device-plugin v0.19.3\n")
    (folder / "go.sum").write_text("a")
    program = NvidiaProgram("nvidia-device-plugin", "k8s-device-plugin", 1.0)
    before = folder_name([program])
    assert before == folder_name([program])
    (folder / "go.sum").write_text("b")
    assert folder_name([program]) != before
    assert program.version == "0.19.3"
    (folder / "go.mod").write_text("module m\n")
    with pytest.raises(ValueError, match=r"requires no version of github\.com/NVIDIA/k8s-device-plugin; restore"):
        _ = program.version


def test_the_libraries_are_named_by_the_version_that_the_driver_reports() -> None:
    assert nvidia.driver_version(HEADER) == "610.43.02"
    with pytest.raises(ValueError, match="DRIVER_VERSION"):
        nvidia.driver_version("")


def test_the_script_of_a_node_is_valid_shell() -> None:
    subprocess.run(["/bin/sh", "-n", str(SCRIPT)], check=True, timeout=10)


def test_the_plugin_has_the_paths_of_programs_driver_and_kubelet() -> None:
    (daemon,) = documents("nvidia-device-plugin.yaml")
    spec = daemon["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    volumes = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts == volumes | {"driver": "/driver-root"}
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment["DRIVER_ROOT_CTR_PATH"] == mounts["driver"]
    script = SCRIPT.read_text()
    assert f"root={environment['NVIDIA_DRIVER_ROOT']}\n" in script
    assert f"fake={volumes['fake-driver']} " in script
    assert container["command"] == [f"{mounts['programs']}/nvidia-device-plugin"]
    assert nvidia.DRIVER_LIBRARIES.startswith(environment["NVIDIA_DRIVER_ROOT"])


def test_the_dra_driver_is_built_from_its_sources_and_has_the_paths_of_the_kubelet() -> None:
    (program,) = DRA_DRIVER
    names = {file.name for file in program.pinned.sources}
    assert names == {"go.mod", "go.sum", "main.go", "gpus.go", "plugin.go"}
    assert (program.package, program.flags) == (".", "-s -w")
    *others, daemon = documents("nvidia-dra-driver.yaml")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    volumes = {one["name"]: one["hostPath"]["path"] for one in daemon["spec"]["template"]["spec"]["volumes"]}
    assert {one["name"]: one["mountPath"] for one in container["volumeMounts"]} == volumes
    assert container["command"][0] == f"{volumes['programs']}/{program.name}"
    assert container["command"][1].startswith(volumes["fake-driver"])
    (device_class,) = [one for one in others if one["kind"] == "DeviceClass"]
    assert device_class["metadata"]["name"] == nvidia.DRA_DRIVER
    assert device_class["spec"]["extendedResourceName"] == nvidia.RESOURCE
    assert f'const driverName = "{nvidia.DRA_DRIVER}"' in (program.pinned.folder / "main.go").read_text()


def test_the_runtime_class_names_the_handler_of_the_toolkit() -> None:
    (runtime_class,) = documents("nvidia-runtime-class.yaml")
    assert (runtime_class["metadata"]["name"], runtime_class["handler"]) == ("nvidia", "nvidia")


@pytest.mark.parametrize(
    ("words", "strategy", "no_plugin", "dynamic"),
    [
        ([], "cdi-cri", False, False),
        (["--strategy=envvar"], "envvar", False, False),
        (["--no-plugin"], "cdi-cri", True, False),
        (["--dra"], "cdi-cri", False, True),
    ],
)
def test_the_command_line(words: list[str], strategy: str, no_plugin: bool, dynamic: bool) -> None:
    options = parser().parse_args(["nvidia", *words])
    assert (options.strategy, options.no_plugin, options.dra) == (strategy, no_plugin, dynamic)


def test_only_one_part_gives_out_the_gpus() -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["nvidia", "--dra", "--no-plugin"])
