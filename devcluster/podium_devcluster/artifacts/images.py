"""The images of the tests and the demo, built when one of their inputs has changed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks, paths
from podium_devcluster.artifacts import builders, tiny_images
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

IGNORED_FOLDERS = frozenset({"__pycache__", "build", ".git", ".venv", ".mypy_cache", ".ruff_cache", "node_modules"})
IGNORED_ENDINGS = (".pyc", ".o", ".so.1", ".tmp")
TYPICAL_SECONDS = {"podium": 45.0, "podium-fake-driver": 5.0, "podium-digits": 20.0}
"""Measured on two cores, after the base images are made."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image and its inputs. `members` are the files and folders below `folder` in its build context."""

    image: str
    folder: str
    members: tuple[str, ...]
    target: str = ""
    needs_compiler: bool = False

    @property
    def short(self) -> str:
        """The image's name without registry and tag."""
        return self.image.rpartition("/")[2].rpartition(":")[0]


PODIUM = Recipe(
    "localhost/podium:dev",
    ".",
    (
        "Dockerfile", "pyproject.toml", "README.md", "LICENSE", "requirements.lock", "requirements-dev.lock",
        "sdk", "core", "simulator", "searchers", "suspension", "cluster", "local", "views", "dashboard",
        "operator", "extender", "agent", "cli", "api", "devcluster",
    ),
    "podium",
    needs_compiler=True,
)  # fmt: skip
FAKE_DRIVER = Recipe("localhost/podium-fake-driver:dev", ".", ("Dockerfile", "agent/driver"), "fake-driver", True)
DIGITS = Recipe(
    "localhost/podium-digits:dev", "examples/digits", ("Dockerfile", "requirements.lock", "train.py", "gpu.py")
)
RECIPES = (PODIUM, FAKE_DRIVER, DIGITS)


def select(names: Sequence[str]) -> tuple[Recipe, ...]:
    """Return the recipes with these short names, or all for no names. Pure."""
    known = {recipe.short: recipe for recipe in RECIPES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown images {', '.join(unknown)}; choose from: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else RECIPES


# ---- inputs --------------------------------------------------------------------------------------------------------


def files_of(root: Path, members: Sequence[str]) -> list[Path]:
    """Return all files of these files and folders below `root`, sorted.

    A missing member raises FileNotFoundError.
    """
    files: list[Path] = []
    for member in members:
        path = root / member
        if path.is_file():
            files.append(path)
        elif path.is_dir():
            files += [file for file in path.rglob("*") if file.is_file() and _is_input(file.relative_to(root))]
        else:
            raise FileNotFoundError(f"{path} is missing; an image is built from it. Restore it from git")
    return sorted(files)


def _is_input(relative: Path) -> bool:
    return not IGNORED_FOLDERS & set(relative.parts) and not relative.name.endswith(IGNORED_ENDINGS)


def digest(root: Path, files: Sequence[Path], *extra: str) -> str:
    """Return a hash of the files' names, contents and executable bits; times and order have no influence."""
    whole = hashlib.sha256(repr(extra).encode())
    for file in sorted(files):
        executable = bool(file.stat().st_mode & 0o100)
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(repr((str(file.relative_to(root)), executable, content)).encode())
    return whole.hexdigest()


def stage(root: Path, files: Sequence[Path], target: Path) -> None:
    """Copy these files into an empty folder, the build context."""
    for file in files:
        copy = target / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
        copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


# ---- building and loading ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workshop:
    """Builds the images from one checkout into one cache."""

    cache: Cache
    progress: Progress
    builder: builders.Builder
    project: Path

    @classmethod
    def of(cls, cache: Cache, progress: Progress) -> Workshop:
        """Return the workshop of this checkout, with the builder that this machine has."""
        cache.images.mkdir(parents=True, exist_ok=True)
        return cls(cache, progress, builders.choose(cache, progress), paths.project_dir())

    def built(self, recipe: Recipe) -> Path | None:
        """Return the folder or archive of the image, or None if it is missing or its inputs have changed."""
        stamp = self._stamp(recipe)
        if stamp.exists():
            key, _, location = stamp.read_text().partition(" ")
            if key == self._key(recipe) and Path(location).exists():
                return Path(location)
        return None

    def ensure(self, recipe: Recipe) -> Path:
        """Return the folder or archive of the image; build it if it is missing or its inputs have changed."""
        with locks.held(self._out(recipe).with_suffix(".lock"), timeout=3600, waiting=self.progress.say):
            present = self.built(recipe)
            if present is not None:
                return present
            key = self._key(recipe)
            with tempfile.TemporaryDirectory(prefix="podium-context-") as folder:
                context = Path(folder)
                root = self.project / recipe.folder
                stage(root, files_of(root, recipe.members), context)
                order = builders.Order(
                    recipe.image, context / "Dockerfile", context, recipe.target, recipe.needs_compiler
                )
                made = self.builder.build(order, self._out(recipe))
            self._stamp(recipe).write_text(f"{key} {made}")
            return made

    def pieces(self, names: Sequence[str] = ()) -> list[Piece]:
        """Return the missing images, after the missing base images that they need."""
        stale = [recipe for recipe in select(names) if self.built(recipe) is None]
        if not stale:
            return []
        bases = self.builder.base_pieces(any(recipe.needs_compiler for recipe in stale))
        return bases + [
            Piece(f"image {recipe.short}", TYPICAL_SECONDS[recipe.short], partial(self.ensure, recipe))
            for recipe in stale
        ]

    def _out(self, recipe: Recipe) -> Path:
        return self.cache.images / tiny_images.archive_name(recipe.image).removesuffix(".tar")

    def _stamp(self, recipe: Recipe) -> Path:
        return self._out(recipe).with_suffix(".inputs")

    def _key(self, recipe: Recipe) -> str:
        root = self.project / recipe.folder
        return digest(root, files_of(root, recipe.members), repr(recipe), self.builder.base_key())


def build(cache: Cache, progress: Progress, names: Sequence[str] = ()) -> list[Path]:
    """Build all (or the named) images and return their folders or archives in the cache."""
    workshop = Workshop.of(cache, progress)
    build_all(workshop.pieces(names), cache, progress)
    return [workshop.ensure(recipe) for recipe in select(names)]


def build_and_load(cluster: Cluster, names: Sequence[str] = (), load: bool = True) -> None:
    """Build all (or the named) images and load them into the nodes of a running cluster."""
    made = build(cluster.cache, cluster.progress, names)
    if not load:
        return
    with cluster.progress.step("load images into the nodes") as step:
        loaded = cluster.load_images(made)
        step.note("; ".join(f"{node}: {', '.join(images) or 'up to date'}" for node, images in loaded.items()))
