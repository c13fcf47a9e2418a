"""`podium simulate --system`: table, JSON and HTML report of the simulated system, and every refusal."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit
from podium_cli.report.simulation import quality_levels
from podium_simulator.replay.samples import draw_sample
from podium_simulator.traces.trace import bundled_trace

SHORT = ["--trials", "6", "--seeds", "2", "--gpus", "2", "--nodes", "2", "--suspend", "1", "--resume", "1"]


def test_a_table_with_the_columns_of_the_system(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "--system", *SHORT, "--policy", "envelope", "--policy", "asha"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("digits_example (val_acc, larger is better): 6 trials on 2 GPUs on 2 nodes, 4 slots")
    assert {line.split()[0] for line in lines[2:]} == {"fifo", "envelope", "asha"}
    fifo = next(line for line in lines if line.startswith("fifo")).split()
    assert fifo[-1] == "0", "fifo suspends no trial"


def test_json_is_the_same_twice_and_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--system", *SHORT, "--policy", "hermes", "-o", "json", "--node-fails", "2"]
    assert main.run(command) is Exit.OK
    first = capsys.readouterr().out
    assert main.run(command) is Exit.OK
    assert capsys.readouterr().out == first
    (found,) = json.loads(first)
    assert (found["gpus"], found["nodes"], found["searches"]) == (2, 2, 2)
    for policy in found["policies"]:
        for search in policy["searches"]:
            assert search["gpuSeconds"] <= 2 * search["endSeconds"], "no GPU is used twice at the same time"
            assert 0.0 <= search["overheadShare"] < 1.0
            assert search["nearBestSeconds"] <= search["endSeconds"], "the best is reached if no trial is cut"


def test_memory_for_one_trial_per_gpu_costs_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Each pod starts after the previous one ended, which takes longer; no trial waits in another slot."""
    found = {}
    for size in ("40Gi", "80Gi"):
        command = ["simulate", "--system", *SHORT, "--policy", "envelope", "-o", "json", "--memory", "40Gi"]
        assert main.run([*command, "--gpu-memory", size]) is Exit.OK
        (comparison,) = json.loads(capsys.readouterr().out)
        found[size] = {policy["name"]: policy["searches"][0] for policy in comparison["policies"]}
    assert found["40Gi"]["fifo"]["endSeconds"] > found["80Gi"]["fifo"]["endSeconds"]
    assert found["40Gi"]["envelope"]["suspensions"] == 0 < found["80Gi"]["envelope"]["suspensions"]


MOVED = (
    "(cuda-checkpoint: 17.2 GB at 2 GB/s out and 4.9 GB/s in, 0.39 s at least, as measured on one H100; "
    "override with --suspend,"
)
SWITCHES = [
    (["--method", "freeze"], "suspend 4 s, resume 4 s, 1 search"),
    (
        ["--method", "cuda-checkpoint", "--memory", "16Gi"],
        f"suspend 8.59 s, resume 3.51 s {MOVED} --resume)",
    ),
    (
        ["--method", "cuda-checkpoint", "--suspend", "1", "--resume", "2"],
        "suspend 1 s, resume 2 s (cuda-checkpoint), 1",
    ),
    (
        ["--method", "app-checkpoint", "--load", "3"],
        "suspend 1 s, resume 4.5 s (app-checkpoint: a checkpoint, then a new pod up to",
    ),
]


