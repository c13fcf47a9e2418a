"""`make demo`: a real two-node cluster with Podium, the digits search, a live table and a report.

Each step is an ordinary command that a user could type. This script runs them in order, each with a time limit, prints
how long they took, and shows the last log lines if one fails. At the end it removes the cluster; `--keep` keeps it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import select
import signal
import subprocess
import sys
import time
import webbrowser
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
GRACE_SECONDS = 15.0  # for a command to end by itself after Ctrl-C, before it is killed

# time limits in seconds; the first run builds Kubernetes from source, and images without a registry
PREPARE, UP, IMAGES, INSTALL, READY, SEARCH, DOWN, SHORT = 5400.0, 2400.0, 1800.0, 300.0, 120.0, 1200.0, 180.0, 60.0

STEPS = {
    "prepare": ("build what is missing", None),
    "up": ("cluster: etcd, control plane, two nodes", 15.0),
    "images": ("images: load them into the nodes", 30.0),
    "driver": ("fake driver: one GPU per node", 5.0),
    "install": ("Podium: helm install", 20.0),
    "search": ("search: digits", 300.0),
    "report": ("report", 5.0),
    "down": ("remove the cluster", 5.0),
}
"""The title of each step and its typical duration in seconds, measured on two cores with a filled cache."""


class StepError(Exception):
    """A step failed; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    name: str
    keep: bool
    report: Path
    job: Path


@dataclass(frozen=True, slots=True)
class Installation:
    """Paths and environment of the cluster with this name, as the dev cluster lays them out."""

    cache: Path
    name: str

    @property
    def cluster(self) -> Path:
        """The state folder of the cluster."""
        return self.cache / "clusters" / self.name

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.cluster / "kubeconfig"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of all commands: they use this cluster, whatever the caller's KUBECONFIG is."""
        names = ("sdk", "core", "simulator", "searchers", "suspension", "cluster", "local", "views", "dashboard", "cli")
        sources = [str(ROOT / name) for name in (*names, "devcluster") if (ROOT / name).is_dir()]
        return os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PODIUM_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

    def tool(self, name: str) -> str:
        """Return a program of the cache, or its name if the cache lacks it, to be searched in PATH."""
        cached = self.cache / "bin" / name
        return str(cached) if cached.exists() else name


def module(name: str) -> list[str]:
    """Return the command line of a package's main module."""
    return [sys.executable, "-m", f"{name}.main"]


