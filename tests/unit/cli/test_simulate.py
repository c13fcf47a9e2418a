"""`podium simulate`: table and JSON of a replay, on our own curves and on files, and every no with its sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.commands import simulate
from podium_cli.exit_codes import Exit

HEADER = {"task": "late", "metric": "acc", "goal": "maximize", "target": 0.85, "note": ""}
CURVES = {"first": [0.5, 0.6, 0.7], "second": [0.1, 0.2, 0.3], "best": [0.7, 0.8, 0.9]}


@pytest.fixture
def curves(tmp_path: Path) -> str:
    """One GPU trains them in this order under fifo: the best has completed at 90 s."""
    trials = [{"trial": name, "hparams": {}, "seconds": [10, 20, 30], "value": v} for name, v in CURVES.items()]
    path = tmp_path / "own-late.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [HEADER, *trials]), encoding="utf-8")
    return str(path)


def test_our_own_curves_are_part_of_podium(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--trials", "12", "--seeds", "1", "--policy", "envelope", "--policy", "hermes"]
    assert main.run(["simulate", *options]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("digits_example (val_acc, larger is better): 12 trials on 4 GPUs, 4 s + 4 s a switch, ")
    assert lines[1].split()[:3] == ["POLICY", "BEST", "DONE"]
    assert {line.split()[0] for line in lines[2:]} == {"fifo", "envelope", "hermes"}


def test_json_of_a_file(curves: str, capsys: pytest.CaptureFixture[str]) -> None:
    free = ["--suspend", "0", "--resume", "0"]
    options = ["--gpus", "1", "--seeds", "4", "--policy", "best_so_far", *free, "-o", "json"]
    assert main.run(["simulate", curves, *options]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["task"], found["trials"], found["searches"], found["gpus"]) == ("late", 3, 4, 1)
    policies = {policy["name"]: policy for policy in found["policies"]}
    assert set(policies) == {"fifo", "best_so_far"}
    for policy in policies.values():
        assert policy["bestDoneSeconds"] in {30.0, 45.0, 60.0, 75.0, 90.0}
        assert policy["targetSeconds"] == policy["bestDoneSeconds"]  # its last value is the first above the target
    against = policies["fifo"]["againstFifo"]
    assert all(
        against[metric] == {"mean": 1.0, "worst": 1.0} for metric in ("time_to_target", "time_to_best", "mean_regret")
    )


NOS = [
    (["--gpus", "0"], Exit.USAGE, "TooFew: --gpus: 0 is too few; give 1 or more"),
    (["--resume", "-1"], Exit.USAGE, "InvalidCost: --resume: -1 seconds is no cost; give 0 to 3600"),
    (["nowhere.jsonl"], Exit.NOT_FOUND, "FileUnreadable: nowhere.jsonl: No such file"),
    (["/dev/null"], Exit.NOT_FOUND, "FileUnreadable: /dev/null: a device, which has no end; name a file of curves"),
]


def test_one_policy_with_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is called what was typed, and its settings are its own: these of the second are the policy's defaults."""
    names = ["asha", "asha:eta=4,onCut=suspend", "asha:eta=2"]
    options = [option for name in names for option in ("--policy", name)]
    assert main.run(["simulate", "--gpus", "2", "--trials", "12", "--seeds", "1", *options, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    policies = {policy.pop("name"): policy for policy in found["policies"]}
    assert set(policies) == {"fifo", *names}
    assert policies["asha"] == policies["asha:eta=4,onCut=suspend"] != policies["asha:eta=2"]


POLICIES = [
    ("nobody", "UnknownPolicy: --policy nobody: policy.name: 'nobody' is not known; choose one of: asha, best_so_far"),
    (
        "asha:",
        "InvalidPolicySetting: --policy asha:: policy.settings: '' is not a setting; write SETTING=VALUE",
    ),
    ("asha:eta", "InvalidPolicySetting: --policy asha:eta: policy.settings: 'eta' is not a setting; write SETTING"),
    ("asha:eta=\x1b[1m", "is not a setting; write SETTING=VALUE"),
    ("asha:eta=2,eta=3", "InvalidPolicySetting: --policy asha:eta=2,eta=3: policy.settings.eta: it is given twice"),
    ("asha:eta=x", "InvalidPolicySetting: --policy asha:eta=x: policy.settings.eta: 'x' is not a number"),
    ("asha:eta=inf", "InvalidPolicySetting: --policy asha:eta=inf: policy.settings.eta: inf is not a number"),
    ("asha:eta=1", "InvalidPolicySetting: --policy asha:eta=1: policy.settings.eta"),
    (
        "asha:rungs=1.5",
        "InvalidPolicySetting: --policy asha:rungs=1.5: policy.settings.rungs: 1.5 is not a whole number",
    ),
    (
        "asha:onCut=go",
        "InvalidPolicySetting: --policy asha:onCut=go: policy.settings.onCut: 'go' is not one of: suspend",
    ),
    ("fifo:eta=3", "UnknownPolicySetting: --policy fifo:eta=3: policy.settings.eta: policy fifo has no such setting"),
]


@pytest.mark.parametrize("system", [[], ["--system"]], ids=["replay", "system"])
@pytest.mark.parametrize(("name", "told"), POLICIES, ids=[ascii(row[0]) for row in POLICIES])
def test_a_bad_policy_gets_the_registrys_own_sentence(
    name: str, told: str, system: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", *system, "--policy", name]) is Exit.USAGE
    assert told in capsys.readouterr().err


SYSTEM = [
    ["--memory", "8Gi"],
    ["--method", "freeze"],
    ["--saves"],
    ["--nodes", "1"],
    ["--slots", "4"],
    ["--load", "0"],
    ["--gpu-memory", "80Gi"],
    ["--node-fails", "2"],
    ["--pod-fails", "2"],
    ["--crashes", "2"],
    ["--agent-silent", "2"],
    ["--drain", "node-0@60"],
    ["--telemetry", "0"],
    ["--exact"],
]


def test_every_option_of_the_simulated_system_alone_is_known() -> None:
    assert {option for option, *_ in SYSTEM} == {"--" + name.replace("_", "-") for name in simulate.SYSTEM}


@pytest.mark.parametrize("options", SYSTEM, ids=[row[0] for row in SYSTEM])
def test_a_replay_refuses_what_only_the_system_has(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", *options]) is Exit.USAGE
    assert f"SystemRequired: {options[0]}: needs --system" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code", "told"), NOS, ids=[row[0][0] for row in NOS])
def test_every_no_names_its_cure(options: list[str], code: Exit, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", *options]) is code
    assert told in capsys.readouterr().err


def test_a_bad_file_and_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", str(tmp_path)]) is Exit.NOT_FOUND
    assert "NoCurves" in capsys.readouterr().err
    (tmp_path / "x.jsonl").write_text("{}\nx\n")
    assert main.run(["simulate", str(tmp_path)]) is Exit.FAILED
    assert "InvalidRecording: x.jsonl, line 2: not JSON" in capsys.readouterr().err


def test_slices_that_are_nothing_against_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It decided for ever: at 1e8 s a clock of 64 bits does not see a slice of 1e-9 s."""
    seconds = [*(1e-9 * k for k in range(1, 10)), 1e8]
    trials = [{"trial": name, "seconds": seconds, "value": [0.1] * 10} for name in CURVES]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [HEADER, *trials]), encoding="utf-8")
    free = ["--suspend", "0", "--resume", "0"]
    assert main.run(["simulate", str(path), "--gpus", "1", *free]) is Exit.FAILED
    told = "late: 3e+08 seconds of training in slices of 1e-09 s, a GPU's decisions, are more than 1000000; leave"
    assert told in capsys.readouterr().err


TABLE = "trial,step,value,seconds\nlow,1,0.1,10\nhigh,1,0.9,10\n"


@pytest.mark.parametrize("system", [[], ["--system"], ["--system", "--jobs", "2"]], ids=["replay", "system", "jobs"])
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_the_heading_says_which_way_is_better(
    goal: str, system: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loss.csv").write_text(TABLE)
    options = ["--goal", goal, "--policy", "fifo", "--seeds", "1", "--trials", "2", *system]
    assert main.run(["simulate", str(tmp_path / "loss.csv"), *options]) is Exit.OK
    told = {"maximize": "larger is better", "minimize": "smaller is better"}[goal]
    assert capsys.readouterr().out.startswith(f"loss (value, {told}): ")
    assert main.run(["simulate", str(tmp_path / "loss.csv"), *options, "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["goal"] == goal


def test_a_goal_against_what_the_curves_say_themselves(
    curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--policy", "fifo", "--seeds", "1", "--trials", "3"]
    told = "GoalWithoutEffect: --goal: minimize is without effect: {} says itself that larger is better; leave --goal"
    assert main.run(["simulate", curves, "--goal", "minimize", *few]) is Exit.USAGE
    assert told.format("late") in capsys.readouterr().err
    assert main.run(["simulate", "--goal", "minimize", *few]) is Exit.USAGE
    assert told.format("digits_example") in capsys.readouterr().err
    assert main.run(["simulate", curves, "--goal", "maximize", *few]) is Exit.OK
    (tmp_path / "loss.csv").write_text(TABLE)
    assert main.run(["simulate", str(tmp_path), "--goal", "minimize", *few]) is Exit.OK
    told_of = [line for line in capsys.readouterr().out.splitlines() if "is better" in line]
    assert ["larger" in line for line in told_of] == [True, True, False], "each table says its own"


LOSS = "trial,step,value,seconds\nslow,1,0.9,10\nslow,2,0.4,20\nslow,3,0.3,30\n"
WAYS = {"replay": [], "system": ["--system"], "jobs": ["--system", "--jobs", "2"]}
ONE_GPU = ["--gpus", "1", "--policy", "fifo", "--seeds", "1", "--suspend", "0", "--resume", "0"]
TARGETS = {
    "a loss": ("minimize", "0.4", "until value is 0.4 or less.", 20.0),
    "an accuracy": ("maximize", "0.5", "until value is 0.5 or more.", 10.0),
    "no trial has it": ("minimize", "-0.25", "until value is -0.25 or less.", None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("goal", "target", "told", "seconds"), TARGETS.values(), ids=TARGETS)
def test_a_target_for_curves_that_name_none(
    way: str,
    goal: str,
    target: str,
    told: str,
    seconds: float | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "loss.csv"
    path.write_text(LOSS)
    command = ["simulate", str(path), "--goal", goal, *ONE_GPU, *WAYS[way]]
    assert main.run([*command, "--target", target, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert found["target"] == float(target)
    (fifo,) = found["policies"]
    first = {
        "replay": lambda: fifo,
        "system": lambda: fifo["searches"][0],
        "jobs": lambda: fifo["rounds"][0]["jobs"][0],
    }
    reached = first[way]()["targetSeconds"]
    # a pod of the simulated system needs some seconds until it trains
    assert reached == (None if seconds is None else pytest.approx(seconds, abs=0.0 if way == "replay" else 5.0))
    assert main.run([*command, "--target", target]) is Exit.OK
    heading, names, row = capsys.readouterr().out.splitlines()[:3]
    assert heading.endswith(f" TARGET: {told}")
    place = names.index("TARGET") + len("TARGET")
    none = {"replay": "–", "system": "–", "jobs": "never"}[way]
    assert row[:place].endswith(" s" if seconds is not None else none), "its column ends there"
    assert main.run(command) is Exit.OK
    assert "TARGET" not in capsys.readouterr().out, "and is not there without one"


def test_each_recording_without_a_target_gets_it(
    curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loss.csv").write_text(TABLE)
    few = ["--policy", "fifo", "--seeds", "1", "--target", "0.9", "-o", "json"]
    assert main.run(["simulate", str(tmp_path), *few]) is Exit.OK
    assert [found["target"] for found in json.loads(capsys.readouterr().out)] == [0.85, 0.9], "a header knows better"
    assert main.run(["simulate", "--trials", "2", *few]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["target"] == 0.9, "our own curves have none"
    assert main.run(["simulate", curves, *few[:-3], "0.85"]) is Exit.OK, "it is what the header says"


BAD_TARGETS = [
    ("0.9", "TargetWithoutEffect: --target: 0.9 is without effect: late says itself that its target is 0.85; leave --"),
    ("nan", "InvalidTarget: --target: nan is no value that a trial could reach; give a finite number, or leave it out"),
    ("-1e999", "InvalidTarget: --target: -inf is no value that a trial could reach; give a finite number"),
]


@pytest.mark.parametrize("system", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("target", "told"), BAD_TARGETS, ids=[row[0] for row in BAD_TARGETS])
def test_a_target_that_is_none(
    target: str, told: str, system: list[str], curves: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", curves, f"--target={target}", "--policy", "fifo", *system]) is Exit.USAGE
    assert told in capsys.readouterr().err


LEFT_OUT = [
    (0, ""),
    (1, " 1 of 4 trials is not in these curves: it was not trained to its end; policies are compared on the others."),
    (18, " 18 of 21 trials are not in these curves: they were not trained to their end; policies are"),
]


@pytest.mark.parametrize("system", [[], ["--system"], ["--system", "--jobs", "2"]], ids=["replay", "system", "jobs"])
@pytest.mark.parametrize(("left", "told"), LEFT_OUT, ids=[str(row[0]) for row in LEFT_OUT])
def test_the_heading_says_how_many_trials_are_in_no_curve(
    left: int, told: str, system: list[str], curves: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head, rest = Path(curves).read_text().split("\n", 1)
    Path(curves).write_text(json.dumps(json.loads(head) | {"left_out": left}) + "\n" + rest)
    command = ["simulate", curves, "--policy", "fifo", "--seeds", "1", *system]
    assert main.run(command) is Exit.OK
    heading = capsys.readouterr().out.splitlines()[0]
    assert told in heading
    assert ("not trained to" in heading) is bool(left)
    assert main.run([*command, "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["leftOut"] == left


REAL = Path(__file__).parents[1] / "simulator" / "event_files"
WITHOUT_EFFECT = [[], ["lines"], ["table"], ["folder"], ["lines", "table"]]


@pytest.mark.parametrize("named", WITHOUT_EFFECT, ids=["our own", *(" and ".join(row) for row in WITHOUT_EFFECT[1:])])
@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_a_metric_where_no_runs_of_tensorboard_are(
    command: str, named: list[str], curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables" / "loss.csv"
    table.write_text(TABLE)
    paths = {"lines": curves, "table": str(table), "folder": str(table.parent)}
    job = [str(Path(__file__).parents[3] / "examples" / "digits" / "job.yaml")] if command == "plan" else []
    assert main.run([command, *job, *(paths[name] for name in named), "--metric", "loss"]) is Exit.USAGE
    told = "MetricWithoutEffect: --metric: loss is without effect: no TensorBoard folder is among the curves"
    assert told in capsys.readouterr().err


def test_a_metric_is_of_the_runs_of_tensorboard_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    few = ["--policy", "fifo", "--seeds", "1", "--metric", "val_acc", "-o", "json"]
    assert main.run(["simulate", str(REAL / "pytorch"), str(tmp_path / "own.csv"), *few]) is Exit.OK
    assert [found["metric"] for found in json.loads(capsys.readouterr().out)] == ["val_acc", "value"]


ONE = {
    "replay": ([], ": 1 trial on 1 GPU, 4 s"),
    "system": (["--system", "--slots", "1"], ": 1 trial on 1 GPU of 1 node, 1 trial to a GPU, 4 s"),
    "jobs": (
        ["--system", "--slots", "1", "--jobs", "2"],
        ": 2 jobs of 2 users, all at once, 1 trial each, on 1 GPU of 1",
    ),
}


@pytest.mark.parametrize(("options", "told"), ONE.values(), ids=ONE)
def test_one_of_a_kind(options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.csv").write_text("trial,step,value,seconds\nonly,0,0.1,0\nonly,1,0.9,10\n")
    few = ["--gpus", "1", "--trials", "1", "--policy", "fifo", "--seeds", "1"]
    assert main.run(["simulate", str(tmp_path / "one.csv"), *few, *options]) is Exit.OK
    shown = capsys.readouterr()
    assert told in shown.out
    note = "podium: note: one.csv: 1 of 2 evaluations were read; at 0 seconds, before any training: 1\n"
    assert shown.err == note


def test_runs_that_are_left_out_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(REAL / "pytorch", tmp_path / "runs")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "events.out.tfevents.1.host").write_bytes(b"no event" * 9)
    few = ["--policy", "fifo", "--seeds", "1", "--metric", "val_acc"]
    assert main.run(["simulate", str(tmp_path / "runs"), *few]) is Exit.OK
    shown = capsys.readouterr()
    assert shown.err == "podium: note: runs: 3 of 4 runs were read; no event could be read of: broken\n"
    assert "note" not in shown.out
