"""Record the metrics of a real run, for tests/integration/test_dashboards.py.

python tools/record_metrics.py     (root; starts a dev cluster of its own and removes it; ten minutes)
    ... --cluster NAME             (records on a dev cluster that runs with Podium, and keeps it)

Debian's Prometheus runs in the network of a node, with the scrape configuration of docs/how-to/monitor.md. It collects
the pages /metrics of all components, first while the digits search runs, and then while a quota refuses pods and a
killed pod loses work. Debian's Prometheus cannot discover pods, so this script writes a file with the same labels.

A busy machine makes the run longer, not wrong: every wait is for a condition, and a search during which an alert
would have fired is repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration"))
import demo
import metrics_recording
import prometheus_server
from kube_reads import ApiReader
from monitoring import alerts
from prometheus_server import fires

from podium_core.schema.manifests import read_manifests
from podium_devcluster.artifacts import debian
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime.network import netns_path
from podium_devcluster.shell import CommandError, run

ROOT = demo.ROOT
NAME = "metrics"
NODE = "node-1"  # Prometheus runs in its network
ADDRESS = "127.0.0.1:9090"
INTERVAL = "5s"
STEP = 5.0  # seconds between two evaluations of an alert
KEPT = '{__name__=~"podium_.*|up", __name__!~".*_created"}'
COMPONENTS = 4  # operator, extender, and an agent on each node
GUARD_SECONDS = 3600.0  # for each condition, and for repetitions on a busy machine
PAUSE = 2.0
EPOCHS = 100_000  # of the search whose pods are killed: it must not end before
JOB, OTHER, REFUSED = "digits", "interrupted", "refused"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "small"},
    "spec": {"hard": {"pods": "0"}},
}
Json = dict[str, Any]


class UnsuitableRunError(RuntimeError):
    """The run was disturbed from outside, so it does not show a healthy search."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """A cluster with Podium, and a Prometheus in the network of one of its nodes."""

    cluster: Cluster
    tool: Path
    targets: Path

    def ask(self, expression: str, *span: str) -> list[Json]:
        """Return the series of a query now, or over `span`, which are options of `promtool query range`."""
        kind = "range" if span else "instant"
        argv = [str(self.tool), "query", kind, "--format=json", *span, f"http://{ADDRESS}", expression]
        series: list[Json] = json.loads(
            run(entering(self.cluster, argv), timeout=60, env=prometheus_server.environment())
        )
        return series

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for a condition. Meanwhile the targets follow the pods; a failed request is repeated."""
        print(f"waiting: {what}", flush=True)
        deadline = time.monotonic() + GUARD_SECONDS
        while time.monotonic() < deadline:
            try:
                self.find_targets()
                if condition():
                    return
            except (CommandError, RuntimeError) as error:
                print(f"repeating: {error}", flush=True)
            time.sleep(PAUSE)
        raise SystemExit(f"{what}: not reached within {GUARD_SECONDS:g} s")

    def wait_for(self, expression: str) -> None:
        """Wait until the query has a series."""
        self.wait(expression, lambda: self.ask(expression))

    def find_targets(self) -> None:
        """Write the ports of the containers with the labels that Prometheus' discovery gives them."""
        groups = []
        for pod in self.get("pods", "-n", demo.NAMESPACE)["items"]:
            for container in pod["spec"]["containers"]:
                for port in container.get("ports", []):
                    labels = {
                        "namespace": demo.NAMESPACE,
                        "pod_name": pod["metadata"]["name"],
                        "pod_node_name": pod["spec"].get("nodeName", ""),
                        "pod_container_port_name": port["name"],
                    }
                    address = f"{pod['status'].get('podIP')}:{port['containerPort']}"
                    named = {f"__meta_kubernetes_{name}": value for name, value in labels.items()}
                    groups.append({"targets": [address], "labels": named})
        text = json.dumps(groups)
        if not self.targets.exists() or self.targets.read_text() != text:
            temporary = self.targets.with_suffix(".tmp")
            temporary.write_text(text)
            temporary.replace(self.targets)

    def get(self, *words: str) -> Json:
        """Return the result of `kubectl get WORDS -o json`."""
        return ApiReader(self.cluster).get(*words)

    def apply(self, manifest: Json) -> None:
        """Create an object."""
        text = json.dumps(manifest)
        self.wait(f"apply {manifest['metadata']['name']}", lambda: self.kubectl("apply", "-f", "-", stdin=text))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> bool:
        """Run kubectl. Raises CommandError."""
        self.cluster.kubectl(*arguments, stdin=stdin, timeout=120)
        return True


def entering(cluster: Cluster, argv: list[str]) -> list[str]:
    """Return a command line that runs a program in the network of the node."""
    return ["nsenter", f"--net={netns_path(cluster.name, NODE)}", "--", *argv]


