"""Record the metrics of a real run, for tests/integration/test_dashboards.py.

python tools/record_metrics.py     (root; starts a dev cluster of its own and removes it; about ten minutes)

Two searches run on a two-node cluster: the digits example, and one in a namespace whose quota refuses its pods. Once
trials have been suspended, the pod of a trial that runs is killed, so that work is lost. Meanwhile the pages /metrics
of all components are read every few seconds. The samples get the labels that the chart's ServiceMonitor gives them,
and are stored in the OpenMetrics format with their times, which promtool imports.
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

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import demo

from podium_core.schema.manifests import read_manifests

ROOT = demo.ROOT
OUT = ROOT / "tests" / "integration" / "data" / "metrics-of-a-run.txt.gz"
NAME = "metrics"
PERIOD = 5.0
AFTER_SECONDS = 40.0  # recorded after the end of the search
SEARCH_SECONDS = 900.0
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
    labels: Mapping[str, str]


class Recorder:
    """Reads the pages of all targets in threads, until `stop`."""

    def __init__(self, place: demo.Installation, targets: Iterable[Target]) -> None:
        self.samples: list[Sample] = []
        self._processes = [self._start(place, target) for target in targets]

    def _start(self, place: demo.Installation, target: Target) -> subprocess.Popen[str]:
        script = READ % (target.port, END_OF_PAGE, PERIOD)
        inside = ["python3", "-u", "-c", script]
        command = [
            place.tool("kubectl"),
            "exec",
            "-n",
            demo.NAMESPACE,
            target.pod,
            "-c",
            target.container,
            "--",
            *inside,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=place.environment)
        assert process.stdout is not None
        threading.Thread(target=self._read, args=(process.stdout, target.labels), daemon=True).start()
        return process

    def _read(self, pages: Iterable[str], labels: Mapping[str, str]) -> None:
        page: list[str] = []
        for line in pages:
            if line.startswith(END_OF_PAGE):
                self.samples += samples("".join(page), labels, float(line.removeprefix(END_OF_PAGE)))
                page = []
            else:
                page.append(line)

    def stop(self) -> None:
        """End all readers."""
        for process in self._processes:
            process.terminate()
            process.wait(10)


def samples(page: str, target: Mapping[str, str], at: float) -> Iterator[Sample]:
    """Return a page's samples; a sample's own labels win, as with `honorLabels`."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue  # the client library writes these only for OpenMetrics' own counters
            labels = {**target, **sample.labels}
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
                    yield Target(pod["metadata"]["name"], container["name"], number, labels)


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
    search["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, "--work=60")
    apply(place, search)
    call(place, "create", "namespace", "small")
    apply(place, QUOTA)
    search["metadata"] |= {"name": "refused", "namespace": "small"}
    apply(place, search)

    def job() -> Mapping[str, object]:
        status: Mapping[str, object] = json.loads(call(place, "get", "hyperparamjob", "digits", "-o", "json"))["status"]
        return status

    def suspended() -> bool:
        count = job().get("suspensions", 0)
        return isinstance(count, int) and count >= 6

    demo.wait_until(suspended, "six suspensions", SEARCH_SECONDS)
    trials = json.loads(call(place, "get", "hyperparamtrials", "-o", "json"))["items"]
    running = [t["status"] for t in trials if t["status"]["phase"] == "Running" and t["status"].get("lastStep", 0) > 3]
    for status in running[:1]:
        call(place, "delete", "pod", status["pod"], "--grace-period=0", "--force")
    demo.wait_until(lambda: job()["phase"] == "Succeeded", "the search succeeds", SEARCH_SECONDS)


def main() -> int:
    """Start the cluster, record, and write the file."""
    parser = argparse.ArgumentParser(description="Record the metrics of a real run on a dev cluster (root).")
    parser.add_argument("--out", type=Path, default=OUT)
    out: Path = parser.parse_args().out
    cache = os.environ.get("PODIUM_CACHE") or str(Path.home() / ".cache" / "podium")
    place = demo.Installation(Path(cache), NAME)
    try:
        demo.install(place)
        recorder = Recorder(place, targets(place))
        try:
            play(place)
            time.sleep(AFTER_SECONDS)
        finally:
            recorder.stop()
    finally:
        demo.down(place, demo.Steps("down"), purge=True)
    out.parent.mkdir(exist_ok=True)
    lines = (f"{series} {value} {at:.3f}\n" for series, at, value in sorted(recorder.samples))
    text = "".join(lines) + "# EOF\n"
    out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(recorder.samples)} samples, {out.stat().st_size >> 10} KiB: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
