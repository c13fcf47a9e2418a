"""What a release publishes (tools/dist.py): two builds give the same bytes, and the checksums are right."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

dist = importlib.import_module("dist")

EPOCH = 1_764_000_000


def checkout(folder: Path, time: int) -> Path:
    """Copy what the wheel is built from, with another time and other permissions of the group."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = [*packages["packages"], "pyproject.toml", "README.md", "LICENSE"]
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        os.utime(path, (time, time))
    return folder


def test_wheel_and_source_archive_do_not_depend_on_the_times_of_files(tmp_path: Path) -> None:
    built = []
    for number in (1, 2):
        out = tmp_path / f"out-{number}"
        dist.build_python(checkout(tmp_path / f"root-{number}", 1_000_000_000 * number), out, EPOCH)
        built.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert sorted(name.rpartition(".")[2] for name in built[0]) == ["gz", "whl"]
    assert built[0] == built[1]


def archive(time: int, *names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.size, entry.uid = time, len(name), time % 1000
            target.addfile(entry, io.BytesIO(name.encode()))
    return buffer.getvalue()


def test_a_chart_archive_does_not_depend_on_time_owner_and_order() -> None:
    one, two = archive(1, "podium/a", "podium/b"), archive(2_000_000_001, "podium/b", "podium/a")
    assert one != two
    same = dist.normalised(one, EPOCH)
    assert same == dist.normalised(two, EPOCH)
    with tarfile.open(fileobj=io.BytesIO(same)) as read:
        assert [(m.name, m.mtime, m.mode) for m in read] == [
            ("podium/a", EPOCH, 0o644),
            ("podium/b", EPOCH, 0o644),
        ]
        file = read.extractfile("podium/b")
        assert file is not None
        assert file.read() == b"podium/b"


def test_a_link_in_a_chart_archive_is_refused() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as target:
        entry = tarfile.TarInfo("podium/link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        target.addfile(entry)
    with pytest.raises(ValueError, match="podium/link is not a plain file"):
        dist.normalised(buffer.getvalue(), EPOCH)


def test_checksums_are_sorted_and_sha256sum_accepts_them(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tgz"):
        (tmp_path / name).write_text(name)
    path = dist.write_checksums(tmp_path)
    assert [line.split()[1] for line in path.read_text().splitlines()] == ["a.tgz", "b.whl"]
    check = ["sha256sum", "--check", "--strict", path.name]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 0
    (tmp_path / "a.tgz").write_text("changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 1
    assert dist.write_checksums(tmp_path) == path
    assert path.name not in path.read_text()
