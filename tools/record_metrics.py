"""Record the metrics of a real run, for tests/integration/test_dashboards.py.

python tools/record_metrics.py     (root; starts a dev cluster of its own and removes it; a few minutes)
    ... --cluster NAME             (records on a dev cluster that runs with Podium, and keeps it)

Two searches run on a two-node cluster: the digits example with less work, and one in a namespace whose quota refuses
its pods. Once trials have been suspended, the pod of a running trial is killed, so that work is lost. Meanwhile the
pages /metrics of all components are read every few seconds. The samples get the labels that the chart's ServiceMonitor
gives them, and are stored in the OpenMetrics format with their times, which promtool imports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import demo

from podium_core.schema.manifests import read_manifests

ROOT = demo.ROOT
OUT = ROOT / "tests" / "integration" / "data" / "metrics-of-a-run.txt.gz"
NAME = "metrics"
JOB = "recorded"
EPOCHS = 20
PERIOD = 5.0
AFTER_SECONDS = 30.0  # recorded after the end of the search
SEARCH_SECONDS = 900.0
SUSPENSIONS = 2
END_OF_PAGE = "# end of page"
# in the container: the component's own page, again and again
READ = """
import sys, time, urllib.request
while True:
    print(urllib.request.urlopen("http://127.0.0.1:%d/metrics", timeout=3).read().decode())
    print("%s", time.time(), flush=True)
    time.sleep(%g)
"""
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": "small"},
    "spec": {"hard": {"pods": "0"}},
}


Sample = tuple[str, float, float]  # series, time, value


@dataclass(frozen=True, slots=True)
class Target:
    """A container with metrics."""

    pod: str
    container: str
    port: int
    labels: tuple[tuple[str, str], ...]


class Recorder:
    """Reads the pages of all targets in threads, until `stop`."""

    def __init__(self, place: demo.Installation, targets: Iterable[Target]) -> None:
        self.samples: list[Sample] = []
        self._place = place
        self._stopped = False
        self._processes: dict[Target, subprocess.Popen[str]] = {}
        for target in targets:
            threading.Thread(target=self._read, args=(target,), daemon=True).start()

    def _start(self, target: Target) -> Iterable[str]:
        script = READ % (target.port, END_OF_PAGE, PERIOD)
        where = ["-n", demo.NAMESPACE, target.pod, "-c", target.container]
        command = [self._place.tool("kubectl"), "exec", *where, "--", "python3", "-u", "-c", script]
        environment = self._place.environment
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._processes[target] = process
        assert process.stdout is not None
        return process.stdout

    def _read(self, target: Target) -> None:
        while not self._stopped:  # a container that starts again ends its reader
            page: list[str] = []
            for line in self._start(target):
                if line.startswith(END_OF_PAGE):
                    at = float(line.removeprefix(END_OF_PAGE))
                    self.samples += samples("".join(page), dict(target.labels), at)
                    page = []
                else:
                    page.append(line)
            time.sleep(1)

    def stop(self) -> None:
        """End all readers."""
        self._stopped = True
        for process in self._processes.values():
            process.terminate()
            process.wait(10)


def samples(page: str, target: dict[str, str], at: float) -> Iterator[Sample]:
    """Return a page's samples; a sample's own labels win, as with `honorLabels`."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue  # the client library writes these only for OpenMetrics' own counters
            labels = target | sample.labels
            text = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
            yield f"{sample.name}{{{text}}}", at, sample.value


def targets(place: demo.Installation) -> Iterator[Target]:
    """Return the containers of Podium with the labels that the ServiceMonitor's targets have."""
    found = call(place, "get", "pods", "-n", demo.NAMESPACE, "-o", "json")
    for pod in json.loads(found)["items"]:
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                if port["name"] == "metrics":
                    number = port["containerPort"]
                    service = f"podium-{pod['metadata']['labels']['app.kubernetes.io/component']}-metrics"
                    labels = {
                        "namespace": demo.NAMESPACE,
                        "pod": pod["metadata"]["name"],
                        "container": container["name"],
                        "endpoint": "metrics",
                        "service": service,
                        "job": service,
                        "instance": f"{pod['status']['podIP']}:{number}",
                        "node": pod["spec"]["nodeName"],
                    }
                    yield Target(pod["metadata"]["name"], container["name"], number, tuple(labels.items()))


def call(place: demo.Installation, *arguments: str) -> str:
    """Run kubectl and return its output."""
    return demo.call(place, [place.tool("kubectl"), *arguments], 60.0, quiet=True)


def apply(place: demo.Installation, manifest: Mapping[str, object]) -> None:
    """Create an object."""
    command = [place.tool("kubectl"), "apply", "-f", "-"]
    subprocess.run(command, input=json.dumps(manifest), text=True, check=True, timeout=60, env=place.environment)


def play(place: demo.Installation) -> None:
    """Run both searches, and lose work."""
    (search,) = read_manifests([ROOT / "examples" / "digits" / "job.yaml"])
    search["metadata"]["name"] = JOB
    search["spec"]["trials"] = {"max": 6, "parallel": 6, "maxSteps": EPOCHS}
    container = search["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "/app/train.py", "--work=40", f"--epochs={EPOCHS}", "$(podium.args)"]
    apply(place, search)
    apply(place, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "small"}})
    apply(place, QUOTA)
    search["metadata"] |= {"name": "refused", "namespace": "small"}
    apply(place, search)

    def trials() -> list[dict[str, Any]]:
        found = call(place, "get", "hyperparamtrials", "-l", f"podium.dev/job={JOB}", "-o", "json")
        return [trial.get("status", {}) for trial in json.loads(found)["items"]]

    def running_after_suspensions() -> list[str]:
        """Return the pods of running trials that have trained for a while, once trials were suspended."""
        found = trials()
        if sum(status.get("suspensions", {}).get("count", 0) for status in found) < SUSPENSIONS:
            return []
        return [one["pod"] for one in found if one.get("phase") == "Running" and one.get("lastStep", 0) > 3]

    def ended() -> bool:
        job = json.loads(call(place, "get", "hyperparamjob", JOB, "-o", "json"))
        return job.get("status", {}).get("phase") in ("Succeeded", "Failed")

    demo.wait_until(lambda: bool(running_after_suspensions()) or ended(), "suspensions", SEARCH_SECONDS)
    for pod in running_after_suspensions()[:1]:
        call(place, "delete", "pod", pod, "--grace-period=0", "--force")
    demo.wait_until(ended, "the search ends", SEARCH_SECONDS)


def main() -> int:
    """Start the cluster, record, and write the file."""
    parser = argparse.ArgumentParser(description="Record the metrics of a real run on a dev cluster (root).")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--cluster", default="", help="a dev cluster that runs with Podium; default: a new one")
    given = parser.parse_args()
    out: Path = given.out
    cache = os.environ.get("PODIUM_CACHE") or str(Path.home() / ".cache" / "podium")
    place = demo.Installation(Path(cache), given.cluster or NAME)
    try:
        if not given.cluster:
            demo.install(place)
        recorder = Recorder(place, targets(place))
        try:
            play(place)
            time.sleep(AFTER_SECONDS)
        finally:
            recorder.stop()
    finally:
        if not given.cluster:
            demo.down(place, demo.Steps("down"), purge=True)
    out.parent.mkdir(exist_ok=True)
    lines = (f"{series} {value} {at:.3f}\n" for series, at, value in sorted(recorder.samples))
    text = "".join(lines) + "# EOF\n"
    out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(recorder.samples)} samples, {out.stat().st_size >> 10} KiB: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
