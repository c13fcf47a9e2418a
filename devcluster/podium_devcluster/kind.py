"""`make kind`: the same chart, fake driver and example on kind, for people with Docker. `... kind down` deletes it.

Run as `python -m podium_devcluster.kind`. The node image is kind's own, or the one that PODIUM_KIND_NODE_IMAGE names
(where no registry can be reached).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from podium_devcluster import binaries, images, layout, loading, paths, tiny_images
from podium_devcluster.paths import Cache
from podium_devcluster.preflight import PreflightError, Problem
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run
from podium_devcluster.streaming import run_logged

CREATE_SECONDS, LOAD_SECONDS, INSTALL_SECONDS = 600.0, 300.0, 300.0
NAME = "podium"
# stops the agents first: they would freeze again. By /proc: a node image need not have pkill. [p] spares this shell
THAW = """for p in /proc/[0-9]*; do
  if tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q "[p]odium-agent"; then kill -9 ${p#/proc/}; fi
done
find /sys/fs/cgroup -name freezer.state 2>/dev/null | while read f; do echo THAWED >$f; done
find /sys/fs/cgroup -name cgroup.freeze 2>/dev/null | while read f; do echo 0 >$f; done"""
# the scheduler is an image of its own here: kind's registry may be out of reach
TOOLS = (binaries.KIND, binaries.KUBECTL, binaries.HELM, binaries.SCHEDULER)


def check() -> None:
    """Docker is the one thing that cannot be obtained here."""
    problems = []
    if shutil.which("docker") is None:
        problems.append(Problem("no docker", "install Docker 20.10 or newer, or use `make cluster` (root, no Docker)"))
    else:
        try:
            run(["docker", "info"], timeout=20)
        except CommandError as error:
            cure = f"start it, or set DOCKER_HOST; or use `make cluster` (root, no Docker). {error}"
            problems.append(Problem("no Docker engine answers", cure))
    if problems:
        raise PreflightError(problems)


class Kind:
    def __init__(self, cache: Cache, progress: Progress, project: Path) -> None:
        self.cache, self.progress, self.project = cache, progress, project
        self.kubeconfig = cache.root / "clusters" / f"kind-{NAME}" / "kubeconfig"
        self.log = cache.root / "log" / "kind.log"

    def tool(self, name: str) -> str:
        return str(self.cache.bin / name)

    def kubectl(self, *arguments: str, timeout: float = 60.0) -> str:
        return run([self.tool("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments], timeout=timeout)

    def exists(self) -> bool:
        return NAME in run([self.tool("kind"), "get", "clusters"], timeout=60).split()

    def create(self) -> None:
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        if self.exists():
            export = ["export", "kubeconfig", "--name", NAME, f"--kubeconfig={self.kubeconfig}"]
            run([self.tool("kind"), *export], timeout=60)
            self.progress.say(f"kind cluster {NAME} is there already")
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
        """kind takes archives: a layout folder is packed for the way."""
        sources = images.build(self.cache, self.progress)
        sources += tiny_images.ensure(self.cache, self.progress)
        with self.progress.step("load images into kind's nodes") as step, tempfile.TemporaryDirectory() as folder:
            held = self._held()
            sources = [source for source in sources if not all(_image(source) in node for node in held)]
            step.note(", ".join(source.name for source in sources) or "all there already")
            for source in sources:
                step.detail(source.name)
                archive = source
                if source.is_dir():
                    archive = Path(folder) / f"{source.name}.tar"
                    layout.write_archive(source, archive)
                argv = [self.tool("kind"), "load", "image-archive", "--name", NAME, str(archive)]
                run_logged(argv, log=self.log, step=step, timeout=LOAD_SECONDS)

    def _held(self) -> list[set[tuple[str, str]]]:
        """Name and digest of the images of each node."""
        nodes = self._nodes()
        listing = ["ctr", "-n", "k8s.io", "images", "ls"]
        return [
            set(loading.parse_listing(run(["docker", "exec", node, *listing], timeout=60)).items()) for node in nodes
        ]

    def install(self, leases: bool = False) -> None:
        """`leases`: the GPUs are another plugin's, which Podium only borrows (docs/explanation/gpu-reservations.md)."""
        with self.progress.step("fake driver") as step:
            step.detail("kubectl apply")
            self.kubectl("apply", "-f", str(self.project / "devcluster" / "manifests" / "fake-driver.yaml"))
            rollout = ["-n", "podium-fake-driver", "rollout", "status", "daemonset/podium-fake-driver"]
            self.kubectl(*rollout, "--timeout=120s", timeout=130)
        if leases:
            with self.progress.step("a plugin of nvidia.com/gpu") as step:
                step.detail("kubectl apply -k")
                self.kubectl("apply", "-k", str(self.project / "devcluster" / "manifests" / "nvidia-plugin"))
                rollout = ["-n", "podium-fake-driver", "rollout", "status", "daemonset/nvidia-plugin"]
                self.kubectl(*rollout, "--timeout=120s", timeout=130)
        argv = [self.tool("helm"), "upgrade", "--install", "podium", str(self.project / "charts" / "podium")]
        argv += [f"--kubeconfig={self.kubeconfig}", "--namespace", "podium-system", "--create-namespace"]
        argv += [*chart_values(self.project, leases), "--wait", "--timeout", "4m"]
        with self.progress.step("helm install podium") as step:
            run_logged(argv, log=self.log, step=step, timeout=INSTALL_SECONDS)

    def example(self, leases: bool = False) -> None:
        folder = self.project / "examples" / "digits"
        with self.progress.step("example job"):
            self.kubectl("apply", "-f", str(folder / ("reservations.yaml" if leases else "job.yaml")))
        self.progress.say(f"watch it: KUBECONFIG={self.kubeconfig} podium watch digits")
        if leases:
            self.progress.say(
                f"take a GPU from it: kubectl apply -f {folder / 'other-pod.yaml'}, and delete that again"
            )

    def delete(self) -> None:
        """Nothing may be frozen then: on cgroup v1 a frozen process outlives SIGKILL, and Docker gives up on it."""
        if self.exists():
            with self.progress.step("helm uninstall podium (resumes what is suspended)") as step:
                helm = [self.tool("helm"), "uninstall", "podium", "--namespace", "podium-system", "--ignore-not-found"]
                try:
                    run([*helm, f"--kubeconfig={self.kubeconfig}", "--timeout", "90s"], timeout=100)
                except CommandError:
                    step.note("not possible; thawing by hand")
            for node in self._nodes():
                run(["docker", "exec", node, "/bin/sh", "-c", THAW], timeout=60, check=False)
        with self.progress.step(f"kind delete cluster {NAME}") as step:
            argv = [self.tool("kind"), "delete", "cluster", "--name", NAME, f"--kubeconfig={self.kubeconfig}"]
            run_logged(argv, log=self.log, step=step, timeout=120)
        shutil.rmtree(self.kubeconfig.parent, ignore_errors=True)

    def _nodes(self) -> list[str]:
        return run([self.tool("kind"), "get", "nodes", "--name", NAME], timeout=60).split()


def chart_values(project: Path, leases: bool) -> list[str]:
    """helm's arguments."""
    source = ["--set", "gpus.mode=reservations"] if leases else []
    return ["--values", str(project / "examples" / "demo-values.yaml"), *source]


def _image(source: Path) -> tuple[str, str]:
    """Nothing that a node could hold where the archive does not say (an old `docker save`): it is sent again."""
    found = loading.image_of(source)
    return (found.name, found.digest) if found else ("", "")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m podium_devcluster.kind", description="Podium on kind.")
    parser.add_argument("what", nargs="?", choices=["up", "down"], default="up")
    parser.add_argument("--no-example", action="store_true", help="install Podium, apply no job")
    parser.add_argument("--reservations", action="store_true", help="Podium borrows the GPUs from another plugin")
    options = parser.parse_args(argv)
    cache, progress = Cache.default(), Progress()
    kind = Kind(cache, progress, paths.project_dir())
    try:
        check()
        binaries.ensure(cache, TOOLS, progress)
        if options.what == "down":
            kind.delete()
            return
        kind.create()
        kind.load()
        kind.install(options.reservations)
        if not options.no_example:
            kind.example(options.reservations)
    except KeyboardInterrupt:
        sys.exit(130)
    except (RuntimeError, OSError, ValueError) as error:
        print(f"make kind: {error}\nlog: {kind.log}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
