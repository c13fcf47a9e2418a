"""What local mode costs: `podium run` against plain subprocesses, and the time from `pip install` to ranked trials.

    make bench-local [OUT=FOLDER]
    python -m benchmarks.hpo.bench_local [--trials 6] [--epochs 40] [--rounds 3] [--no-install]

Overhead: the trials of `examples/digits` run on the same cores, first as plain subprocesses from a queue, then under
`podium run` with policy fifo, alternately. The time is from the start of the first trial to the end of the last one;
each figure is the median over the rounds. Both sides write checkpoints and logs. The start of `podium` itself and its
report are named apart, and so is the search under the default policy, with suspensions.

Cold start: the wheel is built, then timed are a fresh virtual environment, `pip install` of the wheel with the extra
`local` and of scikit-learn, and `podium run` until the first trials are ranked by a value. It needs a package index.

Writes bench-local.md into `--out`; the last line is RESULT {json}. The status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, machine, result_line, write_page
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import parse_manifests
from podium_core.schema.validation import parse_job
from podium_local.devices import usable_cpus
from podium_searchers.search import propose

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
MAX_OVERHEAD = 0.02
MAX_COLD_SECONDS = 60.0
RANKED = "new best"  # the line of `podium run` once a trial has a value, and so a rank by it


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one run: of all its trials together, and of the whole command."""

    trials: float
    command: float


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--trials", type=positive, default=6)
    parser.add_argument("--epochs", type=positive, default=40)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--no-install", action="store_true", help="leave out the cold start")
    add_out(parser)
    options = parser.parse_args()
    manifest = _manifest(options.trials, options.epochs)
    plain, fifo, shared = [], [], []
    with tempfile.TemporaryDirectory() as name:
        for number in range(options.rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            plain.append(_plain(manifest, folder / "plain"))
            fifo.append(_podium(manifest, folder / "fifo", "fifo"))
            shared.append(_podium(manifest, folder / "envelope", "envelope"))
            print(f"round {number}: plain {plain[-1]}, fifo {fifo[-1]}, envelope {shared[-1]}", flush=True)
        cold = None if options.no_install else _cold_start(Path(name) / "cold")
    result = _result(plain, fifo, shared, cold)
    text = _page(options, result)
    print(text)
    write_page(options.out / "bench-local.md", text)
    print(result_line(result))
    missed = result["overhead"] > MAX_OVERHEAD or (cold is not None and cold["total"] > MAX_COLD_SECONDS)
    sys.exit(1 if missed else 0)


def _manifest(trials: int, epochs: int) -> dict[str, Any]:
    """Return the job of the example with this number of trials and epochs."""
    (manifest,) = parse_manifests((DIGITS / "job.yaml").read_text(), "job.yaml")
    changed: dict[str, Any] = json.loads(json.dumps(dict(manifest), default=str))
    spec = changed["spec"]
    spec["trials"] |= {"max": trials, "parallel": trials, "maxSteps": epochs}
    spec["template"]["spec"]["containers"][0]["command"] = [
        *(sys.executable, str(DIGITS / "train.py"), f"--epochs={epochs}", "$(podium.args)")
    ]
    return changed


def _plain(manifest: Mapping[str, Any], folder: Path) -> Times:
    """Run the trials as plain subprocesses, as many at a time as there are cores."""
    job = parse_job(manifest)
    assert isinstance(job, HyperParamJob)
    waiting = []
    for number in range(job.spec.trials.max):
        parameters = propose(job.spec, number) or {}
        words = job.spec.template["spec"]["containers"][0]["command"][:-1]
        waiting.append([*words, *(f"--{name}={value}" for name, value in parameters.items())])
    begin = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    for number, words in enumerate(waiting):
        while len(running) >= usable_cpus():
            _wait_for_one(running)
        place = folder / str(number)
        place.mkdir(parents=True)
        environment = {**os.environ, "PODIUM_CHECKPOINT": str(place), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with (place / "log").open("wb") as log:
            running.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))
    while running:
        _wait_for_one(running)
    seconds = time.monotonic() - begin
    return Times(seconds, seconds)


