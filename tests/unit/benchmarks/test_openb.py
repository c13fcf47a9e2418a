"""The RESULT line of bench_openb, on a trace of two nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.openb import bench_openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,64000,262144,2,P100\nnode-b,64000,262144,2,P100\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\npod-a,4000,1024,1,1000,\npod-b,4000,1024,1,500,\n"


def test_the_result_names_the_levels_of_arrivals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    options = ["--pods", str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv"), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["bench_openb", *options, "--policies", "fragmentation", "--seeds", "1"])
    bench_openb.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("RESULT ")
    figures = json.loads(last.removeprefix("RESULT "))["policies"]["fragmentation"]
    assert figures["seeds"] == 1
    assert 75 <= figures["allocated_100"] <= figures["allocated_130"] <= 100
