"""Podium's image and chart of an earlier commit, for tests of upgrades. The cache keeps an image for each commit."""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from podium_devcluster import locks, paths
from podium_devcluster.artifacts import builders, images, tiny_images
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run, succeeds


class MissingCommitError(RuntimeError):
    """The clone lacks the commit, or the folder is not a clone."""


@dataclass(frozen=True, slots=True)
class EarlierCommit:
    """A commit in the history of this checkout."""

    commit: str
    project: Path = field(default_factory=paths.project_dir)

    @property
    def image(self) -> str:
        """The name of Podium's image of this commit."""
        return f"localhost/podium:{self.commit}"

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
            # the modes of files are a part of the builder's cached layers
            argv = [*self._git, "-c", "tar.umask=0022", "archive", f"--output={archive}", self.commit, "--", *listed]
            run(argv, timeout=120)
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")

    def ensure_image(self, cache: Cache, progress: Progress) -> Path:
        """Return the folder or archive of Podium's image of this commit; build it if the cache lacks it."""
        cache.images.mkdir(parents=True, exist_ok=True)
        out = cache.images / tiny_images.archive_name(self.image).removesuffix(".tar")
        stamp = out.with_name(f"{out.name}.inputs")
        with locks.held(out.with_name(f"{out.name}.lock"), timeout=3600, waiting=progress.say):
            if not (stamp.exists() and Path(stamp.read_text()).exists()):
                builder = builders.choose(cache, progress)
                title, seconds = f"image {out.name}", images.TYPICAL_SECONDS["podium"]
                pieces = [*builder.base_pieces(True), Piece(title, seconds, partial(self._build, builder, out, stamp))]
                build_all(pieces, cache, progress)
        return Path(stamp.read_text())

    def _build(self, builder: builders.Builder, out: Path, stamp: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="podium-context-") as folder:
            context = Path(folder)
            self.export(context, *images.PODIUM.members)
            order = builders.Order(self.image, context / "Dockerfile", context, images.PODIUM.target, True)
            stamp.write_text(str(builder.build(order, out)))

    @property
    def _git(self) -> list[str]:
        return ["git", "-C", str(self.project)]
