"""The certificates and kubeconfig files of one cluster.

Certificates are made by openssl, with EC keys for speed.

Python 3.13 verifies strictly (RFC 5280): the authority needs critical basicConstraints and keyUsage, and each
certificate needs its subject and authority key identifiers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from podium_devcluster.runtime.network import CONTROL_PLANE_IP, SERVICE_IP, NodeAddress
from podium_devcluster.shell import run

DAYS = "3650"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate for the cluster's authority to sign. `sans` are subject alternative names."""

    name: str
    common_name: str
    organization: str = ""
    sans: tuple[str, ...] = ()


def wanted(nodes: Sequence[NodeAddress]) -> tuple[Certificate, ...]:
    """Return all certificates of a cluster; common name and organization identify the user to Kubernetes.

    Pure.
    """
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    server = tuple(f"DNS:{name}" for name in (*names, "localhost"))
    server += tuple(f"IP:{ip}" for ip in ("127.0.0.1", SERVICE_IP, CONTROL_PLANE_IP))
    fixed = (
        Certificate("apiserver", "kube-apiserver", sans=server),
        Certificate("kubelet-client", "kubelet-client", "system:masters"),
        Certificate("admin", "admin", "system:masters"),
        Certificate("kube-controller-manager", "system:kube-controller-manager"),
        Certificate("kube-scheduler", "system:kube-scheduler"),
        Certificate("kube-proxy", "system:kube-proxy"),
        Certificate("front-proxy-client", "front-proxy-client"),
    )
    return fixed + tuple(map(of_kubelet, nodes))


def of_kubelet(node: NodeAddress) -> Certificate:
    """Return the certificate of a node's kubelet. Pure."""
    return Certificate(node.node, f"system:node:{node.node}", "system:nodes", (f"DNS:{node.node}", f"IP:{node.ip}"))


def authority_config() -> str:
    """Return openssl's configuration of the authority. Pure."""
    return (
        "[req]\ndistinguished_name=dn\nprompt=no\nx509_extensions=ca\n[dn]\nCN=podium-devcluster\n"
        "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign,digitalSignature\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid:always\n"
    )


def request_config(certificate: Certificate) -> str:
    """Return openssl's configuration of a signing request. Pure."""
    organization = f"O={certificate.organization}\n" if certificate.organization else ""
    return f"[req]\ndistinguished_name=dn\nprompt=no\n[dn]\n{organization}CN={certificate.common_name}\n"


def extensions(certificate: Certificate) -> str:
    """Return the extensions of a certificate. Pure."""
    lines = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth,clientAuth",
        "subjectKeyIdentifier=hash",
        "authorityKeyIdentifier=keyid:always",
    ]
    if certificate.sans:
        lines.append("subjectAltName=" + ",".join(certificate.sans))
    return "\n".join(lines) + "\n"


def fingerprint(certificates: Sequence[Certificate]) -> str:
    """Return a hash of all certificates' contents; another one means that all have to be made again."""
    text = json.dumps(
        [authority_config(), [asdict(certificate) for certificate in certificates], extensions(certificates[0])]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def create(folder: Path, nodes: Sequence[NodeAddress]) -> bool:
    """Make all certificates; return False if they exist already.

    The stamp is written last, so it means completeness.
    """
    certificates = wanted(nodes)
    stamp, current = folder / "stamp", fingerprint(certificates)
    if stamp.exists() and stamp.read_text() == current:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    _key(folder / "ca.key")
    (folder / "ca.cnf").write_text(authority_config())
    _openssl(folder, "req", "-x509", "-new", "-key", "ca.key", "-config", "ca.cnf", "-days", DAYS, "-out", "ca.crt")
    for certificate in certificates:
        _sign(folder, certificate)
    _key(folder / "sa.key")
    _openssl(folder, "pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    stamp.write_text(current)
    return True


def add(folder: Path, node: NodeAddress) -> None:
    """Make the certificate of a node that joins a running cluster, if it is missing."""
    if not (folder / f"{node.node}.crt").exists():
        _sign(folder, of_kubelet(node))


def _sign(folder: Path, certificate: Certificate) -> None:
    name = certificate.name
    _key(folder / f"{name}.key")
    (folder / f"{name}.cnf").write_text(request_config(certificate))
    (folder / f"{name}.ext").write_text(extensions(certificate))
    _openssl(folder, "req", "-new", "-key", f"{name}.key", "-config", f"{name}.cnf", "-out", f"{name}.csr")
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt",
    )  # fmt: skip
    for ending in ("cnf", "ext", "csr"):
        (folder / f"{name}.{ending}").unlink()


def _key(file: Path) -> None:
    _openssl(file.parent, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", file.name)
    file.chmod(0o600)


def _openssl(folder: Path, *arguments: str) -> None:
    run(["openssl", *arguments], cwd=folder, timeout=20)


def kubeconfig(server: str, ca: bytes, certificate: bytes, key: bytes, context: str) -> str:
    """Return a kubeconfig with the certificates in it, so that it can be copied. Pure."""

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


def write_kubeconfig(target: Path, server: str, pki: Path, user: str, context: str) -> None:
    """Write the kubeconfig of the user with the certificate `user` below `pki`."""
    ca, certificate, key = (pki / name for name in ("ca.crt", f"{user}.crt", f"{user}.key"))
    text = kubeconfig(server, ca.read_bytes(), certificate.read_bytes(), key.read_bytes(), context)
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_text(text)
    temporary.chmod(0o600)
    temporary.replace(target)
