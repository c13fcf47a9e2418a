"""`make demo`: a real two-node cluster, Podium on it, the digits search, a live table, a report, a clean machine again.

Each step is an ordinary command that a user could type; this script only runs them in order, with a time limit each,
says how long they took, and shows the last log lines where one fails. `--keep` leaves the cluster for a look around.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "podium-system"
JOB, JOB_NAMESPACE = "digits", "default"
GPU_NODES = 2
LAST_LINES = 20
LEAVE_SECONDS = 15.0  # for a command to end by itself after Ctrl-C, before it is killed

# seconds that a step may take; the first run builds Kubernetes from source and images without a registry
UP, IMAGES, INSTALL, READY, SEARCH, DOWN, SHORT = 2400.0, 1800.0, 300.0, 120.0, 1200.0, 180.0, 60.0


class StepError(Exception):
    """A step that did not do what it should, in a sentence."""


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    keep: bool
    report: Path
    job: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cluster of that name and its tools lie (the dev cluster's own layout)."""

    cache: Path
    name: str

    @property
    def cluster(self) -> Path:
        return self.cache / "clusters" / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.cluster / "kubeconfig"

    @property
    def environment(self) -> Mapping[str, str]:
        """Every command speaks to this cluster and to no other, whatever $KUBECONFIG says."""
        rooms = [
            str(path)
            for path in (ROOT / room for room in ("sdk", "core", "simulator", "cluster", "cli", "devcluster"))
            if path.is_dir()
        ]
        return os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PODIUM_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([*rooms, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

    def tool(self, name: str) -> str:
        """From the dev cluster's own binaries where it has one, else from the PATH."""
        own = self.cache / "bin" / name
        return str(own) if own.exists() else name


def module(name: str) -> list[str]:
    return [sys.executable, "-m", f"{name}.main"]


def call(place: Place, command: Sequence[str], seconds: float, *, quiet: bool = False) -> str:
    """Run one command within its time; its output is shown, or kept for the message if it fails (`quiet`)."""
    pipe = subprocess.PIPE if quiet else None
    process = subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT if quiet else None, text=True, cwd=ROOT, env=place.environment
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        end(process)
        raise StepError(f"`{' '.join(command)}` took longer than {seconds:g} s") from error
    except KeyboardInterrupt:  # the terminal told the command too: let it end in its own way
        end(process, told=True)
        raise
    except BaseException:
        end(process)
        raise
    if process.returncode:
        told = "\n".join((output or "").splitlines()[-LAST_LINES:])
        raise StepError(f"`{' '.join(command)}` ended with {process.returncode}\n{told}".rstrip())
    return output or ""


def end(process: subprocess.Popen[str], *, told: bool = False) -> None:
    """Politely first; `told`: it has had its signal already, and a second one would cut its own cleaning short."""
    for number in (None if told else signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            process.send_signal(number)
        try:
            process.wait(LEAVE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def step(title: str) -> Iterator[None]:
    print(f"== {title}", flush=True)
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        print(f"== {title}: not done after {time.monotonic() - begun:.1f} s", flush=True)
        raise
    print(f"== {title}: {time.monotonic() - begun:.1f} s", flush=True)


def wait_until(ready: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise StepError(f"{what}: not within {seconds:g} s")
        time.sleep(0.5)


def install(place: Place) -> None:
    """A cluster named `place.name` with Podium on it, ready for a search. The e2e tests begin here too."""
    devcluster = module("podium_devcluster")
    with step("tools: helm and kubectl of the cluster's version"):
        call(place, [*devcluster, "binaries", "helm", "kubectl"], UP)
    kubectl, helm = place.tool("kubectl"), place.tool("helm")
    with step("cluster: etcd, control plane, two nodes"):
        call(place, [*devcluster, "up", "--name", place.name], UP)
    with step("images: Podium, fake driver, example"):
        call(place, [*devcluster, "images", "--name", place.name], IMAGES)
    with step("fake driver: one GPU a node"):
        call(place, [kubectl, "apply", "-f", str(ROOT / "devcluster/manifests/fake-driver.yaml")], SHORT, quiet=True)
        rollout = [kubectl, "rollout", "status", "daemonset/podium-fake-driver", "-n", "podium-fake-driver"]
        call(place, [*rollout, f"--timeout={READY:g}s"], READY + 10, quiet=True)
    with step("Podium: helm install"):
        values = ["-f", str(ROOT / "examples/demo-values.yaml")]
        where = ["-n", NAMESPACE, "--create-namespace", "--wait", f"--timeout={INSTALL:g}s"]
        call(
            place,
            [helm, "upgrade", "--install", "podium", str(ROOT / "charts/podium"), *values, *where],
            INSTALL + 20,
            quiet=True,
        )
        wait_until(lambda: gpus(place, kubectl) >= GPU_NODES, f"{GPU_NODES} healthy GPUs in GPUNodes", READY)


def run(options: Options, place: Place) -> str:
    """The whole demo; returns the line to end with."""
    install(place)
    podium, kubectl = module("podium_cli"), place.tool("kubectl")
    with step(f"search: {options.job.name}"):
        # a kept cluster may hold the job of the run before
        call(
            place,
            [kubectl, "delete", "hyperparamjob", JOB, "-n", JOB_NAMESPACE, "--ignore-not-found"],
            SHORT,
            quiet=True,
        )
        call(place, [kubectl, "apply", "-n", JOB_NAMESPACE, "-f", str(options.job)], SHORT, quiet=True)
        call(place, [*podium, "watch", JOB, "-n", JOB_NAMESPACE, "--until-done"], SEARCH)
    with step("report"):
        written = call(
            place, [*podium, "report", JOB, "-n", JOB_NAMESPACE, "-o", str(options.report)], SHORT, quiet=True
        )
        print(call(place, [*podium, "summary", JOB, "-n", JOB_NAMESPACE], SHORT, quiet=True), end="")
    return written.strip()


def gpus(place: Place, kubectl: str) -> int:
    """Healthy GPUs that agents have reported so far."""
    path = "jsonpath={.items[*].status.gpus[*].health}"
    try:
        return call(place, [kubectl, "get", "gpunodes", "-o", path], SHORT, quiet=True).split().count("Healthy")
    except StepError:
        return 0


def diagnose(place: Place) -> None:
    """What one would look at first, as far as it can still be had."""
    kubectl = place.tool("kubectl")
    looks = (
        ("pods", ["get", "pods", "-A", "-o", "wide"]),
        ("jobs and trials", ["get", "hyperparamjobs,hyperparamtrials", "-A"]),
        ("operator", ["logs", "-n", NAMESPACE, "deployment/podium-operator", f"--tail={LAST_LINES}"]),
        (
            "extender",
            ["logs", "-n", NAMESPACE, "deployment/podium-scheduler", "-c", "extender", f"--tail={LAST_LINES}"],
        ),
        ("agent", ["logs", "-n", NAMESPACE, "daemonset/podium-agent", f"--tail={LAST_LINES}"]),
        ("events", ["get", "events", "-A", "--sort-by=.lastTimestamp"]),
    )
    if not place.kubeconfig.exists():
        return
    for title, arguments in looks:
        try:
            output = call(place, [kubectl, "--request-timeout=10s", *arguments], SHORT, quiet=True)
        except StepError as error:
            output = str(error)
        print(f"-- {title}", *output.splitlines()[-LAST_LINES:], sep="\n", file=sys.stderr)


def down(options: Options, place: Place) -> bool:
    """End the cluster; a second Ctrl-C must not leave half of it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: print("\n== still ending the cluster, a moment", flush=True))
    command = [*module("podium_devcluster"), "down", "--name", options.name]
    try:
        with step("down: no process, namespace, mount or cgroup is left"):
            # in a session of its own: the terminal's Ctrl-C does not reach it
            subprocess.run(command, cwd=ROOT, env=place.environment, timeout=DOWN, check=True, start_new_session=True)
    except (subprocess.SubprocessError, OSError) as error:
        print(
            f"demo: {error}; try `podium-devcluster down --name {options.name}`; logs: {place.cluster / 'log'}",
            file=sys.stderr,
        )
        return False
    return True


def terminated(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def parse() -> Options:
    parser = argparse.ArgumentParser(description="the digits search on a real two-node cluster on this machine")
    parser.add_argument("--name", default="demo", help="name of the cluster (default: demo)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    parser.add_argument("--report", type=Path, default=Path("podium-report.html"), help="where the report goes")
    parser.add_argument("--job", type=Path, default=ROOT / "examples/digits/job.yaml", help="another job named digits")
    given = parser.parse_args()
    return Options(given.name, given.keep, given.report.absolute(), given.job.absolute())


def main() -> int:
    options = parse()
    cache = os.environ.get("PODIUM_CACHE") or str(Path.home() / ".cache" / "podium")
    place = Place(Path(cache).expanduser().absolute(), options.name)
    if os.geteuid() != 0:
        print("demo: the cluster needs root (namespaces, cgroups, mounts): run `sudo make demo`", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, terminated)
    begun = time.monotonic()
    code, last = 0, ""
    try:
        last = run(options, place)
    except StepError as error:
        print(f"demo: {error}", file=sys.stderr)
        diagnose(place)
        print(f"demo: logs of the cluster are in {place.cluster / 'log'}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("\n== interrupted", flush=True)
        code = 130
    finally:
        if not options.keep and not down(options, place):
            code = code or 1
    if options.keep:
        print(f"the cluster goes on: export KUBECONFIG={place.kubeconfig}")
        print(f"end it with `podium-devcluster down --name {options.name}`")
    print(f"== {time.monotonic() - begun:.0f} s in all")
    if last:
        print(last)
    return code


if __name__ == "__main__":
    sys.exit(main())
