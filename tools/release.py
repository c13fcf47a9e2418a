"""Build a release: `python tools/release.py FOLDER [--repository HOST/podium]`; `make release`.

FOLDER receives the wheel, the source archive, the image as an OCI archive, the chart with the digest of this image, the
CRDs, the list of images, the bills of materials, the statement of provenance and SHA256SUMS. Nothing is uploaded:
.github/workflows/release.yml publishes FOLDER as it is. The image depends on the time of its build; with it, all other
files are equal for equal commits.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dist
import sbom
from releasing import chart, checks, image, oci_archive, provenance
from sbom_parts import FILES, read_lock

from podium_devcluster import versions
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

LOCAL_REPOSITORY = "localhost/podium"
INPUTS = ("Dockerfile", "requirements.lock", "requirements-dev.lock")
NOTES = "release-notes.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build.

    `platforms`: required ones; empty: those of `image.PLATFORMS` that can be built here. `kubernetes`: the cluster's
    version, which decides about the image of kube-scheduler.
    """

    folder: Path
    repository: str = LOCAL_REPOSITORY
    platforms: tuple[str, ...] = ()
    kubernetes: str = versions.KUBERNETES
    tag: str = ""
    source: str = ""
    uncommitted: bool = False


def build(plan: Plan, root: Path = sbom.ROOT) -> image.Image:
    """Build a release into the empty folder of the plan and return its image.

    Raises ValueError for a checkout that cannot be released, and the errors of the builders.
    """
    version, commit = checks.check_version(root, plan.tag), checks.commit(root, plan.uncommitted)
    notes = checks.release_notes((root / "CHANGELOG.md").read_text(), version)
    chart.check_repository(plan.repository)
    folder, epoch, helm = plan.folder, sbom.source_date(root=root), dist.find_helm()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; SHA256SUMS would list files of another build. Empty it")
    made = _image(plan, version, commit.sha, epoch)
    dist.build_python(root, folder, epoch)
    with tempfile.TemporaryDirectory(prefix="podium-chart-") as staging:
        pinned = chart.stage(root / "charts/podium", Path(staging), plan.repository, made.contents.digest)
        packaged = dist.package_chart(helm, pinned, version, folder, epoch)
    (folder / f"podium-crds-{version}.yaml").write_text(chart.crd_bundle(root / "charts/podium/crds"))
    names = chart.images(helm, packaged, plan.kubernetes)
    (folder / f"podium-images-{version}.txt").write_text("".join(f"{name}\n" for name in names))
    (folder / NOTES).write_text(notes)
    sbom.write(folder, epoch, root=root)
    _write_image_boms(made, version, epoch, folder, root)
    about = provenance.Build(
        commit,
        plan.source,
        {"repository": plan.repository, "platforms": sorted(made.contents.manifests), "kubernetes": plan.kubernetes},
        {"python": platform.python_version(), "helm": _version(helm), "image": made.builder},
        tuple(root / name for name in INPUTS),
        workflow(os.environ),
    )
    subject = (f"{plan.repository}:{version}", made.contents.digest)
    statement = provenance.to_json(provenance.statement([*folder.iterdir()], subject, about))
    (folder / f"podium-{version}.intoto.json").write_text(statement)
    dist.write_checksums(folder)
    return made


def workflow(environment: Mapping[str, str]) -> str:
    """Return the address of the workflow that builds, or nothing outside of one. Pure."""
    server, reference = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_WORKFLOW_REF", "")
    return f"{server}/{reference}" if server and reference else ""


def _image(plan: Plan, version: str, commit: str, epoch: int) -> image.Image:
    annotations = {
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    wanted = plan.platforms or image.PLATFORMS
    order = image.Order(f"{plan.repository}:{version}", wanted, annotations, epoch)
    made = image.build(order, plan.folder / f"podium-image-{version}.oci.tar", Cache.default(), Progress())
    if plan.platforms and made.missing:
        raise ValueError("; ".join(f"{one} cannot be built: {why}" for one, why in made.missing.items()))
    return made


def _write_image_boms(made: image.Image, version: str, epoch: int, folder: Path, root: Path) -> None:
    """Write one bill of materials for each platform of the image."""
    locked = read_lock((root / "requirements.lock").read_text())
    for name, manifest in made.contents.manifests.items():
        with tempfile.TemporaryDirectory(prefix="podium-root-") as temporary:
            for path, data in oci_archive.files(made.archive, manifest, FILES).items():
                file = Path(temporary) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            bom = sbom.image_bom(Path(temporary), locked, version, epoch)
        (folder / f"podium-image-{version}-{name.replace('/', '-')}.cdx.json").write_text(sbom.to_json(bom))


def _version(helm: Path) -> str:
    done = subprocess.run([str(helm), "version", "--template={{.Version}}"], capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def main() -> int:
    """Build or check what the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(description="Build a release into a folder. Nothing is uploaded.")
    parser.add_argument("folder", type=Path, nargs="?", help="an empty folder; without it, only check the version")
    parser.add_argument("--repository", default=LOCAL_REPOSITORY, help="HOST/PATH that nodes pull the image from")
    parser.add_argument("--platforms", default="", help="required platforms, such as linux/amd64,linux/arm64")
    parser.add_argument("--kubernetes", default=versions.KUBERNETES, help="the cluster's version, for kube-scheduler")
    parser.add_argument("--tag", default="", help="the tag of the release, which must be vVERSION")
    parser.add_argument("--source", default="", help="address of the repository, for the statement of provenance")
    parser.add_argument("--uncommitted", action="store_true", help="accept files that differ from the commit")
    given = parser.parse_args()
    platforms = tuple(one for one in given.platforms.split(",") if one)
    try:
        if given.folder is None:
            print(f"version {checks.check_version(sbom.ROOT, given.tag)}")
            return 0
        plan = Plan(
            given.folder, given.repository, platforms, given.kubernetes, given.tag, given.source, given.uncommitted
        )
        made = build(plan)
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print((given.folder / dist.CHECKSUMS).read_text(), end="")
    print(f"image {given.repository}@{made.contents.digest}, built by {made.builder}:", *made.contents.manifests)
    for name, why in made.missing.items():
        print(f"not built: {name}: {why}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
