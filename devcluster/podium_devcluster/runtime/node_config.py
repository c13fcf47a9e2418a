"""The configuration files and command lines of a node's programs. Pure: these functions return texts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.runtime.network import CLUSTER_DOMAIN, CONTROL_PLANE_IP, DNS_IP, POD_CIDR, NodeAddress

API_SERVER = f"https://{CONTROL_PLANE_IP}:6443"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/pause:1"


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The kubelet settings that tests change: it rotates a container's log that exceeds `log_max_size`.

    `dns`: pods ask the cluster's DNS service for names; it has to be installed (`runtime/dns.py`).
    """

    log_max_size: str = "10Mi"
    log_max_files: int = 5
    log_monitor_interval: str = "10s"
    dns: bool = False


def containerd() -> str:
    """Return containerd's config.toml.

    `restrict_oom_score_adj` is for machines on which root may not lower oom_score_adj (no CAP_SYS_RESOURCE). Without
    it, runc fails there with "can't get final child's PID from pipe: EOF".
    """
    return f"""version = 3
root = '/var/lib/containerd'
state = '/run/containerd'

[grpc]
  address = '{CONTAINERD_SOCKET}'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/usr/lib/cni']
  conf_dir = '/etc/cni/net.d'

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def cni(node: NodeAddress) -> str:
    """Return the CNI configuration of the node's pod network."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": "pod", "plugins": plugins}, indent=1) + "\n"


def kubelet(node: NodeAddress, cgroup_root: str, settings: KubeletSettings) -> str:
    """Return the kubelet's configuration, as JSON, which is valid YAML.

    The images come from this machine only, so image garbage collection and disk eviction are off. For the same reason
    the kubelet does not verify pull credentials: 1.36 would otherwise pull an image again that a registry also has.
    """
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "authentication": {
            "x509": {"clientCAFile": "/pki/ca.crt"},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "tlsCertFile": f"/pki/{node.node}.crt",
        "tlsPrivateKeyFile": f"/pki/{node.node}.key",
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "evictionHard": {"memory.available": "100Mi"},
        "containerLogMaxSize": settings.log_max_size,
        "containerLogMaxFiles": settings.log_max_files,
        "containerLogMonitorInterval": settings.log_monitor_interval,
        "resolvConf": "",
        "maxPods": 110,
        "logging": {"verbosity": 2},
    }
    if settings.dns:
        config |= {"clusterDNS": [DNS_IP], "clusterDomain": CLUSTER_DOMAIN}
    return json.dumps(config, indent=1) + "\n"


def kube_proxy(node: NodeAddress) -> str:
    """Return kube-proxy's configuration.

    The connection tracking limits belong to the machine and are not changed.
    """
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_CIDR,
        "clientConnection": {"kubeconfig": "/pki/kube-proxy.kubeconfig"},
        "hostnameOverride": node.node,
        "iptables": {"minSyncPeriod": "0.2s"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return json.dumps(config, indent=1) + "\n"


def kubelet_argv(node: NodeAddress, cluster: str) -> list[str]:
    """Return the kubelet's command line."""
    return [
        "/opt/k8s/kubelet", "--config=/etc/kubelet.json", f"--kubeconfig=/pki/{node.node}.kubeconfig",
        f"--hostname-override={node.node}", f"--node-ip={node.ip}", f"--node-labels=podium.dev/devcluster={cluster}",
    ]  # fmt: skip


def kube_proxy_argv() -> list[str]:
    """Return kube-proxy's command line."""
    return ["/opt/k8s/kube-proxy", "--config=/etc/kube-proxy.json"]


def files(node: NodeAddress, cgroup_root: str, settings: KubeletSettings) -> dict[str, str]:
    """Return the files that are written into a node's root before it starts, by path."""
    return {
        "etc/hostname": f"{node.node}\n",
        "etc/machine-id": hashlib.sha256(node.node.encode()).hexdigest()[:32] + "\n",
        "etc/hosts": f"127.0.0.1 localhost\n{node.ip} {node.node}\n",
        "etc/resolv.conf": "",
        "etc/containerd/config.toml": containerd(),
        "etc/cni/net.d/10-bridge.conflist": cni(node),
        "etc/kubelet.json": kubelet(node, cgroup_root, settings),
        "etc/kube-proxy.json": kube_proxy(node),
    }


def enter_script() -> Path:
    """Return the script that runs first in a node's namespaces and becomes its pid 1."""
    return Path(__file__).with_name("node_enter.sh")
