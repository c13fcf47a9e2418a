"""Files of an earlier commit, such as its chart, for tests of upgrades."""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from podium_devcluster import paths
from podium_devcluster.shell import run, succeeds


class MissingCommitError(RuntimeError):
    """The clone lacks the commit, or the folder is not a clone."""


@dataclass(frozen=True, slots=True)
class EarlierCommit:
    """A commit in the history of this checkout."""

    commit: str
    project: Path = field(default_factory=paths.project_dir)

    def check(self) -> None:
        """Raise MissingCommitError if the clone lacks the commit, as a shallow one does."""
        if not succeeds([*self._git, "cat-file", "-e", f"{self.commit}^{{commit}}"]):
            raise MissingCommitError(
                f"{self.project} has no commit {self.commit}: get its history with `git fetch --unshallow`"
            )

    def export(self, folder: Path, *members: str) -> None:
        """Write files and folders of the commit below a folder. Members that the commit lacks are left out."""
        self.check()
        listed = run([*self._git, "ls-tree", "--name-only", self.commit, "--", *members], timeout=60).splitlines()
        with tempfile.TemporaryDirectory(prefix="podium-commit-") as place:
            archive = Path(place) / "commit.tar"
            argv = [*self._git, "-c", "tar.umask=0022", "archive", f"--output={archive}", self.commit, "--", *listed]
            run(argv, timeout=120)
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")

    @property
    def _git(self) -> list[str]:
        return ["git", "-C", str(self.project)]
