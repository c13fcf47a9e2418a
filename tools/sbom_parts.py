"""Read what Podium consists of: the locked Python packages, and the content of an image's root folder.

Nothing is executed and no registry is asked. `sbom.py` writes the result in the CycloneDX format.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

PYTHON_FOLDERS = ("opt/podium/lib/python3*/site-packages", "usr/local/lib/python3*/site-packages")
PROGRAMS = "usr/local/lib/podium"
FILES = (
    *(f"{folder}/*.dist-info/METADATA" for folder in PYTHON_FOLDERS),
    *("var/lib/dpkg/status", "var/lib/dpkg/status.d/*", "usr/lib/os-release", f"{PROGRAMS}/*"),
    *("usr/local/include/python3*/patchlevel.h", "usr/local/bin/python3*"),
)
"""The files of an image that `read_image` reads, as patterns."""
_VIA = re.compile(r"^    #(?: via|  ) (?P<name>[A-Za-z0-9._-]+)")
_PYTHON_VERSION = re.compile(r'^#define PY_VERSION\s+"(?P<version>[^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PythonPackage:
    """A Python package.

    `hashes`: SHA-256 of its wheels and source archive; `parents`: packages that require it.
    """

    name: str
    version: str
    hashes: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    marker: str = ""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """A Debian package of an image. `distribution`: for example `debian-13`."""

    name: str
    version: str
    architecture: str
    distribution: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is in no package.

    It is one of Podium's C programs, or the interpreter of an official Python image.
    """

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Image:
    """Content of an image's root folder."""

    python: tuple[PythonPackage, ...]
    debian: tuple[DebianPackage, ...]
    programs: tuple[Program, ...]


def read_lock(text: str) -> tuple[PythonPackage, ...]:
    """Return the packages of a lock file that uv wrote, sorted.

    Raises ValueError for a line that pins no version.
    """
    packages: list[PythonPackage] = []
    head: Requirement | None = None
    hashes: list[str] = []
    parents: list[str] = []

    def finish() -> None:
        if head is not None:
            (pin,) = head.specifier
            marker = str(head.marker or "")
            packages.append(_package(head.name, pin.version, tuple(sorted(hashes)), tuple(sorted(parents)), marker))
        hashes.clear()
        parents.clear()

    for line in text.splitlines():
        if line.startswith("    --hash=sha256:"):
            hashes.append(line.split(":", 1)[1].rstrip(" \\"))
        elif via := _VIA.match(line):
            parents.append(canonicalize_name(via["name"]))
        elif line and not line.startswith((" ", "#")):
            finish()
            head = _pinned(line)
    finish()
    return tuple(sorted(packages, key=lambda package: (package.name, package.version)))


def _pinned(line: str) -> Requirement:
    try:
        requirement = Requirement(line.rstrip(" \\"))
    except InvalidRequirement as error:
        raise ValueError(f"{line!r} is not a requirement ({error}); write the lock with `make lock`") from None
    if [pin.operator for pin in requirement.specifier] != ["=="]:
        raise ValueError(f"{line!r} pins no version; write the lock with `make lock`")
    return requirement


def _package(name: str, version: str, hashes: tuple[str, ...], parents: tuple[str, ...], marker: str) -> PythonPackage:
    return PythonPackage(canonicalize_name(name), version, hashes, parents, marker)


def read_image(root: Path, version: str, locked: tuple[PythonPackage, ...]) -> Image:
    """Return what the root folder of an image contains.

    `version`: Podium's, which its C programs have too; `locked`: packages whose hashes and parents are known. Raises
    ValueError for a folder without Podium.
    """
    known = {(package.name, package.version): package for package in locked}
    found = {(package.name, package.version): package for package in _python_packages(root)}
    if not any(name == "kube-podium" for name, _ in found):
        raise ValueError(f"{root} holds no Python package kube-podium; give the root folder of Podium's unpacked image")
    python = tuple(known.get(key, package) for key, package in sorted(found.items()))
    debian = sorted(_debian_packages(root), key=lambda package: (package.name, package.architecture))
    return Image(python, tuple(debian), (*_c_programs(root, version), *_interpreters(root)))


def _python_packages(root: Path) -> Iterator[PythonPackage]:
    for pattern in PYTHON_FOLDERS:
        for folder in sorted(root.glob(pattern)):
            for one in distributions(path=[str(folder)]):
                yield _package(one.metadata["Name"], one.version, (), (), "")


def _debian_packages(root: Path) -> Iterator[DebianPackage]:
    """Return the installed packages: in one file, or in one file each (images without dpkg)."""
    distribution = _distribution(root / "usr/lib/os-release")
    files = [root / "var/lib/dpkg/status", *sorted((root / "var/lib/dpkg/status.d").glob("*"))]
    for file in files:
        if not file.is_file() or file.suffix == ".md5sums":
            continue
        for paragraph in file.read_text(errors="replace").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[A-Z][\w-]*: ", line))
            if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
                yield DebianPackage(fields["Package"], fields["Version"], fields["Architecture"], distribution)


def _distribution(release: Path) -> str:
    """Return the image's distribution and its version, for example `debian-13`."""
    lines = release.read_text().splitlines() if release.is_file() else []
    stated = dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)
    return f"{stated.get('ID', 'debian')}-{stated.get('VERSION_ID', '')}".rstrip("-")


def _c_programs(root: Path, version: str) -> Iterator[Program]:
    for path in sorted((root / PROGRAMS).glob("*")):
        if path.is_file() and not path.is_symlink():
            yield Program(path.name, version, hashlib.sha256(path.read_bytes()).hexdigest())


def _interpreters(root: Path) -> Iterator[Program]:
    """Return interpreters below /usr/local, as in official Python images: no Debian package contains them."""
    for header in sorted(root.glob("usr/local/include/python3*/patchlevel.h")):
        program = root / "usr/local/bin" / header.parent.name
        stated = _PYTHON_VERSION.search(header.read_text())
        if stated and program.is_file():
            yield Program("python", stated["version"], hashlib.sha256(program.read_bytes()).hexdigest())
