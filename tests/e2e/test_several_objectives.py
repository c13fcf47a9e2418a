"""Two objectives on real nodes: accuracy, which the script prints, and GPU-seconds, which the agents measure."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, TRIALS = "accuracy-and-cost", 6
OBJECTIVES = [
    {"metric": "val_acc", "direction": "maximize"},
    {"metric": "podium.dev/gpu-seconds", "direction": "minimize"},
]


def test_the_status_ends_with_the_pareto_front(site: Any) -> None:
    manifest = site.example(JOB)
    del manifest["spec"]["objective"]
    manifest["spec"] |= {"objectives": OBJECTIVES, "policy": {"name": "pareto"}}
    manifest["spec"]["trials"] |= {"max": TRIALS, "parallel": TRIALS}
    manifest["spec"]["template"]["spec"]["containers"][0]["command"].insert(2, "--work=20")
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        site.until(
            "the search ends", lambda: site.job(JOB).get("status", {}).get("phase") in ("Succeeded", "Failed"), 300
        )
        status = site.job(JOB)["status"]
        assert status["phase"] == "Succeeded", status
        assert "best" not in status
        trials = site.objects("hyperparamtrials", "-l", f"podium.dev/job={JOB}")
        values = {one["metadata"]["name"]: [one["status"]["lastValue"], one["status"]["gpuSeconds"]] for one in trials}
        assert len(values) == TRIALS
        assert min(seconds for _, seconds in values.values()) > 0.0
        front = {name: both for name, both in values.items() if not any(beats(one, both) for one in values.values())}
        assert {one["trial"]: one["values"] for one in status["paretoFront"]} == front
        accuracies = [one["values"][0] for one in status["paretoFront"]]
        assert accuracies == sorted(accuracies, reverse=True), "the best in the first objective comes first"
        rows = json.loads(site.podium("get", "trials", JOB, "-o", "json"))["items"]
        assert {row["name"]: row["front"] for row in rows if row["front"] is not None} == front
    finally:
        site.kubectl("delete", "hyperparamjob", JOB, "--wait=true", timeout=120.0)


def beats(one: list[float], other: list[float]) -> bool:
    """Return whether a trial is nowhere worse than another one and somewhere better."""
    return one[0] >= other[0] and one[1] <= other[1] and one != other
