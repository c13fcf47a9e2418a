"""A real Prometheus on 127.0.0.1 that holds recorded samples, and promtool."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_SECONDS = 120.0
STEP = 10.0  # seconds between two evaluations of a query


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a Prometheus, and the time of the first and the last sample."""

    address: str
    first: float
    last: float

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of a query over the whole recording. Raises HTTPError for an invalid query."""
        fields = {"query": expression, "start": self.first, "end": self.last, "step": STEP}
        url = f"{self.address}/api/v1/query_range?{urllib.parse.urlencode(fields)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        series: list[dict[str, Any]] = body["data"]["result"]
        return series


def call(tool: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; the caller checks the exit status."""
    return subprocess.run([str(tool), *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@contextlib.contextmanager
def serve(server: Path, tool: Path, recording: Path, folder: Path) -> Iterator[Server]:
    """Import a recording (OpenMetrics with times, compressed) and serve it until the block ends."""
    text = gzip.decompress(recording.read_bytes()).decode()
    file, data, config = folder / "samples.txt", folder / "data", folder / "prometheus.yaml"
    file.write_text(text)
    config.write_text("{}\n")
    done = call(tool, "tsdb", "create-blocks-from", "openmetrics", str(file), str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "prometheus.log"
    with log.open("w") as output:
        process = subprocess.Popen([str(server), *options], stdout=output, stderr=output, env=_without_proxy())
    try:
        address = f"http://127.0.0.1:{port}"
        _await(f"{address}/-/ready", process, log)
        times = [float(line.rpartition(" ")[2]) for line in text.splitlines() if not line.startswith("#")]
        yield Server(address, min(times), max(times))
    finally:
        process.terminate()
        process.wait(60)


def _without_proxy() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
