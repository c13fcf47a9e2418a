"""`podium simulate --system`: table, JSON and HTML report of the simulated system, and every no with its sentence."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit
from podium_cli.report.simulation import grades
from podium_simulator.replay.samples import draw_sample
from podium_simulator.traces.trace import bundled_trace

SHORT = ["--trials", "6", "--seeds", "2", "--gpus", "2", "--nodes", "2", "--suspend", "1", "--resume", "1"]


def test_a_table_with_what_the_system_adds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "--system", *SHORT, "--policy", "envelope", "--policy", "asha"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("digits_example (val_acc, larger is better): 6 trials on 2 GPUs of 2 nodes, 4 trials")
    assert {line.split()[0] for line in lines[2:]} == {"fifo", "envelope", "asha"}
    fifo = next(line for line in lines if line.startswith("fifo")).split()
    assert fifo[-1] == "0", "fifo suspends nobody"


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
            assert search["gpuSeconds"] <= 2 * search["endSeconds"], "no GPU works twice at once"
            assert 0.0 <= search["overheadShare"] < 1.0
            assert search["nearBestSeconds"] <= search["endSeconds"], "with nobody cut the best is found"


def test_memory_for_one_trial_a_gpu_costs_time_and_turns(capsys: pytest.CaptureFixture[str]) -> None:
    """The next pod comes when the one before has ended, and its way to the gate shows; nobody waits beside anybody."""
    found = {}
    for size in ("40Gi", "80Gi"):
        command = ["simulate", "--system", *SHORT, "--policy", "envelope", "-o", "json", "--memory", "40Gi"]
        assert main.run([*command, "--gpu-memory", size]) is Exit.OK
        (contest,) = json.loads(capsys.readouterr().out)
        found[size] = {policy["name"]: policy["searches"][0] for policy in contest["policies"]}
    assert found["40Gi"]["fifo"]["endSeconds"] > found["80Gi"]["fifo"]["endSeconds"]
    assert found["40Gi"]["envelope"]["suspensions"] == 0 < found["80Gi"]["envelope"]["suspensions"]


MOVED = (
    "(cuda-checkpoint: 17.2 GB at 2 GB/s out and 4.9 GB/s in, 0.39 s at least, as measured on one H100; "
    "override with --suspend,"
)
SWITCHES = [
    (["--method", "freeze"], "4 s + 4 s a switch, 1 search"),
    (["--method", "cuda-checkpoint", "--memory", "16Gi"], f"8.59 s + 3.51 s a switch {MOVED} --resume)"),
    (["--method", "cuda-checkpoint", "--suspend", "1", "--resume", "2"], "1 s + 2 s a switch (cuda-checkpoint), 1"),
    (
        ["--method", "app-checkpoint", "--load", "3"],
        "1 s + 4.5 s a switch (app-checkpoint: a save, then a new pod up to",
    ),
]


@pytest.mark.parametrize(("options", "told"), SWITCHES, ids=["freeze", "measured", "given", "saves"])
def test_a_switch_goes_by_the_method(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--system", "--trials", "4", "--seeds", "1", "--gpus", "2", "--policy", "envelope"]
    assert main.run([*command, *options]) is Exit.OK
    assert told in capsys.readouterr().out


def test_a_trial_that_saves_goes_on_in_a_new_pod(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--system", *SHORT[:-2], "--policy", "round_robin", "--method", "app-checkpoint"]
    shares = []
    for seconds in ("0", "60"):
        assert main.run([*command, "--suspend", seconds, "-o", "json"]) is Exit.OK
        (contest,) = json.loads(capsys.readouterr().out)
        assert (contest["method"], contest["suspendSeconds"]) == ("app-checkpoint", float(seconds))
        found = {policy["name"]: policy["searches"][0] for policy in contest["policies"]}
        assert found["round_robin"]["suspensions"] == found["fifo"]["saves"] == 0 < found["round_robin"]["saves"]
        assert found["round_robin"]["best"] == found["fifo"]["best"], "no step is lost"
        shares.append(found["round_robin"]["overheadShare"])
    assert shares[0] < shares[1]


LEAVES = [
    (["--method", "freeze"], 0, 0),
    (["--method", "app-checkpoint"], 0, 1),
    (["--method", "cuda-checkpoint", "--memory", "1Gi"], 0, 0),
    (["--method", "container-checkpoint", "--memory", "1Gi"], 1, 0),
]


@pytest.mark.parametrize(("options", "carried", "saved"), LEAVES, ids=[row[0][1] for row in LEAVES])
def test_how_trials_leave_a_node_that_drains(
    options: list[str], carried: int, saved: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those at work; who has not begun goes on elsewhere in any case."""
    command = ["simulate", "--system", *SHORT[:-4], "--policy", "fifo", "--drain", "node-1@900", *options]
    assert main.run([*command, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    searches = found["policies"][0]["searches"]
    assert [(search["carries"], search["saves"]) for search in searches] == [(carried, saved)] * 2
    assert found["carrySeconds"] == (37.0 if carried else None), "2 s and 35 s a GiB"
    assert main.run(command) is Exit.OK
    out = capsys.readouterr().out
    assert " 4 trials to a GPU, " in out
    assert " node-1 takes no trials from 900 s on, 2 searches," in out
    assert ("37 s to carry a trial to another node" in out) is bool(carried)
    assert ("CARRIED" in out) is bool(carried)


NOTHING = ["simulate", "--system", "--method", "container-checkpoint"]


@pytest.mark.parametrize("options", [[], ["--suspend", "1", "--resume", "1"]])
def test_who_is_carried_says_what_it_holds(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*NOTHING, *options]) is Exit.USAGE
    told = "--method container-checkpoint: what a switch takes goes by the memory that is moved; give --memory\n"
    assert told in capsys.readouterr().err


def test_an_agent_that_is_often_silent_costs_time(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert f"{path}: who was trained when" in capsys.readouterr().out
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


def test_values_as_large_as_numbers_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn, and shown with an exponent; no warning of an overflow, as pytest makes those errors."""
    rows = [(f"{name},{step},{10.0 * step}", step) for name in "abc" for step in range(1, 7)]
    values = {1: "-1.7e308", 2: "1e-308", 3: "1", 4: "-1e300", 5: "1.6e308", 6: "1.7e308"}
    table = [f"{row},{values[step]}" for row, step in rows]
    (tmp_path / "huge.csv").write_text("\n".join(["trial,step,seconds,value", *table]) + "\n")
    path = tmp_path / "own.html"
    command = ["simulate", str(tmp_path / "huge.csv"), "--gpus", "1", "--seeds", "1", "--report", str(path)]
    assert main.run(command) is Exit.OK
    assert capsys.readouterr().out.splitlines()[2].split()[1] == "1.7e+308"
    assert "1.7e+308" in path.read_text(encoding="utf-8")


def test_settings_make_another_search_and_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, names = tmp_path / "own.html", ["asha:eta=4,onCut=stop", "asha:eta=4,onCut=suspend"]
    options = [option for name in names for option in ("--policy", name)]
    assert main.run(["simulate", *SHORT, *options, "-o", "json", "--report", str(path)]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    policies = {policy["name"]: policy["searches"] for policy in found["policies"]}
    assert set(policies) == {"fifo", *names}
    stopped, kept = (sum(search["suspensions"] for search in policies[name]) for name in names)
    assert stopped == 0 < kept, "who is cut ends, or waits to be promoted"
    assert all(f"{name}: who held each GPU" in path.read_text(encoding="utf-8") for name in names)


def test_grades_go_by_what_a_trial_becomes() -> None:
    pool = draw_sample(bundled_trace(), 0, 12)
    found = grades(pool)
    assert found[pool.winner] == 0
    assert sorted(found) == sorted([0, *(1 + place * 5 // 11 for place in range(11))])
    worst = min(range(12), key=lambda number: pool.best_of(pool.trials[number]))
    assert found[worst] == 5


def test_a_search_without_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


NOS = [
    (["--nodes", "0"], "TooFew: --nodes: 0 is too few; give 1 or more"),
    (
        ["--nodes", "5", "--gpus", "2"],
        "TooManyNodes: --nodes: 5 nodes for 2 GPUs (--gpus), and a node without a GPU has no trials; give 2 nodes at",
    ),
    (["--node-fails", "0"], "InvalidTime: --node-fails: 0 hours is no time; give more than 0"),
    (
        ["--telemetry", "1e-300"],
        "InvalidTime: --telemetry: 1e-300 seconds is too short a time between two reports; give 0",
    ),
    (["--drain", f"node-0@1-{10**24}"], "second 1e+24 is centuries away; give 10000000000 at most, or leave"),
    (["--drain", f"node-0@1-{'9' * 400}"], "second inf is centuries away; give 10000000000 at most, or leave"),
    (
        ["--gpu-memory", "80Gi"],
        "MemoryWithoutEffect: --gpu-memory: 80Gi of a GPU is without effect where no trial says what it",
    ),
    (
        ["--method", "cuda-checkpoint"],
        "GPUMemoryRequired: --method cuda-checkpoint: what a switch takes goes by the memory that",
    ),
    (["--method", "cuda-checkpoint", "--suspend", "1"], "give --memory, or both of --suspend and --resume"),
    (
        ["--method", "app-checkpoint", "--resume", "3"],
        "ResumeUnused: --resume: 3 is without effect where a trial goes on in a new pod (app-checkpoint); give --load",
    ),
    (
        ["--memory", "8Gi"],
        "MemoryWithoutEffect: --memory: 8Gi of a trial is without effect where a GPU holds any number; give --",
    ),
    (["--memory", "8Gi", "--gpu-memory", "4Gi"], "TooLarge: --memory: a trial needs 8Gi and a GPU has 4Gi"),
    (
        ["--memory", "0", "--gpu-memory", "4Gi"],
        "InvalidSize: --memory: 0 is no memory; give more than 0, or leave it out",
    ),
    (["--memory", "lots", "--gpu-memory", "4Gi"], "InvalidSize: --memory: 'lots' is not a quantity"),
    (["--report", "/nowhere/x.html", "--trials", "2", "--seeds", "1", "--policy", "fifo"], "FileNotWritten"),
]


@pytest.mark.parametrize(("options", "told"), NOS, ids=[row[1][:20] for row in NOS])
def test_every_no_names_its_cure(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "--system", *options]) is not Exit.OK
    assert told in capsys.readouterr().err
