"""A recording of metrics: the samples that a real Prometheus collected in a run, and known facts of that run.

`tools/record_metrics.py` writes it, and tests/integration/test_dashboards.py gives it to another Prometheus. The
samples are stored in the OpenMetrics format with their times, because promtool imports that.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "metrics"
SAMPLES, FACTS = "samples.txt.xz", "run.json"
END = "# EOF\n"
APART = 9_000
# a line of `promtool tsdb dump`: labels, value, and time in milliseconds
DUMPED = re.compile(r'\{__name__="(?P<name>\w+)"(?:, )?(?P<labels>.*)\} (?P<value>\S+) (?P<time>\d+)')
LABEL = re.compile(r'\w+="(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Run:
    """What is known about the run without its metrics. Times are seconds of the epoch.

    - `began`: every component had been scraped twice
    - `disturbed`: the search had ended; from now on pods are refused and work is lost
    - `ended`: the last sample
    - `succeeded`, `suspensions`, `best_value`: from the status of the job, read from the API server
    - `losses`: how often trials lost work, from their statuses
    """

    began: float
    disturbed: float
    ended: float
    nodes: int
    succeeded: int
    suspensions: int
    best_value: float
    losses: int


def openmetrics(dump: Iterable[str]) -> Iterator[str]:
    """Yield the lines of an OpenMetrics file for the output of `promtool tsdb dump`. Raises ValueError.

    Markers of the end of a series, which Prometheus stores as NaN, are left out. So are samples of a series that are
    less than `APART` milliseconds after the one before: Prometheus scrapes more often, but the file must be small.
    """
    samples = []
    for line in dump:
        found = DUMPED.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"{line!r} is not from `promtool tsdb dump`; compare its output with {DUMPED.pattern}")
        if found["value"] != "NaN":
            labels = ",".join(LABEL.findall(found["labels"]))  # without spaces, which OpenMetrics does not allow
            samples.append((f"{found['name']}{{{labels}}}", int(found["time"]), found["value"]))
    before: tuple[str, int] | None = None
    for series, milliseconds, value in sorted(samples):
        if before is not None and before[0] == series and milliseconds - before[1] < APART:
            continue
        before = series, milliseconds
        yield f"{series} {value} {milliseconds / 1000:.3f}\n"
    yield END


def save(dump: Iterable[str], run: Run, folder: Path = FOLDER) -> None:
    """Write a recording."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(openmetrics(dump))
    (folder / SAMPLES).write_bytes(lzma.compress(text.encode(), preset=1))
    (folder / FACTS).write_text(json.dumps(asdict(run), indent=1) + "\n")


def samples(folder: Path = FOLDER) -> str:
    """Return the text of the recording's OpenMetrics file."""
    return lzma.decompress((folder / SAMPLES).read_bytes()).decode()


def facts(folder: Path = FOLDER) -> Run:
    """Return what is known about the recorded run."""
    return Run(**json.loads((folder / FACTS).read_text()))