def call(installation: Installation, command: Sequence[str], seconds: float, *, quiet: bool = False) -> str:
    """Run one command with a time limit.

    `quiet` keeps its output for the error message instead of showing it.
    """
    pipe = subprocess.PIPE if quiet else None
    process = subprocess.Popen(
        command,
        stdout=pipe,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        cwd=ROOT,
        env=installation.environment,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        end(process)
        raise StepError(f"`{' '.join(command)}` took longer than {seconds:g} s") from error
    except KeyboardInterrupt:  # the terminal sent the signal to the command as well: let it clean up
        end(process, signalled=True)
        raise
    except BaseException:
        end(process)
        raise
    if process.returncode:
        tail = "\n".join((output or "").splitlines()[-LAST_LINES:])
        raise StepError(f"`{' '.join(command)}` ended with {process.returncode}\n{tail}".rstrip())
    return output or ""


def end(process: subprocess.Popen[str], *, signalled: bool = False) -> None:
    """End a process with SIGTERM, then SIGKILL.

    `signalled`: it is cleaning up already, so wait before SIGTERM.
    """
    for number in (None if signalled else signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            process.send_signal(number)
        try:
            process.wait(GRACE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            continue


class Steps:
    """Counts the steps of a run and prints how long each took."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._number = itertools.count(1)

    @contextmanager
    def step(self, name: str, detail: str = "") -> Iterator[None]:
        """Print a step's number, title and typical duration; afterwards, its duration."""
        title, typical = STEPS[name]
        title = f"{title}{' ' + detail if detail else ''}"
        head = f"== {next(self._number)} of {len(self._names)}: {title}"
        print(f"{head}{f' (typically {typical:g} s)' if typical else ''}", flush=True)
        started = time.monotonic()
        try:
            yield
        except BaseException:
            print(f"{head}: failed after {time.monotonic() - started:.1f} s", flush=True)
            raise
        print(f"{head}: {time.monotonic() - started:.1f} s", flush=True)


def wait_until(ready: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until `ready` returns true. Raises StepError."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise StepError(f"{what}: not reached within {seconds:g} s")
        time.sleep(0.5)


INSTALL_STEPS = ("prepare", "up", "images", "driver", "install")


def install(installation: Installation, steps: Steps | None = None) -> None:
    """Start a cluster with Podium, ready for a search. The e2e tests start here too."""
    steps = steps or Steps(*INSTALL_STEPS)
    devcluster = module("podium_devcluster")
    with steps.step("prepare"):
        call(installation, [*devcluster, "prepare", "--name", installation.name], PREPARE)
    kubectl, helm = installation.tool("kubectl"), installation.tool("helm")
    with steps.step("up"):
        call(installation, [*devcluster, "up", "--name", installation.name], UP)
    with steps.step("images"):
        call(installation, [*devcluster, "images", "--name", installation.name], IMAGES)
    with steps.step("driver"):
        manifest = str(ROOT / "devcluster/manifests/fake-driver.yaml")
        call(installation, [kubectl, "apply", "-f", manifest], SHORT, quiet=True)
        rollout = [kubectl, "rollout", "status", "daemonset/podium-fake-driver", "-n", "podium-fake-driver"]
        call(installation, [*rollout, f"--timeout={READY:g}s"], READY + 10, quiet=True)
    with steps.step("install"):
        values = ["-f", str(ROOT / "examples/demo-values.yaml")]
        options = ["-n", NAMESPACE, "--create-namespace", "--wait", f"--timeout={INSTALL:g}s"]
        command = [helm, "upgrade", "--install", "podium", str(ROOT / "charts/podium"), *values, *options]
        call(installation, command, INSTALL + 20, quiet=True)
        enough = f"{GPU_NODES} healthy GPUs in GPUNodes"
        wait_until(lambda: healthy_gpus(installation, kubectl) >= GPU_NODES, enough, READY)


def run(options: Options, installation: Installation, steps: Steps) -> str:
    """Run the whole demo and return its last line."""
    install(installation, steps)
    podium, kubectl = module("podium_cli"), installation.tool("kubectl")
    job = [JOB, "-n", JOB_NAMESPACE]
    with dashboard(installation), steps.step("search", f"({options.job.name})"):
        # a kept cluster may hold the job of an earlier run
        call(installation, [kubectl, "delete", "hyperparamjob", *job, "--ignore-not-found"], SHORT, quiet=True)
        call(installation, [kubectl, "apply", "-n", JOB_NAMESPACE, "-f", str(options.job)], SHORT, quiet=True)
        call(installation, [*podium, "watch", *job, "--until-done"], SEARCH)
    with steps.step("report"):
        saved = save(installation, kubectl, options.report.with_suffix(""))
        files = ["--from-files", str(saved), "-o", str(options.report)]
        written = call(installation, [*podium, "report", *job, *files], SHORT, quiet=True)
        print(call(installation, [*podium, "summary", *job], SHORT, quiet=True), end="")
    return written.strip()


def save(installation: Installation, kubectl: str, folder: Path) -> Path:
    """Save the search in this folder and return it.

    `podium dashboard FOLDER` shows it after the cluster is gone.
    """
    kinds = ["get", "hyperparamjobs,hyperparamtrials,gpunodes", "-n", JOB_NAMESPACE, "-o", "json"]
    folder.mkdir(exist_ok=True)
    (folder / "objects.json").write_text(call(installation, [kubectl, *kinds], SHORT, quiet=True))
    return folder


@contextmanager
def dashboard(installation: Installation) -> Iterator[None]:
    """Serve `podium dashboard` meanwhile: print its address, and open it where there is a screen.

    The search does not need it, so a page that cannot be served is left out.
    """
    command = [*module("podium_cli"), "dashboard", "-n", JOB_NAMESPACE]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=installation.environment
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], SHORT)
        line = process.stdout.readline().strip() if readable else f"no answer within {SHORT:g} s"
        address = line.removeprefix("Dashboard: ") if line.startswith("Dashboard: ") else ""
        if not address:
            print(f"the page of `podium dashboard` is left out: {line}", flush=True)
        elif os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            print(f"open in the browser until the search ends: {address}", flush=True)
            webbrowser.open(address)
        else:
            print(f"watch it in the browser until the search ends: {address}", flush=True)
        yield
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def healthy_gpus(installation: Installation, kubectl: str) -> int:
    """Return the number of healthy GPUs that agents have reported so far."""
    path = "jsonpath={.items[*].status.gpus[*].health}"
    try:
        return call(installation, [kubectl, "get", "gpunodes", "-o", path], SHORT, quiet=True).split().count("Healthy")
    except StepError:
        return 0


def diagnose(installation: Installation) -> None:
    """Print the state of the cluster, as far as it still answers."""
    kubectl = installation.tool("kubectl")
    queries = (
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
    if not installation.kubeconfig.exists():
        return
    for title, arguments in queries:
        try:
            output = call(installation, [kubectl, "--request-timeout=10s", *arguments], SHORT, quiet=True)
        except StepError as error:
            output = str(error)
        print(f"-- {title}", *output.splitlines()[-LAST_LINES:], sep="\n", file=sys.stderr)


def down(installation: Installation, steps: Steps, *, purge: bool) -> bool:
    """Remove the cluster and return whether that succeeded. A second Ctrl-C does not interrupt it.

    `purge` also removes its logs and the images in its nodes.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: print("\n== the cluster is being removed; please wait", flush=True))
    command = [*module("podium_devcluster"), "down", "--name", installation.name, *(["--purge"] if purge else [])]
    try:
        with steps.step("down"):
            # a session of its own: Ctrl-C on the terminal does not reach it
            subprocess.run(
                command, cwd=ROOT, env=installation.environment, timeout=DOWN, check=True, start_new_session=True
            )
    except (subprocess.SubprocessError, OSError) as error:
        cure = f"run `podium-devcluster down --name {installation.name}`"
        print(f"demo: {error}; {cure}. Logs: {installation.cluster / 'log'}", file=sys.stderr)
        return False
    return True


def print_cache(installation: Installation) -> None:
    """Print how large the cache is and how to remove it."""
    try:
        print(call(installation, [*module("podium_devcluster"), "cache"], SHORT, quiet=True), end="")
    except StepError as error:
        print(f"demo: the size of the cache {installation.cache} is unknown: {error}", file=sys.stderr)


def terminated(number: int, _: FrameType | None) -> None:
    """Handle SIGTERM: exit, so that the cluster is removed."""
    sys.exit(128 + number)


def parse() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="the digits search on a real two-node cluster on this machine")
    parser.add_argument("--name", default="demo", help="name of the cluster (default: demo)")
    parser.add_argument("--keep", action="store_true", help="keep the cluster running at the end")
    parser.add_argument("--report", type=Path, default=Path("podium-report.html"), help="file of the report")
    parser.add_argument(
        "--job", type=Path, default=ROOT / "examples/digits/job.yaml", help="file of another job named digits"
    )
    given = parser.parse_args()
    return Options(given.name, given.keep, given.report.absolute(), given.job.absolute())


def main() -> int:
    """Run the demo and return its exit status."""
    options = parse()
    cache = os.environ.get("PODIUM_CACHE") or str(Path.home() / ".cache" / "podium")
    installation = Installation(Path(cache).expanduser().absolute(), options.name)
    if os.geteuid() != 0:
        print("demo: the cluster needs root (namespaces, cgroups, mounts): run `sudo make demo`", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, terminated)
    steps = Steps(*(name for name in STEPS if name != "down" or not options.keep))
    started = time.monotonic()
    code, last = 0, ""
    try:
        last = run(options, installation, steps)
    except StepError as error:
        print(f"demo: {error}", file=sys.stderr)
        diagnose(installation)
        print(f"demo: the cluster's logs are in {installation.cluster / 'log'}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("\n== interrupted", flush=True)
        code = 130
    finally:
        # the nodes' copies of the images take gigabytes; the logs are needed after a failure only
        if not options.keep and not down(installation, steps, purge=bool(last) or code == 130):
            code = code or 1
    if options.keep:
        print(f"the cluster continues to run: export KUBECONFIG={installation.kubeconfig}")
        print(f"remove it with `podium-devcluster down --name {options.name}`")
    print(f"== {time.monotonic() - started:.0f} s in total")
    print_cache(installation)
    if last:
        print(last)
    return code


if __name__ == "__main__":
    sys.exit(main())
