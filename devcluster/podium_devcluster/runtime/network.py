"""The network namespaces of one cluster: one for the control plane and one per node, on one bridge.

The machine's own network is not changed, so every cluster uses the same addresses: 10.88.0.1 for the control plane,
10.88.0.11, .12, ... for the nodes, 10.89.<n>.0/24 for the pods of node n, and 10.96.0.0/24 for services.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.shell import CommandError, run

NETNS = Path("/run/netns")
CONTROL_PLANE_IP = "10.88.0.1"
SERVICE_CIDR = "10.96.0.0/24"
SERVICE_IP = "10.96.0.1"
DNS_IP, CLUSTER_DOMAIN = "10.96.0.10", "cluster.local"
POD_CIDR = "10.89.0.0/16"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node's name, its number (from 1), and the addresses that follow from it."""

    node: str
    number: int

    @property
    def ip(self) -> str:
        """The node's address."""
        return f"10.88.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The subnet of the node's pods."""
        return f"10.89.{self.number}.0/24"


def addresses(nodes: Sequence[str]) -> tuple[NodeAddress, ...]:
    """Return the nodes with their numbers."""
    return tuple(NodeAddress(node, number) for number, node in enumerate(nodes, start=1))


def netns(cluster: str, part: str) -> str:
    """Return a namespace's name. Cluster names contain no dot, so cluster `a` never owns `a-b.node-1`."""
    return f"{cluster}.{part}"


def netns_path(cluster: str, part: str) -> Path:
    """Return the path of a namespace's mount."""
    return NETNS / netns(cluster, part)


def existing(cluster: str) -> list[str]:
    """Return the names of the cluster's namespaces that exist."""
    if not NETNS.is_dir():
        return []
    return sorted(entry.name for entry in NETNS.iterdir() if entry.name.startswith(f"{cluster}."))


def control_plane_batch(nodes: Sequence[NodeAddress]) -> str:
    """Return the commands for `ip -batch` in the control plane's namespace. Pure."""
    lines = ["link set lo up", "link add br0 type bridge", f"addr add {CONTROL_PLANE_IP}/24 dev br0", "link set br0 up"]
    lines += [f"link set node{a.number} master br0 up" for a in nodes]
    lines += [f"route add {a.pods} via {a.ip}" for a in nodes]
    # the API server calls webhooks by the addresses of services, which the kube-proxy of any node translates
    lines += [f"route add {SERVICE_CIDR} via {a.ip}" for a in nodes[:1]]
    return "\n".join(lines) + "\n"


def node_batch(node: NodeAddress, nodes: Sequence[NodeAddress]) -> str:
    """Return the commands for `ip -batch` in one node's namespace. Pure."""
    lines = ["link set lo up", f"addr add {node.ip}/24 dev eth0", "link set eth0 up"]
    lines += [f"route add default via {CONTROL_PLANE_IP}"]
    lines += [f"route add {a.pods} via {a.ip}" for a in nodes if a != node]
    return "\n".join(lines) + "\n"


def create(cluster: str, nodes: Sequence[NodeAddress]) -> None:
    """Make the namespaces, the bridge and the veth pairs."""
    plane = netns(cluster, "cp")
    for part in ("cp", *(a.node for a in nodes)):
        run(["ip", "netns", "add", netns(cluster, part)], timeout=10)
    for a in nodes:
        other = netns(cluster, a.node)
        veth = ["link", "add", f"node{a.number}", "type", "veth", "peer", "name", "eth0", "netns", other]
        run(["ip", "-n", plane, *veth], timeout=10)
    run(["ip", "-n", plane, "-batch", "-"], stdin=control_plane_batch(nodes), timeout=10)
    for a in nodes:
        run(["ip", "-n", netns(cluster, a.node), "-batch", "-"], stdin=node_batch(a, nodes), timeout=10)
    for part in ("cp", *(a.node for a in nodes)):
        _enable_forwarding(netns_path(cluster, part))


def _enable_forwarding(namespace: Path) -> None:
    """Enable IP forwarding, and connection tracking on the bridge, which replies of services have to pass."""
    script = (
        "echo 1 > /proc/sys/net/ipv4/ip_forward;"
        "[ -w /proc/sys/net/bridge/bridge-nf-call-iptables ] && echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables;"
        "cat /proc/sys/net/ipv4/ip_forward"
    )
    output = run(["nsenter", f"--net={namespace}", "/bin/sh", "-c", script], timeout=10)
    if output.strip() != "1":
        raise CommandError(["sysctl", "net.ipv4.ip_forward=1"], f"had no effect in {namespace.name}", output)


def remove(cluster: str) -> None:
    """Remove the namespaces. After a killed run or a reboot, a file may have no namespace; it is deleted."""
    for name in existing(cluster):
        run(["ip", "netns", "del", name], timeout=10, check=False)
        leftover = NETNS / name
        if leftover.exists():
            run(["umount", "-l", str(leftover)], timeout=10, check=False)
            leftover.unlink(missing_ok=True)
