"""Write software bills of materials (CycloneDX 1.6, JSON): `python tools/sbom.py FOLDER [--rootfs ROOT]`; `make sbom`.

`kube-podium-VERSION.cdx.json` describes the wheel with its locked dependencies. With `--rootfs`, the root folder of an
unpacked image, `podium-image-VERSION.cdx.json` describes the image: Python and Debian packages, and C programs. The
output depends on the input and SOURCE_DATE_EPOCH (default: the time of the last commit) only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from sbom_parts import DebianPackage, Program, PythonPackage, read_image, read_lock

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "kube-podium"


def project_version(root: Path = ROOT) -> str:
    """Return Podium's version."""
    stated = re.search(r'^__version__ = "([^"]+)"', (root / "sdk/podium/__init__.py").read_text(), re.MULTILINE)
    if stated is None:
        raise ValueError('sdk/podium/__init__.py has no line `__version__ = "..."`')
    return stated[1]


def source_date(environment: Mapping[str, str] = os.environ, root: Path = ROOT) -> int:
    """Return the time that all outputs carry, in seconds since 1970. Raises ValueError for an invalid one."""
    given = environment.get("SOURCE_DATE_EPOCH", "")
    if not given:
        command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        given = done.stdout.strip()
        if done.returncode != 0:
            raise ValueError("no SOURCE_DATE_EPOCH and no git history; set SOURCE_DATE_EPOCH to seconds since 1970")
    if not given.isdecimal():
        raise ValueError(f"SOURCE_DATE_EPOCH must be seconds since 1970 (got {given!r})")
    return int(given)


def wheel_bom(packages: Sequence[PythonPackage], version: str, epoch: int) -> Bom:
    """Return the bill of materials of the wheel with its dependencies."""
    root = _python(PythonPackage(PROJECT, version), ComponentType.APPLICATION)
    bom = _bom(root, [_python(package) for package in packages], epoch)
    _connect(bom, root, packages)
    return bom


def image_bom(rootfs: Path, locked: Sequence[PythonPackage], version: str, epoch: int) -> Bom:
    """Return the bill of materials of an image.

    Raises ValueError for a folder that does not hold Podium.
    """
    image = read_image(rootfs, version, tuple(locked))
    root = Component(name="podium", version=version, type=ComponentType.CONTAINER, bom_ref=f"podium-image@{version}")
    python = [_python(package) for package in image.python]
    others = [*map(_debian, image.debian), *map(_program, image.programs)]
    bom = _bom(root, [*python, *others], epoch)
    bom.register_dependency(root, [*python, *others])
    (podium,) = (component for component in python if component.name == PROJECT)
    _connect(bom, podium, [package for package in image.python if package.name != PROJECT])
    return bom


def to_json(bom: Bom) -> str:
    """Return the text of a bill of materials; equal ones have equal bytes."""
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _bom(root: Component, components: Iterable[Component], epoch: int) -> Bom:
    components = list(components)
    content = repr((epoch, sorted(part.bom_ref.value or "" for part in (root, *components)))).encode()
    return Bom(
        serial_number=uuid5(NAMESPACE_OID, hashlib.sha256(content).hexdigest()),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(epoch, UTC)),
        components=components,
    )


def _connect(bom: Bom, root: Component, packages: Sequence[PythonPackage]) -> None:
    """Add the dependencies of the root and among the packages."""
    parts = {part.bom_ref.value: part for part in bom.components}
    of = {package: parts[_purl(package).to_string()] for package in packages}
    bom.register_dependency(root, [of[package] for package in packages if PROJECT in package.parents])
    for parent in packages:
        bom.register_dependency(of[parent], [of[child] for child in packages if parent.name in child.parents])


def _purl(package: PythonPackage) -> PackageURL:
    return PackageURL("pypi", name=package.name, version=package.version)


def _python(package: PythonPackage, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = _purl(package)
    # one of these files is installed; which one depends on the platform
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=one) for one in package.hashes]
    files = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(purl.to_string()), hashes=hashes)
    return Component(
        name=package.name,
        version=package.version,
        type=kind,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[DisjunctiveLicense(id="Apache-2.0")] if package.name == PROJECT else [],
        external_references=[files] if hashes else [],
        properties=[Property(name="podium:environment-marker", value=package.marker)] if package.marker else [],
    )


def _debian(package: DebianPackage) -> Component:
    qualifiers = {"arch": package.architecture, "distro": package.distribution}
    purl = PackageURL("deb", "debian", package.name, package.version, qualifiers)
    return Component(name=package.name, version=package.version, purl=purl, bom_ref=purl.to_string())


def _program(program: Program) -> Component:
    purl = PackageURL("generic", name=program.name, version=program.version)
    return Component(
        name=program.name,
        version=program.version,
        type=ComponentType.APPLICATION,
        purl=purl,
        bom_ref=purl.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=program.sha256)],
    )


def write(folder: Path, epoch: int, rootfs: Path | None = None, root: Path = ROOT) -> list[Path]:
    """Write the bills of materials into `folder` and return their paths."""
    version, locked = project_version(root), read_lock((root / "requirements.lock").read_text())
    boms = {f"{PROJECT}-{version}.cdx.json": wheel_bom(locked, version, epoch)}
    if rootfs is not None:
        boms[f"podium-image-{version}.cdx.json"] = image_bom(rootfs, locked, version, epoch)
    folder.mkdir(parents=True, exist_ok=True)
    for name, bom in boms.items():
        (folder / name).write_text(to_json(bom))
    return [folder / name for name in boms]


def main() -> int:
    """Write the bills of materials that the arguments ask for; return the exit code."""
    parser = argparse.ArgumentParser(description="Write software bills of materials (CycloneDX 1.6).")
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--rootfs", type=Path, help="root folder of an unpacked image of Podium")
    options = parser.parse_args()
    try:
        for path in write(options.folder, source_date(), options.rootfs):
            print(path)
    except (OSError, ValueError) as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
