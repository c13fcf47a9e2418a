"""Programs of Debian packages, unpacked into the cache without an installation, which would start their services."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from podium_devcluster import locks
from podium_devcluster.artifacts import debian
from podium_devcluster.paths import Cache
from podium_devcluster.shell import run

PROMETHEUS, PROMTOOL = "prometheus", "promtool"


def ensure(cache: Cache, package: str, programs: Sequence[str]) -> tuple[Path, ...]:
    """Return the programs in the cache's `bin`. Raises CommandError.

    The package is downloaded if one of them is missing.
    """
    wanted = tuple(cache.bin / name for name in programs)
    cache.bin.mkdir(parents=True, exist_ok=True)
    with locks.held(cache.root / "bin.lock", timeout=900):
        if all(program.exists() for program in wanted):
            return wanted
        with TemporaryDirectory(prefix="podium-package-") as folder:
            file = debian.download_package(package, Path(folder))
            run(["dpkg", "-x", str(file), f"{folder}/root"], timeout=120)
            for program in wanted:
                temporary = program.with_suffix(".tmp")
                temporary.write_bytes((Path(folder) / "root/usr/bin" / program.name).read_bytes())
                temporary.chmod(0o755)
                temporary.replace(program)
    return wanted


def prometheus(cache: Cache) -> tuple[Path, Path]:
    """Return Debian's prometheus and promtool (19 MB to download). Raises CommandError."""
    server, tool = ensure(cache, PROMETHEUS, (PROMETHEUS, PROMTOOL))
    return server, tool
