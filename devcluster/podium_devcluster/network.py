"""The network namespaces of one cluster: the control plane and each node, on one bridge. Nothing of it touches the
machine's own network: addresses may be the same in every cluster.

10.88.0.1 is the control plane, 10.88.0.11, .12, ... the nodes, 10.89.<n>.0/24 their pods, 10.96.0.0/24 the services.
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
POD_CIDR = "10.89.0.0/16"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    node: str
    number: int

    @property
    def ip(self) -> str:
        return f"10.88.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.89.{self.number}.0/24"


def addresses(nodes: Sequence[str]) -> tuple[NodeAddress, ...]:
    return tuple(NodeAddress(node, number) for number, node in enumerate(nodes, start=1))


def netns(cluster: str, part: str) -> str:
    """A dot cannot be in a cluster's name, so that cluster `a` never takes `a-b.node-1` for its own."""
    return f"{cluster}.{part}"


def netns_path(cluster: str, part: str) -> Path:
    return NETNS / netns(cluster, part)


def existing(cluster: str) -> list[str]:
    if not NETNS.is_dir():
        return []
    return sorted(entry.name for entry in NETNS.iterdir() if entry.name.startswith(f"{cluster}."))


def control_plane_batch(nodes: Sequence[NodeAddress]) -> str:
    """Commands of `ip -batch` inside the control plane's namespace. Pure."""
    lines = ["link set lo up", "link add br0 type bridge", f"addr add {CONTROL_PLANE_IP}/24 dev br0", "link set br0 up"]
    lines += [f"link set node{a.number} master br0 up" for a in nodes]
    lines += [f"route add {a.pods} via {a.ip}" for a in nodes]
    return "\n".join(lines) + "\n"


def node_batch(me: NodeAddress, nodes: Sequence[NodeAddress]) -> str:
    """Commands of `ip -batch` inside one node's namespace. Pure."""
    lines = ["link set lo up", f"addr add {me.ip}/24 dev eth0", "link set eth0 up"]
    lines += [f"route add default via {CONTROL_PLANE_IP}"]
    lines += [f"route add {a.pods} via {a.ip}" for a in nodes if a != me]
    return "\n".join(lines) + "\n"


def create(cluster: str, nodes: Sequence[NodeAddress]) -> None:
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
        _forward(netns_path(cluster, part))


def _forward(namespace: Path) -> None:
    """Routers must forward; a service's answer from the same bridge must pass connection tracking (where it exists)."""
    script = (
        "echo 1 > /proc/sys/net/ipv4/ip_forward;"
        "[ -w /proc/sys/net/bridge/bridge-nf-call-iptables ] && echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables;"
        "cat /proc/sys/net/ipv4/ip_forward"
    )
    said = run(["nsenter", f"--net={namespace}", "/bin/sh", "-c", script], timeout=10)
    if said.strip() != "1":
        raise CommandError(["sysctl", "net.ipv4.ip_forward=1"], f"had no effect in {namespace.name}", said)


def remove(cluster: str) -> None:
    """Also what a killed run or a reboot left: a file without a namespace behind it is just deleted."""
    for name in existing(cluster):
        run(["ip", "netns", "del", name], timeout=10, check=False)
        leftover = NETNS / name
        if leftover.exists():
            run(["umount", "-l", str(leftover)], timeout=10, check=False)
            leftover.unlink(missing_ok=True)
