"""`podium-devcluster`: the command line of the dev cluster, for the Makefile, the demo and people."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

from podium_devcluster import storage
from podium_devcluster.artifacts import binaries, gobuild, images, rootfs
from podium_devcluster.artifacts.preparation import build_all
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import controllers, nvidia
from podium_devcluster.runtime.node_config import KubeletSettings
from podium_devcluster.vm.machine import Machine


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="podium-devcluster", description="A real Kubernetes cluster on this machine.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--name", default=os.environ.get("PODIUM_CLUSTER", "podium"), help="which cluster (podium)")
        return sub

    up = command("up", "start the cluster; a healthy one is accepted as it is")
    up.add_argument("--nodes", type=int, default=None, choices=range(9), help="number of nodes; 0: control plane (2)")
    up.add_argument("--container-log-max-size", default=None, help="size at which a container's log is rotated (10Mi)")
    up.add_argument("--container-log-monitor-interval", default=None, help="time between two size checks (10s)")
    down = command("down", "end the cluster; no process, namespace, mount or control group remains")
    down.add_argument("--purge", action="store_true", help="also remove its logs, certificates and the nodes' images")
    command("status", "list the components and the cluster's health; exit status 1 if it is not healthy")
    builds = command("images", "build the images and load them into the running cluster")
    builds.add_argument("--no-load", action="store_true", help="build only")
    builds.add_argument("only", nargs="*", help="images by short name (podium, podium-fake-driver, podium-digits)")
    parts = command(
        "nvidia", "install NVIDIA's container toolkit and device plugin over the fake driver, which must run"
    )
    parts.add_argument("--strategy", default="cdi-cri", choices=["cdi-cri", "envvar"], help="of the plugin (cdi-cri)")
    giver = parts.add_mutually_exclusive_group()
    giver.add_argument("--no-plugin", action="store_true", help="the toolkit only: GPUs for Podium's own device plugin")
    giver.add_argument("--dra", action="store_true", help="a driver of dynamic resources instead of the device plugin")
    command("kueue", "install Kueue, built from its Go module, with the feature gate PriorityBoost")
    command("jobset", "install JobSet, built from its Go module")
    command("trainer", "install JobSet and Kubeflow Trainer, built from their Go modules")
    virtual = command(
        "vm", "a node in a virtual machine (systemd, cgroup v2) with the images of node-1: podium-devcluster vm start"
    )
    virtual.add_argument(
        "action", choices=["start", "stop", "exec"], help="exec runs a program in it: vm exec -- ps aux"
    )
    virtual.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl = command("kubectl", "run kubectl on this cluster: podium-devcluster kubectl -- get nodes")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    execute = command("node-exec", "run a program in a node: podium-devcluster node-exec node-1 -- ps aux")
    execute.add_argument("node")
    execute.add_argument("arguments", nargs=argparse.REMAINDER)
    for name, text in (("kill", "kill a component"), ("start", "start it again"), ("restart", "kill and start it")):
        fault = command(name, f"{text}: kubelet@node-1, containerd@node-2, kube-scheduler, ...")
        fault.add_argument("component")
    tools = command("binaries", "bring programs into the cache and print its folder")
    tools.add_argument(
        "programs", nargs="*", choices=["helm", "kind", "kubectl", []], help="default: the cluster's own"
    )
    command("prepare", "build everything that the demo needs into the cache, without a cluster")
    command("cache", "print the size of the cache and how to remove it")
    command("clean", "remove the cache; refused while a cluster runs from it")
    return top


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its status."""
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
    """Run one command and return the exit status."""
    cluster = _cluster(options)
    cache, progress = cluster.cache, cluster.progress
    match options.command:
        case "up":
            cluster.up()
        case "down":
            cluster.down(purge=options.purge)
        case "status":
            return _status(cluster)
        case "images":
            images.build_and_load(cluster, options.only, load=not options.no_load)
        case "nvidia":
            nvidia.install_toolkit(cluster)
            if options.no_plugin or options.dra:
                nvidia.stop_plugin(cluster)
            if options.dra:
                nvidia.start_dra_driver(cluster)
            else:
                nvidia.stop_dra_driver(cluster)
            if not (options.no_plugin or options.dra):
                nvidia.start_plugin(cluster, options.strategy)
        case "kueue" | "jobset" | "trainer":
            controllers.BY_COMMAND[options.command].install(cluster)
        case "vm":
            _vm(Machine(cluster), options)
        case "kubectl":
            program = cache.bin / "kubectl"
            os.execv(program, [str(program), f"--kubeconfig={cluster.kubeconfig}", *rest(options.arguments)])
        case "node-exec":
            argv = cluster.node(options.node).enter(rest(options.arguments) or ["/bin/bash"])
            os.execvp(argv[0], argv)
        case "kill" | "start" | "restart":
            getattr(cluster, options.command)(options.component)
        case "binaries":
            extra = {"helm": binaries.HELM, "kind": binaries.KIND, "kubectl": binaries.KUBECTL}
            wanted = tuple(extra[name] for name in options.programs) or binaries.needed(2)
            build_all(binaries.pieces(cache, wanted, progress), cache, progress)
            print(cache.bin)
        case "prepare":
            cluster.check_machine()
            programs = binaries.pieces(cache, binaries.STANDARD, progress)
            build_all(
                [*programs, *rootfs.pieces(cache, progress), *images.Workshop.of(cache, progress).pieces()],
                cache,
                progress,
            )
            gobuild.remove_inputs(cache)
        case "cache":
            print(storage.report(cache))
        case "clean":
            print(storage.clean(cache))
    return 0


def _cluster(options: argparse.Namespace) -> Cluster:
    size = getattr(options, "container_log_max_size", None)
    interval = getattr(options, "container_log_monitor_interval", None)
    kubelet = None
    if size is not None or interval is not None:
        default = KubeletSettings()
        kubelet = replace(
            default,
            log_max_size=size or default.log_max_size,
            log_monitor_interval=interval or default.log_monitor_interval,
        )
    nodes = getattr(options, "nodes", None)
    return Cluster(options.name, nodes=nodes, kubelet=kubelet, cache=Cache.default(), progress=Progress())


def _vm(machine: Machine, options: argparse.Namespace) -> None:
    if options.action == "start":
        machine.start()
    elif options.action == "stop":
        machine.stop()
    else:
        print(machine.execute(rest(options.arguments) or ["/usr/bin/systemctl", "status"]), end="")


def _status(cluster: Cluster) -> int:
    problems = cluster.problems()
    for component, record in cluster.processes.records().items():
        state = "running" if cluster.processes.alive(component) else "ENDED"
        print(f"{component:28} {state:8} {record.pid:>8}  {record.log}")
    if problems:
        print(f"cluster {cluster.name}: " + "; ".join(problems))
        return 1
    print(f"cluster {cluster.name} is healthy: KUBECONFIG={cluster.kubeconfig}")
    return 0


def rest(arguments: list[str]) -> list[str]:
    """Return the arguments after `--`, which some versions of argparse keep."""
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
