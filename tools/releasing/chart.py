"""The chart of a release: its values name the released image by digest; and what a mirror needs beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

HELM_SECONDS = 120
NAMESPACE = "podium-system"
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")
_IMAGE = re.compile(r"^\s*(?:- )?image:\s*[\"']?([^\s\"']+)", re.MULTILINE)


def check_repository(repository: str) -> str:
    """Return the repository. Raises ValueError for anything but the name of an image without tag. Pure."""
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"REPOSITORY must be HOST[:PORT]/PATH in lower case, without tag and digest (got {repository!r})"
        )
    return repository


def pin(values: str, repository: str, digest: str) -> str:
    """Return the text of values.yaml with this image; comments remain. Pure."""
    head, name, rest = values.partition("\nimage:\n")
    for key, value in (("repository", repository), ("digest", digest)):
        rest, count = re.subn(rf"\A((?:  .*\n)*?  {key}: )(?:\"\"|\S+)", rf"\g<1>{value}", rest, count=1)
        if count != 1:
            raise ValueError(f"charts/podium/values.yaml has no image.{key}; the release sets it")
    return head + name + rest


def stage(source: Path, target: Path, repository: str, digest: str) -> Path:
    """Copy the chart below an empty folder with the image in its values, and return the copy."""
    copy = target / source.name
    shutil.copytree(source, copy)
    values = copy / "values.yaml"
    values.write_text(pin(values.read_text(), repository, digest))
    return copy


def images(helm: Path, archive: Path, kubernetes: str) -> list[str]:
    """Return the images that the packaged chart runs on a cluster of this version."""
    command = [str(helm), "template", "podium", str(archive), f"--namespace={NAMESPACE}", "--include-crds=false"]
    command += [f"--kube-version={kubernetes}", "--set=dashboard.enabled=true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HELM_SECONDS, check=False)
    if done.returncode != 0:
        raise ValueError(f"helm template {archive.name}: {done.stderr.strip()}")
    return sorted(set(_IMAGE.findall(done.stdout)))


def crd_bundle(folder: Path) -> str:
    """Return the CRDs of a folder as one text for `kubectl apply`."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ValueError(f"{folder} has no CRD; run `make generate`")
    return "".join(f"---\n{file.read_text().removeprefix('---').strip()}\n" for file in files)
