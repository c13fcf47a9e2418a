"""The command lines of etcd, kube-apiserver, kube-controller-manager and kube-scheduler. Pure."""

from __future__ import annotations

from pathlib import Path

from podium_devcluster.paths import ClusterPaths
from podium_devcluster.runtime import audit
from podium_devcluster.runtime.network import CONTROL_PLANE_IP, SERVICE_CIDR

PORT = 6443
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def inside(namespace: Path, argv: list[str]) -> list[str]:
    """Return the command line in a network namespace.

    `ip netns exec` would hide the control groups with a new /sys.
    """
    return ["nsenter", f"--net={namespace}", "--", *argv]


def etcd(binaries: Path, paths: ClusterPaths) -> list[str]:
    """Return etcd's command line."""
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        str(binaries / "etcd"), "--data-dir", str(paths.etcd), "--listen-client-urls", client,
        "--advertise-client-urls", client, "--listen-peer-urls", peer,
        "--unsafe-no-fsync",  # the data is discarded with the cluster
    ]  # fmt: skip


def apiserver(binaries: Path, paths: ClusterPaths, *, pod_groups: bool = False) -> list[str]:
    """Return kube-apiserver's command line; `pod_groups`: it serves PodGroups."""
    pki = paths.pki
    alpha = {"feature-gates": "GenericWorkload=true", "runtime-config": "scheduling.k8s.io/v1alpha2=true"}
    flags = {
        "etcd-servers": "http://127.0.0.1:2379",
        "secure-port": str(PORT),
        "bind-address": "0.0.0.0",
        "advertise-address": CONTROL_PLANE_IP,
        "tls-cert-file": str(pki / "apiserver.crt"),
        "tls-private-key-file": str(pki / "apiserver.key"),
        "client-ca-file": str(pki / "ca.crt"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(pki / "sa.pub"),
        "service-account-signing-key-file": str(pki / "sa.key"),
        "service-cluster-ip-range": SERVICE_CIDR,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "kubelet-client-certificate": str(pki / "kubelet-client.crt"),
        "kubelet-client-key": str(pki / "kubelet-client.key"),
        "kubelet-certificate-authority": str(pki / "ca.crt"),
        # the default would resolve the node's name by DNS for `kubectl logs`
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": str(pki / "ca.crt"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": str(pki / "front-proxy-client.crt"),
        "proxy-client-key-file": str(pki / "front-proxy-client.key"),
        **audit.flags(paths),
        **(alpha if pod_groups else {}),
    }
    return [str(binaries / "kube-apiserver"), *(f"--{key}={value}" for key, value in flags.items())]


def controller_manager(binaries: Path, paths: ClusterPaths) -> list[str]:
    """Return kube-controller-manager's command line."""
    pki = paths.pki
    config = str(pki / "kube-controller-manager.kubeconfig")
    return [
        str(binaries / "kube-controller-manager"), f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
        f"--service-account-private-key-file={pki / 'sa.key'}", f"--root-ca-file={pki / 'ca.crt'}",
        "--use-service-account-credentials", "--leader-elect=false",
        # the default (20) delays its start by 5 s: it requests a token for each of its controllers
        "--kube-api-qps=200", "--kube-api-burst=400",
    ]  # fmt: skip


def scheduler(binaries: Path, paths: ClusterPaths) -> list[str]:
    """Return kube-scheduler's command line."""
    config = str(paths.pki / "kube-scheduler.kubeconfig")
    return [
        str(binaries / "kube-scheduler"), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--leader-elect=false",
    ]  # fmt: skip
