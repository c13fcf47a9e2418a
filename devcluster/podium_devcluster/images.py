"""The images that tests and the demo need: built when something that goes in has changed, and loaded into nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import builders, inputs, locks, paths, tiny_images
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress


@dataclass(frozen=True, slots=True)
class Recipe:
    """`members`: what is hashed and copied into the build context, from `folder` below the project."""

    image: str
    folder: str
    members: tuple[str, ...]
    target: str = ""
    needs_compiler: bool = False

    @property
    def short(self) -> str:
        return self.image.rpartition("/")[2].rpartition(":")[0]


PODIUM = Recipe(
    "localhost/podium:dev",
    ".",
    (
        "Dockerfile", "pyproject.toml", "README.md", "LICENSE", "requirements.lock", "requirements-dev.lock",
        "sdk", "core", "simulator", "cluster", "operator", "extender", "agent", "cli", "devcluster",
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
    """By short name; none = all. Pure."""
    known = {recipe.short: recipe for recipe in RECIPES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown images {', '.join(unknown)}; there are: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else RECIPES


def ensure(recipe: Recipe, cache: Cache, progress: Progress, builder: builders.Builder, project: Path) -> Path:
    """The folder or archive that holds the image; built when it is missing or its inputs changed."""
    root = project / recipe.folder
    files = inputs.files_of(root, recipe.members)
    key = inputs.digest(root, files, repr(recipe), builder.base_key())
    out = cache.images / tiny_images.archive_name(recipe.image).removesuffix(".tar")
    stamp = out.with_suffix(".inputs")
    with locks.held(out.with_suffix(".lock"), timeout=3600, waiting=progress.say):
        if stamp.exists():
            made, _, where = stamp.read_text().partition(" ")
            if made == key and Path(where).exists():
                return Path(where)
        with tempfile.TemporaryDirectory(prefix="podium-context-") as folder:
            context = Path(folder)
            inputs.stage(root, files, context)
            order = builders.Order(recipe.image, context / "Dockerfile", context, recipe.target, recipe.needs_compiler)
            made_at = builder.build(order, out)
        stamp.write_text(f"{key} {made_at}")
        return made_at


def build(cache: Cache, progress: Progress, names: Sequence[str] = ()) -> list[Path]:
    """All (or the named) images, as folders or archives in the cache."""
    cache.images.mkdir(parents=True, exist_ok=True)
    builder = builders.choose(cache, progress)
    project = paths.project_dir()
    return [ensure(recipe, cache, progress, builder, project) for recipe in select(names)]


def build_and_load(cluster: Cluster, names: Sequence[str] = (), load: bool = True) -> None:
    made = build(cluster.cache, cluster.progress, names)
    if not load:
        return
    with cluster.progress.step("load images into the nodes") as step:
        loaded = cluster.load_images(made)
        step.note("; ".join(f"{node}: {', '.join(images) or 'has them'}" for node, images in loaded.items()))
