"""`podium-devcluster`: the command line over Cluster and the images. Called by the Makefile, the demo and people."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

from podium_devcluster import binaries
from podium_devcluster.cluster import Cluster
from podium_devcluster.node_config import KubeletSettings
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="podium-devcluster", description="A real Kubernetes cluster on this machine.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--name", default=os.environ.get("PODIUM_CLUSTER", "podium"), help="which cluster (podium)")
        return sub

    up = command("up", "start it; a healthy one is taken as it is")
    up.add_argument("--nodes", type=int, default=None, choices=range(9), help="0: control plane alone (2)")
    up.add_argument("--container-log-max-size", default=None, help="a kubelet rotates a container's log beyond (10Mi)")
    up.add_argument("--container-log-monitor-interval", default=None, help="how often it looks (10s)")
    down = command("down", "end it: no process, namespace, mount or control group is left")
    down.add_argument("--purge", action="store_true", help="also forget its logs, certificates and the nodes' images")
    command("status", "what runs, and whether it is healthy; exit status 1 when not")
    images = command("images", "build the images and load them into the running cluster")
    images.add_argument("--no-load", action="store_true", help="build only")
    images.add_argument("only", nargs="*", help="images by short name (podium, podium-fake-driver, podium-digits)")
    kubectl = command("kubectl", "kubectl on this cluster: podium-devcluster kubectl -- get nodes")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    execute = command("node-exec", "a program inside a node: podium-devcluster node-exec node-1 -- ps aux")
    execute.add_argument("node")
    execute.add_argument("arguments", nargs=argparse.REMAINDER)
    for name, text in (("kill", "SIGKILL one component"), ("start", "start it again"), ("restart", "both")):
        fault = command(name, f"{text}: kubelet@node-1, containerd@node-2, kube-scheduler, ...")
        fault.add_argument("component")
    tools = command("binaries", "find or build programs into the cache and print where it is")
    tools.add_argument("programs", nargs="*", choices=["helm", "kind", "kubectl", []], help="besides the cluster's own")
    return top


def main(argv: Sequence[str] | None = None) -> None:
    signal.signal(signal.SIGTERM, _interrupted)
    options = parser().parse_args(argv)
    try:
        code = run_command(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"podium-devcluster {options.command}: {text}", file=sys.stderr)
        code = 1
    sys.exit(code)


def run_command(options: argparse.Namespace) -> int:
    cluster = _cluster(options)
    match options.command:
        case "up":
            cluster.up()
        case "down":
            cluster.down(purge=options.purge)
        case "status":
            return _status(cluster)
        case "images":
            from podium_devcluster.images import build_and_load

            build_and_load(cluster, options.only, load=not options.no_load)
        case "kubectl":
            program = cluster.cache.bin / "kubectl"
            os.execv(program, [str(program), f"--kubeconfig={cluster.kubeconfig}", *rest(options.arguments)])
        case "node-exec":
            argv = cluster.node(options.node).enter(rest(options.arguments) or ["/bin/bash"])
            os.execvp(argv[0], argv)
        case "kill" | "start" | "restart":
            getattr(cluster, options.command)(options.component)
        case "binaries":
            extra = {"helm": binaries.HELM, "kind": binaries.KIND, "kubectl": binaries.KUBECTL}
            wanted = tuple(extra[name] for name in options.programs) or binaries.needed(2)
            binaries.ensure(cluster.cache, wanted, cluster.progress)
            print(cluster.cache.bin)
    return 0


def _cluster(options: argparse.Namespace) -> Cluster:
    size = getattr(options, "container_log_max_size", None)
    interval = getattr(options, "container_log_monitor_interval", None)
    kubelet = None
    if size is not None or interval is not None:
        plain = KubeletSettings()
        kubelet = replace(
            plain,
            log_max_size=size or plain.log_max_size,
            log_monitor_interval=interval or plain.log_monitor_interval,
        )
    nodes = getattr(options, "nodes", None)
    return Cluster(options.name, nodes=nodes, kubelet=kubelet, cache=Cache.default(), progress=Progress())


def _status(cluster: Cluster) -> int:
    complaints = cluster.complaints()
    for component, record in cluster.processes.records().items():
        state = "running" if cluster.processes.alive(component) else "ENDED"
        print(f"{component:28} {state:8} {record.pid:>8}  {record.log}")
    if complaints:
        print(f"cluster {cluster.name}: " + "; ".join(complaints))
        return 1
    print(f"cluster {cluster.name} is healthy: KUBECONFIG={cluster.kubeconfig}")
    return 0


def rest(arguments: list[str]) -> list[str]:
    """What stands behind `--` (argparse drops it in some versions of Python, and in some places)."""
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _interrupted(number: int, frame: FrameType | None) -> None:
    """SIGTERM clears up as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
