"""What joins a virtual machine to a cluster: a certificate, the configuration of its programs, a tap device and routes.

The configuration is what an administrator would write for a node with systemd: cgroup version 2, the driver `systemd`,
node allocatable enforced.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium_devcluster.paths import ClusterPaths
from podium_devcluster.runtime import network, node_config, pki
from podium_devcluster.runtime.network import NodeAddress, netns
from podium_devcluster.shell import run

EVICTION_THRESHOLD = "100Mi"
_DISK_BLOCK = 1 << 16
_CRUN = """
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
  BinaryName = '/usr/bin/crun'
  SystemdCgroup = true
"""


def containerd() -> str:
    """Return containerd's config.toml: the driver `systemd`, and crun beside runc. Pure."""
    text = node_config.containerd().replace("  restrict_oom_score_adj = true\n", "")
    return text.replace("SystemdCgroup = false", "SystemdCgroup = true") + _CRUN


def kubelet(node: NodeAddress) -> str:
    """Return the kubelet's configuration. Pure."""
    config = json.loads(node_config.kubelet(node, "", node_config.KubeletSettings()))
    of_shared_kernels = ("failCgroupV1", "cgroupRoot", "enforceNodeAllocatable", "failSwapOn")
    for key in (*of_shared_kernels, "localStorageCapacityIsolation"):
        del config[key]
    config["cgroupDriver"] = "systemd"
    config["evictionHard"] = {"memory.available": EVICTION_THRESHOLD}
    config["evictionPressureTransitionPeriod"] = "10s"  # the default would keep the node tainted for five minutes
    config["systemReserved"] = {"memory": "200Mi"}
    return json.dumps(config, indent=1) + "\n"


def network_script(node: NodeAddress, others: Sequence[NodeAddress]) -> str:
    """Return the script that sets up the guest's network. Pure."""
    lines = [
        "link set lo up", "link set eth0 up", f"addr add {node.ip}/24 dev eth0",
        f"route add default via {network.CONTROL_PLANE_IP}",
        *(f"route add {other.pods} via {other.ip}" for other in others),
    ]  # fmt: skip
    return "set -e\n" + "".join(f"ip {line}\n" for line in lines)


def files(node: NodeAddress, cluster: str, others: Sequence[NodeAddress]) -> dict[str, str]:
    """Return the files of the node's configuration, without its certificates. Pure."""
    arguments = " ".join(node_config.kubelet_argv(node, cluster)[2:])
    return node_config.files(node, "", node_config.KubeletSettings()) | {
        "etc/containerd/config.toml": containerd(),
        "etc/kubelet.json": kubelet(node),
        "etc/node/net.sh": network_script(node, others),
        "etc/node/env": f"KUBELET_ARGS={arguments}\n",
    }


def certificates(paths: ClusterPaths, node: NodeAddress) -> dict[str, str]:
    """Make the node's certificate and kubeconfig; return all that its programs need, as files below `pki`."""
    pki.add(paths.pki, node)
    target = paths.pki / f"{node.node}.kubeconfig"
    pki.write_kubeconfig(target, node_config.API_SERVER, paths.pki, node.node, node.node)
    names = ("ca.crt", f"{node.node}.crt", f"{node.node}.key", target.name, "kube-proxy.kubeconfig")
    return {f"pki/{name}": (paths.pki / name).read_text() for name in names}


def write_disk(contents: Mapping[str, str], out: Path) -> None:
    """Write files as a tar file that qemu accepts as a disk."""
    with tarfile.open(out, "w") as archive:
        for name, text in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o600 if name.startswith("pki/") else 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    size = out.stat().st_size
    with out.open("ab") as file:
        file.truncate(-(-size // _DISK_BLOCK) * _DISK_BLOCK)


def connect(cluster: str, node: NodeAddress, others: Sequence[NodeAddress], tap: str) -> None:
    """Put a tap device into the control plane's bridge, and routes to the node's pods everywhere.

    They end with the namespaces.
    """
    plane = netns(cluster, "cp")
    run(["ip", "-n", plane, "tuntap", "add", tap, "mode", "tap"], timeout=10)
    run(["ip", "-n", plane, "link", "set", tap, "master", "br0", "up"], timeout=10)
    for namespace in (plane, *(netns(cluster, other.node) for other in others)):
        run(["ip", "-n", namespace, "route", "add", node.pods, "via", node.ip], timeout=10)


def disconnect(cluster: str, node: NodeAddress, others: Sequence[NodeAddress], tap: str) -> None:
    """Remove the tap device and the routes."""
    plane = netns(cluster, "cp")
    for namespace in (plane, *(netns(cluster, other.node) for other in others)):
        run(["ip", "-n", namespace, "route", "del", node.pods], timeout=10, check=False)
    run(["ip", "-n", plane, "tuntap", "del", tap, "mode", "tap"], timeout=10, check=False)
