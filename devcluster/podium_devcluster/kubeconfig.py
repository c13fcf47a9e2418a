"""kubeconfig files with everything inside, so that they can be copied."""

from __future__ import annotations

import base64
from pathlib import Path


def render(server: str, ca: bytes, certificate: bytes, key: bytes, context: str) -> str:
    """Pure: YAML by hand, for this room has no YAML package."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return f"""apiVersion: v1
kind: Config
clusters:
- name: {context}
  cluster:
    server: {server}
    certificate-authority-data: {encoded(ca)}
users:
- name: {context}
  user:
    client-certificate-data: {encoded(certificate)}
    client-key-data: {encoded(key)}
contexts:
- name: {context}
  context:
    cluster: {context}
    user: {context}
current-context: {context}
"""


def write(target: Path, server: str, pki: Path, user: str, context: str) -> None:
    """For the bearer of certificate `user`."""
    ca, certificate, key = (pki / name for name in ("ca.crt", f"{user}.crt", f"{user}.key"))
    text = render(server, ca.read_bytes(), certificate.read_bytes(), key.read_bytes(), context)
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_text(text)
    temporary.chmod(0o600)
    temporary.replace(target)
