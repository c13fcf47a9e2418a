"""Packages are downloaded from the machine's archive, also with old lists, by one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium_devcluster.artifacts import debian
from podium_devcluster.shell import CommandError

APT = """#!/bin/sh
# like apt-get: it needs the lists to find a package, and refuses to run beside another one
flock --nonblock {root}/lock true && exit 9
case "$*" in
*update) touch {root}/lists ;;
*download*tool) test -e {root}/lists && touch tool_1.0_amd64.deb ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin/apt-get"
    program.parent.mkdir()
    program.write_text(APT.format(root=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(debian, "APT_LOCK", tmp_path / "lock")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("listed", [True, False])
def test_a_package_is_downloaded_also_with_old_lists(apt: Path, listed: bool) -> None:
    if listed:
        (apt / "lists").touch()
    assert debian.download_package("tool", apt / "folder").name == "tool_1.0_amd64.deb"


def test_an_unknown_package_is_reported(apt: Path) -> None:
    with pytest.raises(CommandError, match="download other"):
        debian.download_package("other", apt / "folder")
