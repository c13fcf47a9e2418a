"""Data of the benchmarks: what a clone has, and what a missing or malformed file says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from benchmarks.command_line import Parser
from benchmarks.inputs import CURVES, EXAMPLE, NODES, PHILLY, PODS, TASKSET, curve_files, load_curves, require
from benchmarks.openb.replay import read_trace, replay

from podium_core.placement.policies.registry import placement_policy


def test_a_clone_has_all_data() -> None:
    for path in (CURVES, *TASKSET, PODS, NODES, PHILLY, CURVES.parent / "README.md", CURVES.parent / "LICENSE"):
        assert require(path, "--x") == path


def test_the_recorded_tasks_are_read() -> None:
    traces = load_curves(curve_files([CURVES]))
    assert [sum(r.family == family for r in traces) for family in ("algoperf", "taskset")] == [6, 4]
    assert [r.task for r in load_curves(curve_files([Path(EXAMPLE)]))] == ["digits_example"]


def test_a_missing_file_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"nothing\.jsonl: no such file or folder; name another with --curves"):
        curve_files([tmp_path / "nothing.jsonl"])
    with pytest.raises(SystemExit, match=r"no file \*\.jsonl"):
        curve_files([tmp_path])
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(SystemExit, match=r"--curves: bad\.jsonl"):
        load_curves([tmp_path / "bad.jsonl"])
    with pytest.raises(
        SystemExit, match=r"pods\.csv: no such file or folder; name another with --pods \(make: PODS=\)"
    ):
        read_trace(tmp_path / "pods.csv", NODES)
    with pytest.raises(SystemExit, match=r": a folder; name a file with --nodes \(make: NODES=\)"):
        read_trace(PODS, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "x"], "argument --seeds: 'x'; give a whole number;"),
        (["--share", "x"], "argument --share: 'x'; give a number;"),
        (["--nonsense"], "unrecognized arguments: --nonsense;"),
    ],
)
def test_a_wrong_option_is_answered_by_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser("What the benchmark measures.")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--share", type=float)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(options)
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def table(path: Path, columns: str, *rows: str) -> Path:
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


NODE_COLUMNS = "sn,cpu_milli,memory_mib,gpu,model"
POD_COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


@pytest.mark.parametrize("policy", ["fragmentation", "fill", "binpack", "random", "load_balance"])
def test_pods_get_only_gpus_of_their_models(tmp_path: Path, policy: str) -> None:
    """Four GPUs of each model; six pods accept V100 only, so two of them cannot be placed."""
    nodes = table(
        tmp_path / "nodes.csv", NODE_COLUMNS, *(f"n{i},9000,9000,4,{m}" for i, m in enumerate(("T4", "V100M16")))
    )
    pods = table(
        tmp_path / "pods.csv",
        POD_COLUMNS,
        *(f"v{i},100,100,1,1000,V100M16|V100M32" for i in range(6)),
        *(f"a{i},100,100,1,1000," for i in range(2)),
    )
    trace = read_trace(pods, nodes)
    assert {need.products for need, _ in trace.pods} == {("V100M16", "V100M32"), ()}
    assert {node.gpus[0].product for node in trace.nodes} == {"T4", "V100M16"}
    for seed in range(3):
        allocated = replay(trace, placement_policy(policy), seed, 1.0).allocated[-1]
        assert allocated <= 100 * 6 / 8, "at most four of six pods with a model, and the two without"


def test_models_change_nothing_where_no_pod_names_one(tmp_path: Path) -> None:
    with NODES.open() as file:
        rows = [row for _, row in zip(range(60), csv.DictReader(file), strict=False)]
    with_model = table(tmp_path / "a.csv", NODE_COLUMNS, *(",".join(row.values()) for row in rows))
    without = table(tmp_path / "b.csv", NODE_COLUMNS[:-6], *(",".join(list(row.values())[:-1]) for row in rows))
    with PODS.open() as file:
        lines = file.read().splitlines()[:300]
    pods = table(tmp_path / "pods.csv", lines[0], *lines[1:])
    for policy in ("fragmentation", "auto"):
        first, second = (
            replay(read_trace(pods, nodes), placement_policy(policy), 0, 1.0) for nodes in (with_model, without)
        )
        assert first == second


def test_a_trace_in_another_format_is_refused(tmp_path: Path) -> None:
    nodes = table(tmp_path / "nodes.csv", "sn,gpu", "a,1")
    with pytest.raises(SystemExit, match=r"nodes\.csv: no column cpu_milli, memory_mib"):
        read_trace(PODS, nodes)
    pods = table(tmp_path / "pods.csv", POD_COLUMNS, "p,100,100,1,1000,T4")
    nodes = table(tmp_path / "nodes.csv", NODE_COLUMNS[:-6], "a,100,100,1")
    with pytest.raises(SystemExit, match="no column model"):
        read_trace(pods, nodes)
