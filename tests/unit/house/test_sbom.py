"""Bills of materials (tools/sbom.py): valid CycloneDX 1.6, complete, and equal for equal input."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

sbom = importlib.import_module("sbom")
sbom_parts = importlib.import_module("sbom_parts")

EPOCH = 1_764_000_000
GATE = b"\x7fELF gate"
LOCK = """\
alpha==1.0 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via
    #   beta
    #   kube-podium (pyproject.toml)
Beta_Two==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:{a}
    # via kube-podium (pyproject.toml)
""".format(a="a" * 64, b="b" * 64)
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library
 continued: here

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1

"""


def check_schema(text: str) -> dict[str, Any]:
    """Return the document; it must keep the published schema, with no unknown field."""
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert errors is None, errors
    document: dict[str, Any] = json.loads(text)
    return document


def rootfs(folder: Path) -> Path:
    """Write the root folder of an image with one Debian package, two Python packages and two programs."""
    locked = sbom_parts.read_lock((ROOT / "requirements.lock").read_text())
    numpy = max(package.version for package in locked if package.name == "numpy")
    files = {
        "var/lib/dpkg/status": STATUS,
        "usr/lib/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "usr/local/include/python3.13/patchlevel.h": '#define PY_VERSION      	 "3.13.14"\n',
        "usr/local/bin/python3.13": "interpreter",
    }
    for name, version in (("kube-podium", sbom.project_version()), ("numpy", numpy), ("pip", "25.0")):
        place = f"opt/podium/lib/python3.13/site-packages/{name.replace('-', '_')}-{version}.dist-info/METADATA"
        files[place] = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    program = folder / "usr/local/lib/podium/podium-gate"
    program.parent.mkdir(parents=True)
    program.write_bytes(GATE)
    (program.parent / "outside").symlink_to("/etc/passwd")
    return folder


def test_the_wheel_lists_every_locked_package_with_its_hashes(tmp_path: Path) -> None:
    (path,) = sbom.write(tmp_path, EPOCH)
    document = check_schema(path.read_text())
    lock = (ROOT / "requirements.lock").read_text()
    pins = {f"pkg:pypi/{name.lower()}@{version}" for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.M)}
    assert {part["purl"] for part in document["components"]} == pins
    hashes = [one["content"] for part in document["components"] for one in part["externalReferences"][0]["hashes"]]
    assert sorted(hashes) == sorted(set(hashes))
    assert set(hashes) == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", lock))
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/kube-podium@{sbom.project_version()}"
    assert document["metadata"]["timestamp"] == "2025-11-24T16:00:00+00:00"
    graph = {entry["ref"]: set(entry.get("dependsOn", ())) for entry in document["dependencies"]}
    roots = graph[document["metadata"]["component"]["bom-ref"]]
    assert any(ref.startswith("pkg:pypi/pydantic@") for ref in roots)
    (pydantic,) = (ref for ref in roots if ref.startswith("pkg:pypi/pydantic@"))
    assert any(ref.startswith("pkg:pypi/pydantic-core@") for ref in graph[pydantic])
    reached, rest = set(roots), list(roots)
    while rest:
        new = graph[rest.pop()] - reached
        reached |= new
        rest += new
    assert reached == pins, "every package is there because of another one"


def test_equal_inputs_give_equal_bytes_and_another_date_another_document(tmp_path: Path) -> None:
    image = rootfs(tmp_path / "root")
    first = [path.read_bytes() for path in sbom.write(tmp_path / "one", EPOCH, image)]
    second = [path.read_bytes() for path in sbom.write(tmp_path / "two", EPOCH, image)]
    assert first == second
    (later, _) = (path.read_bytes() for path in sbom.write(tmp_path / "later", EPOCH + 1, image))
    assert json.loads(later)["serialNumber"] != json.loads(first[0])["serialNumber"]


def test_an_image_lists_what_its_root_folder_contains(tmp_path: Path) -> None:
    _, path = sbom.write(tmp_path / "out", EPOCH, rootfs(tmp_path / "root"))
    document = check_schema(path.read_text())
    version = sbom.project_version()
    parts = {part["purl"].partition("?")[0]: part for part in document["components"]}
    (numpy,) = (purl for purl in parts if purl.startswith("pkg:pypi/numpy@"))
    assert set(parts) == {
        "pkg:deb/debian/libc6@2.41-12",
        f"pkg:generic/podium-gate@{version}",
        "pkg:generic/python@3.13.14",
        f"pkg:pypi/kube-podium@{version}",
        "pkg:pypi/pip@25.0",
        numpy,
    }
    assert parts["pkg:deb/debian/libc6@2.41-12"]["purl"].endswith("?arch=amd64&distro=debian-13")
    gate = parts[f"pkg:generic/podium-gate@{version}"]["hashes"]
    assert gate == [{"alg": "SHA-256", "content": sbom_parts.hashlib.sha256(GATE).hexdigest()}]
    assert len(parts[numpy]["externalReferences"][0]["hashes"]) > 1, "as in the lock file"
    assert "externalReferences" not in parts["pkg:pypi/pip@25.0"], "it is not in the lock file"
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    assert set(graph[f"podium-image@{version}"]) == {part["bom-ref"] for part in document["components"]}
    assert graph[f"pkg:pypi/kube-podium@{version}"] == [numpy]


def test_a_folder_without_podium_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no Python package kube-podium; give the root folder"):
        sbom.write(tmp_path / "out", EPOCH, tmp_path)


def test_hashes_parents_and_markers_are_read_from_a_lock() -> None:
    alpha, beta = sbom_parts.read_lock(LOCK)
    assert (alpha.name, alpha.version, alpha.parents) == ("alpha", "1.0", ("beta", "kube-podium"))
    assert alpha.hashes == ("a" * 64, "b" * 64)
    assert (beta.name, beta.marker) == ("beta-two", 'python_full_version < "3.12"')


@pytest.mark.parametrize("line", ["alpha>=1.0", "alpha", "alpha==1.0,<2", "-e .", "alpha @ file:///x"])
def test_a_line_that_pins_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="make lock"):
        sbom_parts.read_lock(line)


@pytest.mark.parametrize("value", ["yesterday", "-1", "1.5"])
def test_an_invalid_date_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH must be seconds since 1970"):
        sbom.source_date({"SOURCE_DATE_EPOCH": value})
    assert sbom.source_date({"SOURCE_DATE_EPOCH": "12"}) == 12
