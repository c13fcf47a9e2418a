"""Files of an earlier commit, and a clone without it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from podium_devcluster.artifacts.earlier import EarlierCommit, MissingCommitError


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of two commits; the second one changes a file and adds a folder."""
    folder = tmp_path / "clone"
    (folder / "agent").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "agent/run.sh").write_text("first")
    (folder / "agent/run.sh").chmod(0o755)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    (folder / "later").mkdir()
    (folder / "later/file").write_text("x")
    (folder / "agent/run.sh").write_text("second")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "second")
    return folder


def test_members_have_the_content_and_mode_of_the_commit(clone: Path, tmp_path: Path) -> None:
    earlier = EarlierCommit(git(clone, "rev-parse", "--short", "HEAD~1"), clone)
    earlier.export(tmp_path / "out", "agent", "later", "missing")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [str(path.relative_to(tmp_path / "out")) for path in files] == ["agent/run.sh"]
    assert files[0].read_text() == "first"
    assert files[0].stat().st_mode & 0o777 == 0o755


def test_a_shallow_clone_says_what_is_missing(clone: Path, tmp_path: Path) -> None:
    first = git(clone, "rev-parse", "HEAD~1")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{clone}", "shallow")
    with pytest.raises(MissingCommitError, match=rf"has no commit {first}: .*git fetch --unshallow"):
        EarlierCommit(first, tmp_path / "shallow").export(tmp_path / "out", "agent")
    EarlierCommit(git(clone, "rev-parse", "HEAD"), tmp_path / "shallow").check()