def configuration(targets: Path) -> Json:
    """Return the guide's configuration, with a file in place of the discovery of pods."""
    config = prometheus_server.guide_config()
    (job,) = config["scrape_configs"]
    del job["kubernetes_sd_configs"]
    job |= {"file_sd_configs": [{"files": [str(targets)], "refresh_interval": INTERVAL}]}
    return {"global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL}, **config}


def search(name: str, **spec: Any) -> Json:
    """Return the digits search with a tenth of the example's work, as the e2e tests run it."""
    (manifest,) = read_manifests([ROOT / "examples" / "digits" / "job.yaml"])
    changed: Json = manifest
    changed["metadata"]["name"] = name
    changed["spec"] |= spec
    changed["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, "--work=20")
    return changed


def healthy_search(recorder: Recorder) -> tuple[float, float, Json]:
    """Run the search; return its time span in the recording and its status. Raises UnsuitableRunError."""
    recorder.wait_for(f"count(count_over_time(up[1m]) >= 2 and up == 1) == {COMPONENTS}")
    recorder.wait_for("sum(podium_operator_leader) == 1")
    began = time.time()
    recorder.apply(search(JOB))

    def ended() -> bool:
        return recorder.get("hyperparamjob", JOB).get("status", {}).get("phase") in ("Succeeded", "Failed")

    recorder.wait("the search ends", ended)
    recorder.wait_for('podium_jobs{phase="Succeeded"} == 1')
    span = began, time.time()
    status: Json = recorder.get("hyperparamjob", JOB)["status"]
    times = [f"--start={span[0]:.0f}", f"--end={span[1]:.0f}", f"--step={STEP:g}s"]
    fired = [a.name for a in alerts.ALERTS if fires(recorder.ask(a.expression, *times), a.duration, STEP)]
    if fired or status["phase"] != "Succeeded" or not status["suspensions"]:
        raise UnsuitableRunError(f"alerts {fired}, phase {status['phase']}, {status['suspensions']} suspensions")
    return *span, status


def undisturbed(recorder: Recorder) -> tuple[float, float, Json]:
    """Run the search until nothing disturbed it."""
    deadline = time.monotonic() + GUARD_SECONDS
    while True:
        try:
            return healthy_search(recorder)
        except UnsuitableRunError as error:
            if time.monotonic() > deadline:
                raise
            print(f"the search is repeated: {error}", flush=True)
            recorder.wait("delete", lambda: recorder.kubectl("delete", "hyperparamjob", JOB, "--ignore-not-found"))


def disturb(recorder: Recorder) -> None:
    """Let a quota refuse pods, and kill the pod of a trial that has saved no checkpoint."""
    recorder.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "small"}})
    recorder.apply(QUOTA)
    refused = search(REFUSED)
    refused["metadata"]["namespace"] = "small"
    recorder.apply(refused)
    other = search(OTHER, trials={"max": 2, "parallel": 2, "maxSteps": EPOCHS})
    command = other["spec"]["template"]["spec"]["containers"][0]["command"]
    command[:] = [word if not word.startswith("--epochs=") else f"--epochs={EPOCHS}" for word in command]
    del other["spec"]["checkpoint"]
    recorder.apply(other)
    recorder.wait_for('sum(podium_refused_pods{cause="quota"}) > 0')
    killed: set[str] = set()

    def lost() -> bool:
        """Kill each pod that trains, until a loss is counted: an operator that restarts does not count earlier ones."""
        for trial in recorder.get("hyperparamtrials", "-l", f"podium.dev/job={OTHER}")["items"]:
            status = trial.get("status", {})
            if status.get("phase") == "Running" and status.get("lastStep", 0) > 1 and status["pod"] not in killed:
                recorder.kubectl("delete", "pod", status["pod"], "--grace-period=0", "--force")
                killed.add(status["pod"])
        return bool(recorder.ask("sum(increase(podium_lost_work_gpu_seconds_total[1m])) > 0"))

    recorder.wait("work is lost", lost)


def record(cluster: Cluster, folder: Path, out: Path) -> None:
    """Record a run on a cluster with Podium."""
    server, tool = debian.prometheus(cluster.cache)
    config, targets, data = folder / "prometheus.yaml", folder / "targets.json", folder / "data"
    config.write_text(yaml.safe_dump(configuration(targets)))
    options = [f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={ADDRESS}"]
    recorder = Recorder(cluster, tool, targets)
    with prometheus_server.process(entering(cluster, [str(server), *options]), folder / "prometheus.log"):
        began, disturbed, status = undisturbed(recorder)
        disturb(recorder)
        ended = time.time()
    nodes = len(recorder.get("nodes")["items"])
    succeeded, suspensions, best = status["trials"]["succeeded"], status["suspensions"], status["best"]["value"]
    trials = recorder.get("hyperparamtrials")["items"]
    losses = sum(trial.get("status", {}).get("lostWork", {}).get("count", 0) for trial in trials)
    facts = metrics_recording.Run(began, disturbed, ended, nodes, succeeded, suspensions, best, losses)
    dump = [str(tool), "tsdb", "dump", f"--match={KEPT}", f"--min-time={began * 1000 - 15_000:.0f}", str(data)]
    metrics_recording.save(run(dump, timeout=600).splitlines(), facts, out)
    print(f"{(out / metrics_recording.SAMPLES).stat().st_size >> 10} KiB: {out}")


def install(place: demo.Installation) -> None:
    """Start the cluster with Podium. On a busy machine a step may exceed its time limit; it is repeated."""
    deadline = time.monotonic() + GUARD_SECONDS
    while True:
        try:
            demo.install(place)
            return
        except demo.StepError as error:
            if time.monotonic() > deadline:
                raise
            print(f"the installation is repeated: {error}", flush=True)


def main() -> int:
    """Start the cluster, record, and write the files."""
    parser = argparse.ArgumentParser(description="Record the metrics of a real run on a dev cluster (root).")
    parser.add_argument("--out", type=Path, default=metrics_recording.FOLDER)
    parser.add_argument("--cluster", default="", help="a dev cluster that runs with Podium; default: a new one")
    given = parser.parse_args()
    cluster = Cluster(given.cluster or NAME)
    place = demo.Installation(cluster.cache.root, cluster.name)
    try:
        if not given.cluster:
            install(place)
        with TemporaryDirectory(prefix="podium-metrics-") as folder:
            record(cluster, Path(folder), given.out)
    finally:
        if not given.cluster:
            demo.down(place, demo.Steps("down"), purge=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