def _wait_for_one(running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until a process has ended, and remove it."""
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    for process in [one for one in running if one.poll() is not None]:
        if process.returncode:
            raise SystemExit(f"a trial ended with exit code {process.returncode}")
        running.remove(process)


def _podium(manifest: Mapping[str, Any], folder: Path, policy: str) -> Times:
    """Run the trials under `podium run`."""
    folder.mkdir(parents=True)
    changed = json.loads(json.dumps(dict(manifest)))
    changed["spec"]["policy"] = {"name": policy}
    (folder / "job.yaml").write_text(json.dumps(changed))
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "podium_cli.main", "run", "job.yaml", "--lines", "--gpus", "none", "--folder", "run"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(f"podium run ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    stored = [json.loads(path.read_text())["status"] for path in (folder / "run" / "objects").glob("trial-*.json")]
    bounds = [(one["start"], one["end"]) for status in stored for one in status["allocations"]]
    first, last = min(start for start, _ in bounds), max(end for _, end in bounds)
    return Times(_seconds(last) - _seconds(first), seconds)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _cold_start(folder: Path) -> dict[str, float]:
    """Return the seconds of each step from an empty folder to the first ranked trials."""
    folder.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    shutil.copytree(DIGITS, folder / "digits")
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    made = time.monotonic()
    binaries = folder / "venv" / "bin"
    install = [str(binaries / "pip"), "install", "--quiet", f"{wheel}[local]", "scikit-learn"]
    subprocess.run(install, check=True, env=_clean())
    installed = time.monotonic()
    environment = {**_clean(), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    run = [str(binaries / "podium"), "run", str(folder / "digits" / "job.yaml"), "--lines"]
    with subprocess.Popen(run, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if not any(RANKED in line for line in process.stdout):
            raise SystemExit("podium run ended before a trial had a value")
        ranked = time.monotonic()
        process.kill()
    return {
        "venv": round(made - begin, 1),
        "install": round(installed - made, 1),
        "first_ranked": round(ranked - installed, 1),
        "total": round(ranked - begin, 1),
    }


def _clean() -> dict[str, str]:
    """Return the environment without the packages of this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _result(
    plain: Sequence[Times], fifo: Sequence[Times], shared: Sequence[Times], cold: Mapping[str, float] | None
) -> dict[str, Any]:
    base, under = statistics.median(t.trials for t in plain), statistics.median(t.trials for t in fifo)
    ratios = [ours.trials / theirs.trials - 1.0 for ours, theirs in zip(fifo, plain, strict=True)]
    return {
        "bench": "local",
        "plain_seconds": round(base, 2),
        "fifo_seconds": round(under, 2),
        "envelope_seconds": round(statistics.median(t.trials for t in shared), 2),
        "overhead": round(statistics.median(ratios), 4),
        "overhead_worst": round(max(ratios), 4),
        "start_and_report_seconds": round(statistics.median(t.command - t.trials for t in fifo), 2),
        "cold_start": cold,
    }


def _page(options: argparse.Namespace, result: Mapping[str, Any]) -> str:
    """Return the result page."""
    lines = [
        "# Local mode",
        "",
        f"`{command()}` on {machine()}. {options.trials} trials of `examples/digits`, {options.epochs} epochs each,",
        f"{usable_cpus()} at a time; median of {options.rounds} rounds.",
        "",
        "| run | seconds from the first trial's start to the last one's end |",
        "| --- | --- |",
        f"| plain subprocesses | {result['plain_seconds']} |",
        f"| `podium run`, fifo | {result['fifo_seconds']} |",
        f"| `podium run`, envelope, with suspensions | {result['envelope_seconds']} |",
        "",
        f"Overhead of `podium run` under fifo: {100 * result['overhead']:.1f} % (bar: {100 * MAX_OVERHEAD:g} %),",
        f"in the worst round {100 * result['overhead_worst']:.1f} %. Its start and its report take",
        f"{result['start_and_report_seconds']} s more.",
        "",
    ]
    if result["cold_start"] is not None:
        cold = result["cold_start"]
        lines += [
            "| cold start | seconds |",
            "| --- | --- |",
            f"| virtual environment | {cold['venv']} |",
            f"| `pip install` of the wheel with `[local]`, and scikit-learn | {cold['install']} |",
            f"| `podium run examples/digits/job.yaml` until the first ranked trials | {cold['first_ranked']} |",
            f"| **all** (bar: {MAX_COLD_SECONDS:g} s) | **{cold['total']}** |",
            "",
        ]
    return "\n".join([*lines, result_line(result), ""])


if __name__ == "__main__":
    main()
