"""Bodies that kube-scheduler really sent (recorded), and the extender's responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from podium_cluster.resources import GPUNODES, PODS, TRIALS

GOLDEN = Path(__file__).parents[2] / "golden" / "extender"
NODES = json.loads((GOLDEN / "gpunodes.json").read_text())
SITTING = json.loads((GOLDEN / "trials.json").read_text())
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_request(ask: Callable[..., httpx.Response], name: str) -> None:
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())
    objects = {GPUNODES: NODES[recorded["verb"]]}
    if recorded["verb"] == "preempt":
        objects |= {PODS: SITTING["pods"], TRIALS: SITTING["trials"]}
    answer = ask(objects, f"/{recorded['verb']}", recorded["request"], placement="load_balance")
    assert answer.status_code == 200
    got = answer.json()
    if isinstance(got, dict) and got.get("Nodes"):
        # whole nodes come back as they were sent; the expectation names them
        sent = {node["metadata"]["name"]: node for node in recorded["request"]["Nodes"]["items"]}
        assert all(node == sent[node["metadata"]["name"]] for node in got["Nodes"]["items"])
        got["Nodes"] = [node["metadata"]["name"] for node in got["Nodes"]["items"]]
    assert got == EXPECTED[name]


def test_every_recording_has_an_expectation() -> None:
    recordings = {path.stem for path in GOLDEN.glob("*-*.json")}
    assert recordings == set(EXPECTED)
