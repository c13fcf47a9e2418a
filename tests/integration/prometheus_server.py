"""A real Prometheus on 127.0.0.1: its process, its queries, and the scrape configuration of the guide."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from extender_setup import free_port

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md"
READY_SECONDS = 300.0
END_SECONDS = 60.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # all traffic stays on this machine
Series = list[dict[str, Any]]


def guide_config() -> dict[str, Any]:
    """Return the Prometheus configuration that the guide shows."""
    text = GUIDE.read_text().partition("## With another Prometheus")[2]
    (block,) = re.findall(r"^```yaml\n(.*?)^```", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    config: dict[str, Any] = yaml.safe_load(block)
    return config


def call(tool: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; the caller checks the exit status."""
    return subprocess.run([str(tool), *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def environment() -> Mapping[str, str]:
    """Return the environment without proxies: all traffic stays on this machine."""
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}


def fires(series: Series, duration: str, step: float) -> bool:
    """Return whether an alert fires: its expression has held for `duration`, such as 10m, at every `step` seconds."""
    needed = 60.0 * float(duration.removesuffix("m"))
    for one in series:
        since = previous = -math.inf
        for moment, _ in one["values"]:
            since = since if moment - previous <= step else moment
            previous = moment
            if moment - since >= needed:
                return True
    return False


@dataclass(frozen=True, slots=True)
class Server:
    """A running Prometheus."""

    address: str

    def query(self, expression: str, start: float, end: float, step: float) -> Series:
        """Return the series of a query, evaluated every `step` seconds. Raises HTTPError for an invalid query."""
        return self._get("query_range", {"query": expression, "start": start, "end": end, "step": step})

    def query_at(self, expression: str, moment: float) -> Series:
        """Return the series of a query at one moment. Raises HTTPError for an invalid query."""
        return self._get("query", {"query": expression, "time": moment})

    def label_values(self, label: str, selector: str, start: float, end: float) -> list[str]:
        """Return the values that a label of these series has, as Grafana's `label_values` does."""
        fields = urllib.parse.urlencode({"match[]": selector, "start": start, "end": end})
        values: list[str] = self._read(f"label/{label}/values?{fields}")
        return values

    def _get(self, what: str, fields: Mapping[str, str | float]) -> Series:
        found: Series = self._read(f"{what}?{urllib.parse.urlencode(fields)}")["result"]
        return found

    def _read(self, path: str) -> Any:
        with DIRECT.open(f"{self.address}/api/v1/{path}", timeout=60) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]


@contextlib.contextmanager
def process(argv: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Prometheus until the block ends."""
    with log.open("w") as output:
        started = subprocess.Popen(argv, stdout=output, stderr=output, env=environment())
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def serve(server: Path, tool: Path, samples: str, folder: Path, lookback: str) -> Iterator[Server]:
    """Import samples in the OpenMetrics format and serve them until the block ends.

    A series has a value until `lookback` after its last sample.
    """
    file, data, config, log = (folder / name for name in ("samples.txt", "data", "prometheus.yaml", "prometheus.log"))
    file.write_text(samples)
    config.write_text("{}\n")
    done = call(tool, "tsdb", "create-blocks-from", "openmetrics", str(file), str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    port = free_port()
    argv = [
        *(str(server), f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"),
        *(f"--web.listen-address=127.0.0.1:{port}", f"--query.lookback-delta={lookback}"),
    ]
    address = f"http://127.0.0.1:{port}"
    with process(argv, log) as running:
        _wait_until_ready(f"{address}/-/ready", running, log)
        yield Server(address)


def _wait_until_ready(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        assert running.poll() is None, log.read_text()
        with contextlib.suppress(OSError), DIRECT.open(url, timeout=5):
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
