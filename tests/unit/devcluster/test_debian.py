"""A package's file from the machine's own archive, also where its lists are old; by one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium_devcluster import debian
from podium_devcluster.shell import CommandError

APT = """#!/bin/sh
# as apt-get: it finds a package once the lists are there, and refuses to run beside another
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
def test_a_package_is_found_also_where_the_lists_are_old(apt: Path, listed: bool) -> None:
    if listed:
        (apt / "lists").touch()
    assert debian.download_package("tool", apt / "folder").name == "tool_1.0_amd64.deb"


def test_a_package_that_there_is_not_is_said_to_be_missing(apt: Path) -> None:
    with pytest.raises(CommandError, match="download other"):
        debian.download_package("other", apt / "folder")
