"""Official releases over HTTPS, checked against their published SHA-256. Without internet it gives up in seconds."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from podium_devcluster.progress import Progress, Step

CONNECT_SECONDS = 4.0
CHUNK = 1 << 20
_unreachable: set[str] = set()


class ChecksumError(RuntimeError):
    """What came is not what was published."""


def architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def source(name: str, version: str, arch: str) -> tuple[str, str, str] | None:
    """(address, address of the checksums, path inside the archive or ""). Pure."""
    if name.startswith("kube"):
        address = f"https://dl.k8s.io/release/v{version}/bin/linux/{arch}/{name}"
        return address, f"{address}.sha256", ""
    if name == "etcd":
        release = f"https://github.com/etcd-io/etcd/releases/download/v{version}"
        folder = f"etcd-v{version}-linux-{arch}"
        return f"{release}/{folder}.tar.gz", f"{release}/SHA256SUMS", f"{folder}/etcd"
    if name == "helm":
        address = f"https://get.helm.sh/helm-v{version}-linux-{arch}.tar.gz"
        return address, f"{address}.sha256sum", f"linux-{arch}/helm"
    if name == "kind":
        address = f"https://github.com/kubernetes-sigs/kind/releases/download/v{version}/kind-linux-{arch}"
        return address, f"{address}.sha256sum", ""
    return None


def published_checksum(text: str, address: str) -> str:
    """From a lone checksum, or from the line of a list that names the file. Pure."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 1 or (len(fields) == 2 and fields[1].lstrip("*") == address.rpartition("/")[2]):
            return fields[0]
    raise ChecksumError(f"no checksum for {address}")


def allowed() -> bool:
    return os.environ.get("PODIUM_DOWNLOAD", "1") != "0"


def fetch(name: str, version: str, target: Path, progress: Progress) -> bool:
    """False where the release cannot be had from here (then it is built); a wrong checksum is an error."""
    found = source(name, version, architecture())
    if found is None or not allowed():
        return False
    address, checksums, member = found
    host = address.split("/")[2]
    if host in _unreachable:
        return False
    try:
        with progress.step(f"download {name} {version}") as step:
            try:
                wanted = published_checksum(_get(checksums, step).decode(), address)
                data = _get(address, step)
            except (urllib.error.URLError, TimeoutError, ConnectionError, OSError) as error:
                _unreachable.add(host)
                step.note(f"not from here ({getattr(error, 'reason', error)}); it will be built")
                return False
    except ChecksumError:
        raise
    if hashlib.sha256(data).hexdigest() != wanted:
        raise ChecksumError(f"{address}: the SHA-256 is not the published one; nothing was installed")
    if member:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            file = archive.extractfile(member)
            if file is None:
                raise ChecksumError(f"{address} holds no file {member}")
            data = file.read()
    target.write_bytes(data)
    return True


def _get(address: str, step: Step) -> bytes:
    parts = []
    size = 0
    with urllib.request.urlopen(address, timeout=CONNECT_SECONDS) as answer:
        while part := answer.read(CHUNK):
            parts.append(part)
            size += len(part)
            step.detail(f"{size >> 20} MB of {address.rpartition('/')[2]}")
    return b"".join(parts)
