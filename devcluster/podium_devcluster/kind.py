"""Podium on kind, for machines with Docker (`make kind`): the same chart, fake driver and example.

Run as `python -m podium_devcluster.kind`; `python -m podium_devcluster.kind down` deletes it. With `--reservations`,
NVIDIA's device plugin and container toolkit run over the fake driver. Where no registry can be reached,
PODIUM_KIND_NODE_IMAGE names the node image.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import paths
from podium_devcluster.artifacts import binaries, images, layout, tiny_images
from podium_devcluster.artifacts import nvidia as nvidia_programs
from podium_devcluster.artifacts.preparation import build_all
from podium_devcluster.paths import Cache
from podium_devcluster.preflight import PreflightError, Problem
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import loading, nvidia
from podium_devcluster.shell import CommandError, run, run_logged

CREATE_SECONDS, LOAD_SECONDS, INSTALL_SECONDS, COPY_SECONDS, DELETE_SECONDS = 600.0, 300.0, 300.0, 300.0, 600.0
NAME = "podium"
# Kills the agents first, because they would freeze again. It reads /proc, because a node image may lack pkill. The
# pattern [p]odium does not match this shell itself.
THAW = """for p in /proc/[0-9]*; do
  if tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q "[p]odium-agent"; then kill -9 ${p#/proc/}; fi
done
find /sys/fs/cgroup -name freezer.state 2>/dev/null | while read f; do echo THAWED >$f; done
find /sys/fs/cgroup -name cgroup.freeze 2>/dev/null | while read f; do echo 0 >$f; done"""
# the chart's kube-scheduler image is built from the program, since no registry may be reachable
TOOLS = (binaries.KIND, binaries.KUBECTL, binaries.HELM, binaries.SCHEDULER)


def check() -> None:
    """Raise PreflightError if Docker is missing or does not answer."""
    problems = []
    if shutil.which("docker") is None:
        problems.append(Problem("no docker", "install Docker 20.10 or newer, or use `make cluster` (root, no Docker)"))
    else:
        try:
            run(["docker", "info"], timeout=20)
        except CommandError as error:
            cure = f"start it, set DOCKER_HOST, or use `make cluster` (root, no Docker). {error}"
            problems.append(Problem("no Docker engine answers", cure))
    if problems:
        raise PreflightError(problems)


@dataclass(frozen=True, slots=True)
class KindNode:
    """A node of kind: a container of Docker."""

    name: str

    def execute(self, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        """Run a program in the node and return its standard output."""
        return run(["docker", "exec", "--interactive", self.name, *argv], timeout=timeout, stdin=stdin)

    def copy(self, source: Path, target: str) -> None:
        """Copy a folder of this machine to `target` in the node, unless the node has it already."""
        parent, _, name = target.rpartition("/")
        partial = f"{parent}/.{name}"  # an interrupted copy does not get the right name
        prepare = 'test -d "$1" && echo present || { rm -rf "$2"; mkdir -p "$3"; }'
        if self.execute(["/bin/sh", "-c", prepare, "sh", target, partial, parent]).strip():
            return
        run(["docker", "cp", str(source), f"{self.name}:{partial}"], timeout=COPY_SECONDS)
        self.execute(["mv", partial, target])


class Kind:
    """The kind cluster with Podium on it."""

    def __init__(self, cache: Cache, progress: Progress, project: Path) -> None:
        self.cache, self.progress, self.project = cache, progress, project
        self.kubeconfig = cache.root / "clusters" / f"kind-{NAME}" / "kubeconfig"
        self.log = cache.root / "log" / "kind.log"

    def tool(self, name: str) -> str:
        """Return the path of a program in the cache."""
        return str(self.cache.bin / name)

    def kubectl(self, *arguments: str, timeout: float = 60.0, stdin: str | None = None) -> str:
        """Run kubectl on the cluster and return its standard output."""
        argv = [self.tool("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(argv, timeout=timeout, stdin=stdin)

    @property
    def nodes(self) -> tuple[KindNode, ...]:
        """The nodes of the cluster."""
        names = run([self.tool("kind"), "get", "nodes", "--name", NAME], timeout=60).split()
        return tuple(map(KindNode, sorted(names)))

    def provide(self, folder: Path) -> str:
        """Copy a folder of the cache's `bin` to all nodes, and return its path there."""
        target = f"/opt/podium/{folder.name}"
        for node in self.nodes:
            node.copy(folder, target)
        return target

    def restart(self, component: str, node: str | None = None) -> None:
        """Restart a systemd unit of a node, or of all nodes; containerd tells systemd when it is ready."""
        for one in self.nodes:
            if node in (None, one.name):
                one.execute(["systemctl", "restart", component], timeout=120)

    def exists(self) -> bool:
        """Return whether the cluster exists."""
        return NAME in run([self.tool("kind"), "get", "clusters"], timeout=60).split()

    def create(self) -> None:
        """Create the cluster, or write the kubeconfig of an existing one."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        if self.exists():
            export = ["export", "kubeconfig", "--name", NAME, f"--kubeconfig={self.kubeconfig}"]
            run([self.tool("kind"), *export], timeout=60)
            self.progress.say(f"kind cluster {NAME} exists already")
            return
        argv = [self.tool("kind"), "create", "cluster", "--name", NAME, "--wait", "180s"]
        argv += ["--config", str(self.project / "kind-config.yaml"), "--kubeconfig", str(self.kubeconfig)]
        image = os.environ.get("PODIUM_KIND_NODE_IMAGE", "")
        argv += ["--image", image] if image else []
        with self.progress.step("kind create cluster") as step:
            step.note(image)
            run_logged(argv, log=self.log, step=step, timeout=CREATE_SECONDS)
            self.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s", timeout=130)

    def load(self) -> None:
        """Build the images and load those that a node lacks.

        kind accepts archives only, so layout folders are packed first.
        """
        sources = images.build(self.cache, self.progress)
        sources += tiny_images.ensure(self.cache, self.progress)
        with self.progress.step("load images into kind's nodes") as step, tempfile.TemporaryDirectory() as folder:
            loaded = self._loaded()
            sources = [source for source in sources if not all(_image(source) in node for node in loaded)]
            step.note(", ".join(source.name for source in sources) or "up to date")
            for source in sources:
                step.detail(source.name)
                archive = source
                if source.is_dir():
                    archive = Path(folder) / f"{source.name}.tar"
                    layout.write_archive(source, archive)
                argv = [self.tool("kind"), "load", "image-archive", "--name", NAME, str(archive)]
                run_logged(argv, log=self.log, step=step, timeout=LOAD_SECONDS)

    def _loaded(self) -> list[set[tuple[str, str]]]:
        """Return the images of each node, as names and digests."""
        listing = ["ctr", "-n", "k8s.io", "images", "ls"]
        return [set(loading.parse_listing(node.execute(listing, timeout=60)).items()) for node in self.nodes]

    def install(self, reservations: bool = False) -> None:
        """Install the fake driver and Podium. `reservations`: NVIDIA's device plugin provides the GPUs."""
        with self.progress.step("fake driver") as step:
            step.detail("kubectl apply")
            nvidia.install_fake_driver(self)
        if reservations:
            nvidia.install_toolkit(self)
            nvidia.start_plugin(self)
        else:
            nvidia.stop_plugin(self)  # an earlier run may have started it, and Podium does not share a node with it
        argv = [self.tool("helm"), "upgrade", "--install", "podium", str(self.project / "charts" / "podium")]
        argv += [f"--kubeconfig={self.kubeconfig}", "--namespace", "podium-system", "--create-namespace"]
        argv += [*chart_values(self.project, reservations), "--wait", "--timeout", "4m"]
        with self.progress.step("helm install podium") as step:
            run_logged(argv, log=self.log, step=step, timeout=INSTALL_SECONDS)

    def example(self, reservations: bool = False) -> None:
        """Apply the example job."""
        folder = self.project / "examples" / "digits"
        with self.progress.step("example job"):
            self.kubectl("apply", "-f", str(folder / ("reservations.yaml" if reservations else "job.yaml")))
        self.progress.say(f"watch it: KUBECONFIG={self.kubeconfig} podium watch digits")
        if reservations:
            self.progress.say(
                f"take a GPU from it: kubectl apply -f {folder / 'other-pod.yaml'}, and delete that again"
            )

    def delete(self) -> None:
        """Thaw all processes and delete the cluster.

        On cgroup v1 a frozen process survives SIGKILL, and Docker then fails to remove its container.
        """
        if self.exists():
            with self.progress.step("helm uninstall podium (resumes what is suspended)") as step:
                helm = [self.tool("helm"), "uninstall", "podium", "--namespace", "podium-system", "--ignore-not-found"]
                try:
                    run([*helm, f"--kubeconfig={self.kubeconfig}", "--timeout", "90s"], timeout=100)
                except CommandError:
                    step.skip("helm failed; processes are thawed directly instead")
            for node in self.nodes:
                run(["docker", "exec", node.name, "/bin/sh", "-c", THAW], timeout=60, check=False)
        with self.progress.step(f"kind delete cluster {NAME}") as step:
            argv = [self.tool("kind"), "delete", "cluster", "--name", NAME, f"--kubeconfig={self.kubeconfig}"]
            run_logged(argv, log=self.log, step=step, timeout=DELETE_SECONDS)
        shutil.rmtree(self.kubeconfig.parent, ignore_errors=True)


def chart_values(project: Path, reservations: bool) -> list[str]:
    """Return helm's arguments."""
    source = ["--set", "gpus.mode=reservations"] if reservations else []
    return ["--values", str(project / "examples" / "demo-values.yaml"), *source]


def _image(source: Path) -> tuple[str, str]:
    """Return name and digest of an image.

    An archive of an old `docker save` has neither. It gets empty texts, so it is sent again.
    """
    image = loading.image_of(source)
    return (image.name, image.digest) if image else ("", "")


def main(argv: Sequence[str] | None = None) -> None:
    """Create the cluster with Podium and the example, or delete it."""
    parser = argparse.ArgumentParser(prog="python -m podium_devcluster.kind", description="Podium on kind.")
    parser.add_argument("what", nargs="?", choices=["up", "down"], default="up")
    parser.add_argument("--no-example", action="store_true", help="install Podium without a job")
    parser.add_argument("--reservations", action="store_true", help="NVIDIA's device plugin provides the GPUs")
    options = parser.parse_args(argv)
    cache, progress = Cache.default(), Progress()
    kind = Kind(cache, progress, paths.project_dir())
    try:
        check()
        build_all(binaries.pieces(cache, TOOLS, progress), cache, progress)
        if options.what == "down":
            kind.delete()
            return
        if options.reservations:
            nvidia_programs.ensure(cache, progress)
        kind.create()
        kind.load()
        kind.install(options.reservations)
        if not options.no_example:
            kind.example(options.reservations)
    except KeyboardInterrupt:
        sys.exit(130)
    except (RuntimeError, OSError, ValueError) as error:
        print(f"make kind: {error}\nLog: {kind.log}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
