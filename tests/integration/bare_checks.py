"""Checks of a search on a bare node from outside: its values, its GPU time, which trials ran when, and what is left."""

from __future__ import annotations

import itertools
import time
from datetime import datetime
from typing import Any

from bare_node import TOGETHER, BareNode, chain

CLOCK_TOLERANCE = 2.0  # seconds: the Date header has no fractions


def stretches(node: BareNode) -> dict[str, list[tuple[float, float]]]:
    """Return when each pod's process ran, by the monotonic clock."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path in sorted(node.beats.iterdir()):
        times = [float(line) for line in path.read_text().splitlines()]
        runs: list[tuple[float, float]] = []
        for at in times:
            if runs and at - runs[-1][1] <= TOGETHER:
                runs[-1] = (runs[-1][0], at)
            else:
                runs.append((at, at))
        found[path.name] = runs
    return found


def overlaps(node: BareNode) -> list[tuple[str, str, float]]:
    """Return pairs of pods that ran at the same time on the GPU, and for how many seconds."""
    runs = [(start, end, pod) for pod, all_runs in stretches(node).items() for start, end in all_runs]
    found = []
    for (start, end, pod), (other_start, other_end, other) in itertools.combinations(sorted(runs), 2):
        together = min(end, other_end) - max(start, other_start)
        if pod != other and together > 0:
            found.append((pod, other, together))
    return found


def check_results(node: BareNode, job: str, steps: int) -> None:
    """Check that every trial succeeded in its first pod, with each step reported once, and that no two ran at once."""
    node.until(lambda: all(_last(one) == steps for one in node.trials(job)), f"{job}: the final reports", 90)
    status = node.job(job)["status"]
    assert status["phase"] == "Succeeded", status
    for trial in node.trials(job):
        name, report = trial["metadata"]["name"], trial["status"]
        assert report["phase"] == "Succeeded", f"{name}: {report}"
        assert (report["failures"], report["attempt"]) == (0, 0), f"{name}: {report}"
        assert report["logCursor"]["lines"] == steps, f"{name}: {report['logCursor']}"
        values = chain(steps)
        points = report["curve"]["points"]
        assert [point["step"] for point in points] == sorted({point["step"] for point in points}), name
        assert all(values[int(point["step"]) - 1] == point["value"] for point in points), name
        assert report.get("lostWork", {}).get("steps", 0) == 0
    assert overlaps(node) == []


def check_ledger(node: BareNode, job: str) -> None:
    """Check the usage ledgers: allocations do not overlap, sum up to the GPU-seconds, and cover when trials ran."""
    node.until(lambda: all("end" in one for one in _allocations(node, job)), f"{job}: all allocations ended", 60)
    times = sorted((_time(one["start"]), _time(one["end"])) for one in _allocations(node, job))
    for (_, end), (start, _) in itertools.pairwise(times):
        assert start >= end - 0.001, f"two trials had the GPU at once: {times}"
    ahead = time.time() - time.monotonic()
    for trial in node.trials(job):
        name, status = trial["metadata"]["name"], trial["status"]
        held = [(_time(one["start"]), _time(one["end"])) for one in status["allocations"]]
        assert abs(sum(end - start for start, end in held) - status["gpuSeconds"]) < 0.1, f"{name}: {status}"
        for first, last in stretches(node)[f"{name}-0"]:
            covered = any(
                start - CLOCK_TOLERANCE <= first + ahead and last + ahead <= end + CLOCK_TOLERANCE
                for start, end in held
            )
            assert covered, f"{name} ran from {first + ahead} to {last + ahead}, and had the GPU at {held}"


def check_no_leaks(node: BareNode) -> None:
    """Check that nothing is frozen and no trial has a slot or a process."""
    node.until(lambda: not node.kubelet.frozen(), "nothing is frozen")
    node.until(lambda: not node.kubelet.alive(), "no process is left")
    gpus = lambda: node.gpunode()["status"]["gpus"]  # noqa: E731
    node.until(lambda: not any(gpu.get("trials") for gpu in gpus()), "all slots are free")


def runs_now(node: BareNode, seconds: float = 1.0) -> set[str]:
    """Return the pods that ran within the last `seconds`."""
    end = time.monotonic()
    return {pod for pod, runs in stretches(node).items() if runs and runs[-1][1] > end - seconds}


def _last(trial: dict[str, Any]) -> float:
    return float(trial.get("status", {}).get("lastStep", 0))


def _allocations(node: BareNode, job: str) -> list[dict[str, Any]]:
    return [one for trial in node.trials(job) for one in trial["status"].get("allocations", [])]


def _time(text: Any) -> float:
    return float(text) if isinstance(text, int | float) else datetime.fromisoformat(text).timestamp()
