"""`podium simulate`: table and JSON of a replay of bundled curves and of files, and every refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.commands.simulation import TrialOptions, given_options
from podium_cli.exit_codes import Exit
from podium_cli.options.faults import FaultOptions
from podium_cli.options.system import SystemOptions

HEADER = {"task": "late", "metric": "acc", "goal": "maximize", "target": 0.85, "note": ""}
CURVES = {"first": [0.5, 0.6, 0.7], "second": [0.1, 0.2, 0.3], "best": [0.7, 0.8, 0.9]}


@pytest.fixture
def curves(tmp_path: Path) -> str:
    """One GPU trains them in this order under fifo: the best has completed at 90 s."""
    trials = [{"trial": name, "hparams": {}, "seconds": [10, 20, 30], "value": v} for name, v in CURVES.items()]
    path = tmp_path / "own-late.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [HEADER, *trials]), encoding="utf-8")
    return str(path)


def test_the_bundled_curves(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--trials", "12", "--seeds", "1", "--policy", "envelope", "--policy", "hermes"]
    assert main.run(["simulate", *options]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "digits_example (val_acc, larger is better): 12 trials on 4 GPUs, suspend 4 s, resume 4 s, "
    )
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


REFUSALS = [
    (["--gpus", "0"], Exit.USAGE, "TooFew: --gpus: must be at least 1 (got 0)"),
    (["--resume", "-1"], Exit.USAGE, "InvalidCost: --resume: must be 0 to 3600 seconds (got -1)"),
    (["nowhere.jsonl"], Exit.NOT_FOUND, "FileUnreadable: nowhere.jsonl: No such file"),
    (["/dev/null"], Exit.NOT_FOUND, "FileUnreadable: /dev/null: a device, which has no end; name a file of curves"),
]


def test_one_policy_with_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the name that was given and its own settings; those of the second are the policy's defaults."""
    names = ["asha", "asha:eta=4,onCut=suspend", "asha:eta=2"]
    options = [option for name in names for option in ("--policy", name)]
    assert main.run(["simulate", "--gpus", "2", "--trials", "12", "--seeds", "1", *options, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    policies = {policy.pop("name"): policy for policy in found["policies"]}
    assert set(policies) == {"fifo", *names}
    assert policies["asha"] == policies["asha:eta=4,onCut=suspend"] != policies["asha:eta=2"]


POLICIES = [
    ("unknown", "UnknownPolicy: --policy unknown: policy.name: 'unknown' is not known; choose one of: asha"),
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
@pytest.mark.parametrize(("name", "expected"), POLICIES, ids=[ascii(row[0]) for row in POLICIES])
def test_an_invalid_policy_has_the_message_of_the_registry(
    name: str, expected: str, system: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", *system, "--policy", name]) is Exit.USAGE
    assert expected in capsys.readouterr().err


SYSTEM = [
    ["--memory", "8Gi"],
    ["--method", "freeze"],
    ["--checkpoints"],
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


def test_the_list_of_options_of_the_simulated_system_is_complete() -> None:
    faults = FaultOptions(2.0, 2.0, 2.0, 2.0, ("node-0@60",))
    system = SystemOptions(1, 1, 1.0, "80Gi", faults, 0.0, exact=True)
    given = given_options(TrialOptions("1Gi", "freeze", checkpoints=True), system)
    assert ["--" + name.replace("_", "-") for name in given] == [option for option, *_ in SYSTEM]
    nothing = SystemOptions(None, None, None, None, FaultOptions(None, None, None, None, ()), None, exact=False)
    assert list(given_options(TrialOptions(None, None, checkpoints=False), nothing)) == []


@pytest.mark.parametrize("options", SYSTEM, ids=[row[0] for row in SYSTEM])
def test_a_replay_refuses_options_of_the_simulated_system(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", *options]) is Exit.USAGE
    assert f"SystemRequired: {options[0]}: needs the simulated system; add --system" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code", "expected"), REFUSALS, ids=[row[0][0] for row in REFUSALS])
def test_every_refusal_names_its_cure(
    options: list[str], code: Exit, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", *options]) is code
    assert expected in capsys.readouterr().err


def test_a_bad_file_and_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", str(tmp_path)]) is Exit.NOT_FOUND
    assert "NoCurves" in capsys.readouterr().err
    (tmp_path / "x.jsonl").write_text('{"task": "a", "metric": "m", "goal": "maximize"}\nx\n')
    assert main.run(["simulate", str(tmp_path)]) is Exit.FAILED
    assert "InvalidCurves: x.jsonl, line 2: not JSON" in capsys.readouterr().err


def test_slices_that_are_too_short_for_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 1e8 s a 64-bit float cannot represent a slice of 1e-9 s, so the replay would never end."""
    seconds = [*(1e-9 * k for k in range(1, 10)), 1e8]
    trials = [{"trial": name, "seconds": seconds, "value": [0.1] * 10} for name in CURVES]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [HEADER, *trials]), encoding="utf-8")
    free = ["--suspend", "0", "--resume", "0"]
    assert main.run(["simulate", str(path), "--gpus", "1", *free]) is Exit.FAILED
    expected = "late: 3e+08 seconds of training in slices of 1e-09 s, a GPU's decisions, are more than 1000000; leave"
    assert expected in capsys.readouterr().err


TABLE = "trial,step,value,seconds\nlow,1,0.1,10\nhigh,1,0.9,10\n"


@pytest.mark.parametrize("system", [[], ["--system"], ["--system", "--jobs", "2"]], ids=["replay", "system", "jobs"])
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_the_heading_names_the_direction(
    goal: str, system: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loss.csv").write_text(TABLE)
    options = ["--goal", goal, "--policy", "fifo", "--seeds", "1", "--trials", "2", *system]
    assert main.run(["simulate", str(tmp_path / "loss.csv"), *options]) is Exit.OK
    expected = {"maximize": "larger is better", "minimize": "smaller is better"}[goal]
    assert capsys.readouterr().out.startswith(f"loss (value, {expected}): ")
    assert main.run(["simulate", str(tmp_path / "loss.csv"), *options, "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["goal"] == goal


def test_a_goal_that_contradicts_the_curves(curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--policy", "fifo", "--seeds", "1", "--trials", "3"]
    expected = (
        "GoalWithoutEffect: --goal: minimize has no effect: the file of {} states that larger is better; omit --goal"
    )
    assert main.run(["simulate", curves, "--goal", "minimize", *few]) is Exit.USAGE
    assert expected.format("late") in capsys.readouterr().err
    assert main.run(["simulate", "--goal", "minimize", *few]) is Exit.USAGE
    assert expected.format("digits_example") in capsys.readouterr().err
    assert main.run(["simulate", curves, "--goal", "maximize", *few]) is Exit.OK
    (tmp_path / "loss.csv").write_text(TABLE)
    assert main.run(["simulate", str(tmp_path), "--goal", "minimize", *few]) is Exit.OK
    shown = [line for line in capsys.readouterr().out.splitlines() if "is better" in line]
    assert ["larger" in line for line in shown] == [True, True, False], "each table names its own direction"


LOSS = "trial,step,value,seconds\nslow,1,0.9,10\nslow,2,0.4,20\nslow,3,0.3,30\n"
WAYS = {"replay": [], "system": ["--system"], "jobs": ["--system", "--jobs", "2"]}
ONE_GPU = ["--gpus", "1", "--policy", "fifo", "--seeds", "1", "--suspend", "0", "--resume", "0"]
TARGETS = {
    "a loss": ("minimize", "0.4", "until value is 0.4 or less.", 20.0),
    "an accuracy": ("maximize", "0.5", "until value is 0.5 or more.", 10.0),
    "no trial reaches it": ("minimize", "-0.25", "until value is -0.25 or less.", None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("goal", "target", "expected", "seconds"), TARGETS.values(), ids=TARGETS)
def test_a_target_for_curves_that_name_none(
    way: str,
    goal: str,
    target: str,
    expected: str,
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
    # a pod of the simulated system starts to train after some seconds
    assert reached == (None if seconds is None else pytest.approx(seconds, abs=0.0 if way == "replay" else 5.0))
    assert main.run([*command, "--target", target]) is Exit.OK
    heading, names, row = capsys.readouterr().out.splitlines()[:3]
    assert heading.endswith(f" TARGET: {expected}")
    place = names.index("TARGET") + len("TARGET")
    none = {"replay": "–", "system": "–", "jobs": "never"}[way]
    assert row[:place].endswith(" s" if seconds is not None else none), "its column ends there"
    assert main.run(command) is Exit.OK
    assert "TARGET" not in capsys.readouterr().out, "the column exists only with a target"


def test_each_recording_without_a_target_gets_it(
    curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loss.csv").write_text(TABLE)
    few = ["--policy", "fifo", "--seeds", "1", "--target", "0.9", "-o", "json"]
    assert main.run(["simulate", str(tmp_path), *few]) is Exit.OK
    assert [found["target"] for found in json.loads(capsys.readouterr().out)] == [0.85, 0.9], (
        "a header takes precedence"
    )
    assert main.run(["simulate", "--trials", "2", *few]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["target"] == 0.9, "the bundled curves have none"
    assert main.run(["simulate", curves, *few[:-3], "0.85"]) is Exit.OK, "it equals the header"


BAD_TARGETS = [
    ("0.9", "TargetWithoutEffect: --target: 0.9 has no effect: the file of late sets its target to 0.85; omit --"),
    ("nan", "InvalidTarget: --target: must be a finite number (got nan), or omit it"),
    ("-1e999", "InvalidTarget: --target: must be a finite number (got -inf)"),
]


@pytest.mark.parametrize("system", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("target", "expected"), BAD_TARGETS, ids=[row[0] for row in BAD_TARGETS])
def test_an_invalid_target(
    target: str, expected: str, system: list[str], curves: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", curves, f"--target={target}", "--policy", "fifo", *system]) is Exit.USAGE
    assert expected in capsys.readouterr().err


LEFT_OUT = [
    (0, ""),
    (1, " 1 of 4 trials is omitted because of incomplete curves; policies are compared on the others."),
    (18, " 18 of 21 trials are omitted because of incomplete curves; policies are"),
]


@pytest.mark.parametrize("system", [[], ["--system"], ["--system", "--jobs", "2"]], ids=["replay", "system", "jobs"])
@pytest.mark.parametrize(("left", "expected"), LEFT_OUT, ids=[str(row[0]) for row in LEFT_OUT])
def test_the_heading_counts_the_omitted_trials(
    left: int, expected: str, system: list[str], curves: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head, rest = Path(curves).read_text().split("\n", 1)
    Path(curves).write_text(json.dumps(json.loads(head) | {"left_out": left}) + "\n" + rest)
    command = ["simulate", curves, "--policy", "fifo", "--seeds", "1", *system]
    assert main.run(command) is Exit.OK
    heading = capsys.readouterr().out.splitlines()[0]
    assert expected in heading
    assert ("incomplete curves" in heading) is bool(left)
    assert main.run([*command, "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["leftOut"] == left


REAL = Path(__file__).parents[1] / "simulator" / "event_files"
WITHOUT_EFFECT = [[], ["lines"], ["table"], ["folder"], ["lines", "table"]]


@pytest.mark.parametrize("named", WITHOUT_EFFECT, ids=["bundled", *(" and ".join(row) for row in WITHOUT_EFFECT[1:])])
@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_a_metric_without_a_tensorboard_folder(
    command: str, named: list[str], curves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables" / "loss.csv"
    table.write_text(TABLE)
    paths = {"lines": curves, "table": str(table), "folder": str(table.parent)}
    job = [str(Path(__file__).parents[3] / "examples" / "digits" / "job.yaml")] if command == "plan" else []
    assert main.run([command, *job, *(paths[name] for name in named), "--metric", "loss"]) is Exit.USAGE
    expected = "MetricWithoutEffect: --metric: loss has no effect without a TensorBoard folder"
    assert expected in capsys.readouterr().err


def test_a_metric_applies_to_tensorboard_runs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    few = ["--policy", "fifo", "--seeds", "1", "--metric", "val_acc", "-o", "json"]
    assert main.run(["simulate", str(REAL / "pytorch"), str(tmp_path / "own.csv"), *few]) is Exit.OK
    assert [found["metric"] for found in json.loads(capsys.readouterr().out)] == ["val_acc", "value"]


ONE = {
    "replay": ([], ": 1 trial on 1 GPU, suspend 4 s"),
    "system": (["--system", "--slots", "1"], ": 1 trial on 1 GPU on 1 node, 1 slot per GPU, suspend 4 s"),
    "jobs": (
        ["--system", "--slots", "1", "--jobs", "2"],
        ": 2 jobs of 2 users, all at once, 1 trial each, on 1 GPU on 1",
    ),
}


@pytest.mark.parametrize(("options", "expected"), ONE.values(), ids=ONE)
def test_singular_and_plural(
    options: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.csv").write_text("trial,step,value,seconds\nonly,0,0.1,0\nonly,1,0.9,10\n")
    few = ["--gpus", "1", "--trials", "1", "--policy", "fifo", "--seeds", "1"]
    assert main.run(["simulate", str(tmp_path / "one.csv"), *few, *options]) is Exit.OK
    shown = capsys.readouterr()
    assert expected in shown.out
    note = "podium: note: one.csv: 1 of 2 evaluations were read; at 0 seconds, before any training: 1\n"
    assert shown.err == note


def test_omitted_runs_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(REAL / "pytorch", tmp_path / "runs")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "events.out.tfevents.1.host").write_bytes(b"no event" * 9)
    few = ["--policy", "fifo", "--seeds", "1", "--metric", "val_acc"]
    assert main.run(["simulate", str(tmp_path / "runs"), *few]) is Exit.OK
    shown = capsys.readouterr()
    assert shown.err == "podium: note: runs: 3 of 4 runs were read; no event could be read of: broken\n"
    assert "note" not in shown.out
