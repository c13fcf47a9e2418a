"""Hand the machine's pip configuration to a build without writing it into the image: a file, mounted meanwhile."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.shell import run

CERTIFICATES = Path("/etc/ssl/certs")
_LEFT_OUT = frozenset({"cert", "client-cert", "target", "prefix", "user", "require-virtualenv"})


@dataclass(frozen=True, slots=True)
class PipMounts:
    """`--volume` arguments: source, target."""

    volumes: tuple[tuple[Path, str], ...]


def parse(listing: str) -> dict[str, str]:
    """`pip config list`: lines like global.index-url='https://...'; env beats files. Pure."""
    options: dict[str, str] = {}
    for line in sorted(listing.splitlines(), key=lambda text: text.startswith(":env:")):
        name, found, value = line.partition("=")
        key = name.rpartition(".")[2]
        if found and key not in _LEFT_OUT:
            try:
                options[key] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                options[key] = value
    return options


def render(options: dict[str, str]) -> str:
    """A pip.conf. A value of several lines is continued by indentation. Pure."""
    lines = [f"{key} = {value.strip()}".replace("\n", "\n    ") for key, value in sorted(options.items())]
    return "\n".join(["[global]", *lines]) + "\n"


def mounts(folder: Path) -> PipMounts:
    """Certificates, a pip.conf where the machine has settings, and local wheel folders that it names."""
    volumes: list[tuple[Path, str]] = []
    if CERTIFICATES.is_dir():
        volumes.append((CERTIFICATES, str(CERTIFICATES)))
    options = parse(run([sys.executable, "-m", "pip", "config", "list"], timeout=60, check=False))
    if options:
        file = folder / "pip.conf"
        file.write_text(render(options))
        volumes.append((file, "/etc/pip.conf"))
    for place in options.get("find-links", "").split():
        local = Path(place.removeprefix("file://"))
        if local.is_absolute() and local.is_dir():
            volumes.append((local, str(local)))
    return PipMounts(tuple(volumes))