@pytest.mark.parametrize(("options", "expected"), SWITCHES, ids=["freeze", "measured", "given", "checkpoints"])
def test_the_cost_of_a_switch_depends_on_the_method(
    options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", "--system", "--trials", "4", "--seeds", "1", "--gpus", "2", "--policy", "envelope"]
    assert main.run([*command, *options]) is Exit.OK
    assert expected in capsys.readouterr().out


def test_a_trial_that_saves_goes_on_in_a_new_pod(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--system", *SHORT[:-2], "--policy", "round_robin", "--method", "app-checkpoint"]
    shares = []
    for seconds in ("0", "60"):
        assert main.run([*command, "--suspend", seconds, "-o", "json"]) is Exit.OK
        (comparison,) = json.loads(capsys.readouterr().out)
        assert (comparison["method"], comparison["suspendSeconds"]) == ("app-checkpoint", float(seconds))
        found = {policy["name"]: policy["searches"][0] for policy in comparison["policies"]}
        assert (
            found["round_robin"]["suspensions"]
            == found["fifo"]["checkpoints"]
            == 0
            < found["round_robin"]["checkpoints"]
        )
        assert found["round_robin"]["best"] == found["fifo"]["best"], "no work is lost"
        shares.append(found["round_robin"]["overheadShare"])
    assert shares[0] < shares[1]


DRAINS = [
    (["--method", "freeze"], 0, 0),
    (["--method", "app-checkpoint"], 0, 1),
    (["--method", "cuda-checkpoint", "--memory", "1Gi"], 0, 0),
    (["--method", "container-checkpoint", "--memory", "1Gi"], 1, 0),
]


@pytest.mark.parametrize(("options", "migrated", "checkpoints"), DRAINS, ids=[row[0][1] for row in DRAINS])
def test_how_trials_are_moved_off_a_drained_node(
    options: list[str], migrated: int, checkpoints: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running trials; unstarted ones continue on another node in any case."""
    command = ["simulate", "--system", *SHORT[:-4], "--policy", "fifo", "--drain", "node-1@900", *options]
    assert main.run([*command, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    searches = found["policies"][0]["searches"]
    assert [(search["migrations"], search["checkpoints"]) for search in searches] == [(migrated, checkpoints)] * 2
    assert found["migrationSeconds"] == (37.0 if migrated else None), "2 s and 35 s per GiB"
    assert main.run(command) is Exit.OK
    out = capsys.readouterr().out
    assert " 4 slots per GPU, " in out
    assert " node-1 takes no trials from 900 s on, 2 searches," in out
    assert ("live migration 37 s" in out) is bool(migrated)
    assert ("MIGRATIONS" in out) is bool(migrated)


NOTHING = ["simulate", "--system", "--method", "container-checkpoint"]


@pytest.mark.parametrize("options", [[], ["--suspend", "1", "--resume", "1"]])
def test_live_migration_needs_the_memory_of_a_trial(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*NOTHING, *options]) is Exit.USAGE
    expected = "--method container-checkpoint: the duration of a switch depends on the memory; give --memory\n"
    assert expected in capsys.readouterr().err


def test_an_agent_that_is_often_unresponsive_costs_time(capsys: pytest.CaptureFixture[str]) -> None:
    ends = []
    for options in ([], ["--agent-silent", "0.2"]):
        command = ["simulate", "--system", *SHORT, "--policy", "fifo", "-o", "json", "--telemetry", "2"]
        assert main.run([*command, *options]) is Exit.OK
        (found,) = json.loads(capsys.readouterr().out)
        ends.append(found["policies"][0]["searches"][0]["endSeconds"])
    assert ends[0] < ends[1]


def test_the_report_is_one_file_that_loads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.html"
    command = ["simulate", *SHORT, "--policy", "round_robin", "--report", str(path), "--target", "0.5"]
    assert main.run(command) is Exit.OK
    assert f"{path}: holder of each GPU over time" in capsys.readouterr().out
    page = path.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "TARGET: until val_acc is 0.5 or more." in page
    assert ">Target</th>" in page
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", page)
    assert page.count("<svg") == 1 + 2 + 2, "best so far, regret and overhead, a Gantt chart a policy"
    bars = re.findall(r"digits_example-(\d+) held it for", page)
    assert {int(number) for number in bars} == set(range(6)), "every trial had a GPU"
    reader = HTMLParser()
    reader.feed(page)
    reader.close()
    assert main.run(command) is Exit.OK
    assert path.read_text(encoding="utf-8") == page, "the same file again"


def test_values_as_large_as_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are drawn and shown with an exponent; a warning of an overflow would fail the test."""
    rows = [(f"{name},{step},{10.0 * step}", step) for name in "abc" for step in range(1, 7)]
    values = {1: "-1.7e308", 2: "1e-308", 3: "1", 4: "-1e300", 5: "1.6e308", 6: "1.7e308"}
    table = [f"{row},{values[step]}" for row, step in rows]
    (tmp_path / "huge.csv").write_text("\n".join(["trial,step,seconds,value", *table]) + "\n")
    path = tmp_path / "own.html"
    command = ["simulate", str(tmp_path / "huge.csv"), "--gpus", "1", "--seeds", "1", "--report", str(path)]
    assert main.run(command) is Exit.OK
    assert capsys.readouterr().out.splitlines()[2].split()[1] == "1.7e+308"
    assert "1.7e+308" in path.read_text(encoding="utf-8")


def test_settings_change_the_search_and_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, names = tmp_path / "own.html", ["asha:eta=4,onCut=stop", "asha:eta=4,onCut=suspend"]
    options = [option for name in names for option in ("--policy", name)]
    assert main.run(["simulate", *SHORT, *options, "-o", "json", "--report", str(path)]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    policies = {policy["name"]: policy["searches"] for policy in found["policies"]}
    assert set(policies) == {"fifo", *names}
    stopped, kept = (sum(search["suspensions"] for search in policies[name]) for name in names)
    assert stopped == 0 < kept, "a trial that is cut ends, or waits for its promotion"
    assert all(f"{name}: holder of each GPU" in path.read_text(encoding="utf-8") for name in names)


def test_quality_levels_follow_the_final_values() -> None:
    sample = draw_sample(bundled_trace(), 0, 12)
    found = quality_levels(sample)
    assert found[sample.winner] == 0
    assert sorted(found) == sorted([0, *(1 + place * 5 // 11 for place in range(11))])
    worst = min(range(12), key=lambda number: sample.best_of(sample.trials[number]))
    assert found[worst] == 5


def test_a_search_that_never_ends_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.jsonl"
    header = {"task": "long", "metric": "m", "goal": "maximize", "target": None}
    trial = {"trial": "a", "hparams": {}, "seconds": [20], "value": [0.5]}
    path.write_text(f"{json.dumps(header)}\n{json.dumps(trial)}\n", encoding="utf-8")
    options = ["--system", "--seeds", "1", "--policy", "fifo", "--node-fails", "0.0001"]
    assert main.run(["simulate", str(path), *options]) is Exit.FAILED
    assert (
        "long has not ended (1 trial left); do its trials fit a node, and do nodes live longer?"
        in capsys.readouterr().err
    )


REFUSALS = [
    (["--nodes", "0"], "TooFew: --nodes: must be at least 1 (got 0)"),
    (
        ["--nodes", "5", "--gpus", "2"],
        "TooManyNodes: --nodes: every node needs a GPU (got 5 nodes for 2 GPUs); give 2 nodes at most",
    ),
    (["--node-fails", "0"], "InvalidTime: --node-fails: must be greater than 0 hours (got 0)"),
    (
        ["--telemetry", "1e-300"],
        "InvalidTime: --telemetry: must be 0 or at least 1e-06 seconds (got 1e-300); 0 means",
    ),
    (["--drain", f"node-0@1-{10**24}"], "second 1e+24 is too large; give 10000000000 at most, or omit"),
    (["--drain", f"node-0@1-{'9' * 400}"], "second inf is too large; give 10000000000 at most, or omit"),
    (
        ["--gpu-memory", "80Gi"],
        "MemoryWithoutEffect: --gpu-memory: 80Gi has no effect without the memory of a trial",
    ),
    (
        ["--method", "cuda-checkpoint"],
        "GPUMemoryRequired: --method cuda-checkpoint: the duration of a switch depends on the memory",
    ),
    (["--method", "cuda-checkpoint", "--suspend", "1"], "give --memory, or both of --suspend and --resume"),
    (
        ["--method", "app-checkpoint", "--resume", "3"],
        "ResumeUnused: --resume: 3 has no effect, because a trial continues in a new pod with app-checkpoint; give",
    ),
    (
        ["--memory", "8Gi"],
        "MemoryWithoutEffect: --memory: 8Gi has no effect without the memory of a GPU; give --",
    ),
    (["--memory", "8Gi", "--gpu-memory", "4Gi"], "TooLarge: --memory: a trial needs 8Gi and a GPU has 4Gi"),
    (
        ["--memory", "0", "--gpu-memory", "4Gi"],
        "InvalidSize: --memory: must be greater than 0 (got 0)",
    ),
    (["--memory", "lots", "--gpu-memory", "4Gi"], "InvalidSize: --memory: 'lots' is not a quantity"),
    (["--report", "/nowhere/x.html", "--trials", "2", "--seeds", "1", "--policy", "fifo"], "FileNotWritten"),
]


@pytest.mark.parametrize(("options", "expected"), REFUSALS, ids=[row[1][:20] for row in REFUSALS])
def test_every_refusal_names_its_cure(options: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "--system", *options]) is not Exit.OK
    assert expected in capsys.readouterr().err
