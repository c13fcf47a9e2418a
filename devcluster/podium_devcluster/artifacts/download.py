"""Official releases over HTTPS, checked against their published SHA-256.

Gives up within seconds without internet access.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import platform
import tarfile
import urllib.request
from pathlib import Path

from podium_devcluster.progress import Progress, Step

CONNECT_SECONDS = 4.0
CHUNK = 1 << 20
_unreachable: set[str] = set()


class ChecksumError(RuntimeError):
    """The downloaded file is not the published one."""


def architecture() -> str:
    """Return the machine's architecture as Go and Kubernetes name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def source(name: str, version: str, arch: str) -> tuple[str, str, str] | None:
    """Return where a release is, or None if there is none. Pure.

    The result is (address, address of its checksums, path inside the archive or "").
    """
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
    """Return the checksum of `address` from a file that holds one checksum or a list of them. Pure."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 1 or (len(fields) == 2 and fields[1].lstrip("*") == address.rpartition("/")[2]):
            return fields[0]
    raise ChecksumError(f"no checksum for {address}")


def allowed() -> bool:
    """Return whether releases may be downloaded (PODIUM_DOWNLOAD=0 forbids it)."""
    return os.environ.get("PODIUM_DOWNLOAD", "1") != "0"


def fetch(name: str, version: str, target: Path, progress: Progress) -> bool:
    """Download a release to `target`; return False if it cannot be downloaded and has to be built.

    Raises ChecksumError if the file differs from the published one.
    """
    release = source(name, version, architecture())
    if release is None or not allowed():
        return False
    address, checksums, member = release
    host = address.split("/")[2]
    if host in _unreachable:
        return False
    with progress.step(f"download {name} {version}") as step:
        try:
            expected = published_checksum(_get(checksums, step).decode(), address)
            data = _get(address, step)
        except (OSError, http.client.HTTPException) as error:  # URLError and TimeoutError are OSErrors
            _unreachable.add(host)
            step.skip(f"{host} did not deliver it ({getattr(error, 'reason', error)}); it is built from source instead")
            return False
        if hashlib.sha256(data).hexdigest() != expected:
            raise ChecksumError(f"{address}: the SHA-256 differs from the published one; nothing was installed")
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
        announced = answer.headers.get("Content-Length")
        while part := answer.read(CHUNK):
            parts.append(part)
            size += len(part)
            step.detail(f"{size >> 20} MB of {address.rpartition('/')[2]}")
    if announced is not None and size != int(announced):
        raise ConnectionError(f"the connection ended after {size} of {announced} bytes")
    return b"".join(parts)
