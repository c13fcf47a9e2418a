"""`podium plan JOB.yaml`: a forecast of the example, its JSON, its assumptions, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
QUICK = ["--gpus", "2", "--nodes", "2", "--seeds", "2", "--step-seconds", "0.75"]
SLOW = [*QUICK[:-1], "10"]  # long enough for a new pod to be worth its cost


def curve(*values: float, gap: float = 10.0) -> str:
    seconds = [gap * (place + 1) for place in range(len(values))]
    steps = [place + 1 for place in range(len(values))]
    return json.dumps({"trial": "t", "hparams": {}, "seconds": seconds, "value": values, "step": steps})


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """One curve of 40 steps of 10 s. All trials are equal, so the forecast can be computed by hand."""
    path = tmp_path / "own.jsonl"
    header = {"task": "own", "metric": "val_acc", "goal": "maximize", "target": None}
    path.write_text(json.dumps(header) + "\n" + curve(*[k / 40 for k in range(1, 41)]) + "\n", encoding="utf-8")
    return path


def test_the_example_is_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), *QUICK]) is Exit.OK
    out = capsys.readouterr().out
    assert out.startswith(
        "digits: 12 trials under envelope, forecast from 2 simulated searches on curves of digits_example"
    )
    for row in (
        "job ends after",
        "within 1 % of the best after",
        "GPU hours",
        "suspensions",
        "best after 50% of the time",
    ):
        assert f"\n{row}" in out
    assert (
        "- trials learn like random ones of 48 curves of digits_example (val_acc), stretched to 40 steps of 0.75 s"
        in out
    )
    assert "- the values are those of these curves, not of your search" in out


def test_a_forecast_of_one_trial(curves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, ("max: 12, parallel: 8", "max: 1"))
    assert main.run(["plan", str(path), str(curves), "--gpus", "1", "--seeds", "1"]) is Exit.OK
    assert capsys.readouterr().out.startswith(
        "digits: 1 trial under envelope, forecast from 1 simulated search on curves"
    )


def test_figures_that_are_known_by_hand(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12 equal trials of 400 s + 1 s to load on 2 GPUs, no gain from a switch: 6 consecutive trials on each."""
    command = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1", "-o", "json", "--suspend", "0"]
    assert main.run([*command, "--resume", "0"]) is Exit.OK
    (search,) = json.loads(capsys.readouterr().out)["searches"]
    for policy in ("own", "fifo"):
        assert search[policy]["reason"] == "AllTrialsEnded"
        assert search[policy]["gpuHours"] == pytest.approx(12 * 401.0 / 3600.0)
        assert search[policy]["endSeconds"] == pytest.approx(6 * 401.0, abs=5.0), "plus the start of a pod"
        assert search[policy]["best"] == 1.0
    assert search["fifo"]["suspensions"] == 0


def test_curves_with_omitted_trials(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, rest = curves.read_text().split("\n", 1)
    curves.write_text(json.dumps(json.loads(head) | {"left_out": 3}) + "\n" + rest)
    command = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1"]
    assert main.run(command) is Exit.OK
    expected = "(val_acc, larger is better). 3 of 4 trials are omitted because of incomplete curves; the"
    assert f"{expected} forecast is made from the others.\n" in capsys.readouterr().out
    assert main.run([*command, "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)["leftOut"] == 3


def test_the_reason_for_the_end_is_shown(curves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [str(curves), "--gpus", "2", "--seeds", "2"]
    assert main.run(["plan", str(JOB), *plan]) is Exit.OK
    assert "\nended by AllTrialsEnded; under fifo by AllTrialsEnded\n" in capsys.readouterr().out
    path = changed(tmp_path, ("direction: maximize", "direction: maximize, target: 0.5"))
    assert main.run(["plan", str(path), *plan]) is Exit.OK
    assert "\nended by TargetReached; under fifo by TargetReached\n" in capsys.readouterr().out


def test_reasons_that_differ_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of three samples have a trial that reaches the target."""
    path = changed(tmp_path, ("direction: maximize", "direction: maximize, target: 0.82"))
    assert main.run(["plan", str(path), "--gpus", "2", "--seeds", "3", "--step-seconds", "0.75"]) is Exit.OK
    assert "under fifo by TargetReached (2), AllTrialsEnded (1)\n" in capsys.readouterr().out


def test_a_deadline_that_has_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = "spec:\n  budget: {{deadline: '{}'}}\n"
    path = changed(tmp_path, ("spec:\n  objective", budget.format("2020-01-31T12:00:00+02:00") + "  objective"))
    assert main.run(["plan", str(path), *QUICK]) is Exit.FAILED
    expected = "spec.budget.deadline: 2020-01-31 10:00 UTC has passed, so the job would end at once; set a later one"
    assert expected in capsys.readouterr().err
    path.write_text(path.read_text().replace("2020", "9020"))
    assert main.run(["plan", str(path), *QUICK]) is Exit.OK


def test_memory_makes_it_longer(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial needs 4Gi. On a GPU of 4Gi each pod starts after the end of the previous one, which takes longer."""
    ends = []
    for size in ("4Gi", "64Gi"):
        command = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1", "-o", "json", "--gpu-memory", size]
        assert main.run(command) is Exit.OK
        ends.append(json.loads(capsys.readouterr().out)["searches"][0]["fifo"]["endSeconds"])
    assert ends[0] > ends[1]


def changed(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """Return the example's job with these texts replaced."""
    text = JOB.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


def test_a_job_that_requests_a_product_is_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, ("memory: 4Gi}", "memory: 4Gi, products: [NVIDIA H100]}"))
    assert main.run(["plan", str(path), *QUICK]) is Exit.OK
    assert "- the GPUs are of a product that the job takes (NVIDIA H100)" in capsys.readouterr().out


def test_a_grid_has_as_many_trials_as_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two values of each of three parameters, 1 width: 8 trials, though the job allows 12."""
    path = changed(
        tmp_path,
        ("min: 1e-3, max: 0.5, scale: log", "values: [0.1, 0.2]"),
        ("type: int, min: 16, max: 96, step: 16", "values: [16]"),
        ("[16, 32, 64, 128]", "[16, 32]"),
        ("algorithm: random, seed: 7", "algorithm: grid"),
    )
    assert main.run(["plan", str(path), *QUICK]) is Exit.OK
    assert capsys.readouterr().out.startswith("digits: 8 trials under envelope")


def test_an_adaptive_search_creates_its_trials_late_in_a_forecast_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last trial waits behind another while a GPU is idle. Trials that exist from the start are spread evenly."""
    ends = []
    for algorithm in ("random", "tpe"):
        path = changed(tmp_path, ("algorithm: random", f"algorithm: {algorithm}"), ("parallel: 8", "parallel: auto"))
        assert main.run(["plan", str(path), *QUICK, "-o", "json"]) is Exit.OK
        ends.append(json.loads(capsys.readouterr().out)["searches"][0]["fifo"]["endSeconds"])
    assert ends[0] < ends[1]


METHODS = [
    ("freeze", "- a suspension takes 0.2 s, a resumption 0.2 s (freeze, on every node)"),
    (
        "cuda-checkpoint",
        "- a suspension takes 2.15 s, a resumption 0.88 s (cuda-checkpoint, on every node: 4.3 GB at 2 GB/s out and",
    ),
    ("app-checkpoint", "- a trial releases its GPU with a checkpoint (1 s) and continues in another pod"),
]


@pytest.mark.parametrize(("method", "expected"), METHODS, ids=[row[0] for row in METHODS])
def test_the_suspension_method_is_the_one_of_the_job(
    method: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path, ("methods: [freeze]", f"methods: [{method}]"))
    assert main.run(["plan", str(path), *SLOW]) is Exit.OK
    out = capsys.readouterr().out
    assert expected in out
    counted = "checkpoints" if method == "app-checkpoint" else "suspensions"
    counts = next(line for line in out.splitlines() if line.startswith(counted))
    assert counts.split()[1] != "0"


def test_a_checkpoint_takes_the_given_time_and_a_new_pod_has_no_resumption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path, ("methods: [freeze]", "methods: [app-checkpoint]"))
    shares = []
    for seconds in ("0", "30"):
        assert main.run(["plan", str(path), *SLOW, "-o", "json", "--suspend", seconds]) is Exit.OK
        searches = [search["own"] for search in json.loads(capsys.readouterr().out)["searches"]]
        assert all(search["checkpoints"] > 0 == search["suspensions"] for search in searches)
        shares.append(sum(search["overheadShare"] for search in searches))
    assert shares[0] < shares[1], "a checkpoint costs time on the GPU"
    assert main.run(["plan", str(path), *QUICK, "--resume", "1"]) is Exit.USAGE
    assert "ResumeUnused: --resume: 1 has no effect, because a trial continues in a new pod" in capsys.readouterr().err


def test_given_times_take_precedence_over_measured_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, ("methods: [freeze]", "methods: [cuda-checkpoint]"), ("memory: 4Gi", "memory: 64Gi"))
    ends = []
    for options, expected in (
        ([], "a suspension takes 34.36 s, a resumption 14.02 s (cuda-checkpoint, on every node: 68.7 GB at 2 GB/s out"),
        ([], "4.9 GB/s in, 0.39 s at least, as measured on one H100; override with --suspend, --resume)\n"),
        (["--suspend", "3"], "takes 3 s, a resumption 14.02 s (cuda-checkpoint, on every node: 68.7 GB at 4.9 GB/s in"),
        (["--suspend", "3", "--resume", "0"], "takes 3 s, a resumption 0 s (cuda-checkpoint, on every node)\n"),
    ):
        assert main.run(["plan", str(path), *QUICK, *options]) is Exit.OK
        out = capsys.readouterr().out
        assert expected in out
        assert "carried" not in out
        ends.append(next(line for line in out.splitlines() if line.startswith("share of them not training")))
    assert len(set(ends)) == 3, "the cost of a switch matters"


ALIVE = "methods: [cuda-checkpoint, container-checkpoint]"
DRAIN = ["--drain", "node-1@200"]
# a trial declares 4Gi: 2 s + 4 * 35 s
MIGRATIONS = [
    (ALIVE, [], "- no trial migrates live to another node, as no node drains (--drain names nodes and times)", 0),
    (ALIVE, DRAIN, "- a live migration to another node takes 142 s, as measured", 1),
    ("methods: [cuda-checkpoint]", DRAIN, "- node-1 takes no trials from 200 s on\n", 0),
    (
        "methods: [freeze, cuda-checkpoint, container-checkpoint]",
        DRAIN,
        "- no trial migrates live to another node: freeze leaves its memory on the GPU",
        0,
    ),
]


@pytest.mark.parametrize(
    ("methods", "options", "expected", "least"), MIGRATIONS, ids=["no drain", "migrated", "not allowed", "frozen"]
)
def test_whether_trials_are_migrated_live(
    methods: str,
    options: list[str],
    expected: str,
    least: int,
    curves: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(tmp_path, ("methods: [freeze]", methods))
    command = ["plan", str(path), str(curves), "--gpus", "2", "--nodes", "2", "--slots", "8", "--seeds", "1", *options]
    assert main.run(command) is Exit.OK
    out = capsys.readouterr().out
    assert expected in out
    assert ("\nlive migrations" in out) is bool(least)
    assert main.run([*command, "-o", "json"]) is Exit.OK
    (search,) = json.loads(capsys.readouterr().out)["searches"]
    assert search["fifo"]["migrations"] >= least
    assert bool(search["fifo"]["migrations"]) is bool(least)
    assert search["fifo"]["best"] == search["own"]["best"] == 1.0, "no work is lost"


def test_faults_are_shown_and_cost_time(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trials take 400 s and faults come about every 1,800 s, so some trials restart."""
    plan = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1"]
    hours = {}
    for options, expected in (
        (
            [],
            "- no node fails, no pod is lost, no trial's process ends in an error of its own, no node's agent falls",
        ),
        (["--agent-silent", "0.1"], "- a node's agent falls silent each 0.1 hours (mean)\n- no node fails,"),
        (["--drain", "node-0@60-1800"], "- node-0 takes no trials from 60 s until 1800 s\n"),
        (["--pod-fails", "0.5"], "- a pod is lost each 0.5 hours (mean)\n- no node fails, no trial's process ends"),
        (
            ["--crashes", "0.5"],
            "- a trial's process ends in an error of its own each 0.5 hours (mean)\n- no node fails,",
        ),
    ):
        assert main.run([*plan, *options]) is Exit.OK
        out = capsys.readouterr().out
        assert expected in out
        row = next(line for line in out.splitlines() if line.startswith("GPU hours"))
        hours["".join(options[:1])] = float(row.split()[2])
    assert min(hours["--pod-fails"], hours["--crashes"]) > hours[""]


REFUSALS = [
    (["--gpus", "99999999999"], "TooMany: --gpus: must be at most 10000 (got 99999999999)"),
    (["--step-seconds", "1e300"], "InvalidTime: --step-seconds: must be greater than 0 and at most 86400 (got 1e+300)"),
    (["--step-seconds", "0"], "InvalidTime: --step-seconds: must be greater than 0"),
    (["--step-seconds", "inf"], "InvalidTime: --step-seconds: must be greater than 0"),
    (["--gpu-memory", "much"], "InvalidSize: --gpu-memory:"),
    (["--pod-fails", "nan"], "InvalidTime: --pod-fails: must be greater than 0 hours (got nan)"),
    (["--crashes", "-1"], "InvalidTime: --crashes: must be greater than 0 hours (got -1)"),
    (["--agent-silent", "0"], "InvalidTime: --agent-silent: must be greater than 0 hours (got 0)"),
    (["--telemetry", "nan"], "InvalidTime: --telemetry: must be 0 to 3600 seconds (got nan)"),
    (
        ["--drain", "node-0"],
        "InvalidDrain: --drain: must be NODE@SECONDS or NODE@SECONDS-SECONDS (got 'node-0'); example",
    ),
    (["--drain", "node-1@60"], "UnknownNode: --drain: node node-1 does not exist; the nodes are node-0 (--nodes)"),
    (
        ["--drain", "node-0@60-60"],
        "InvalidTime: --drain: node-0@60-60 ends before it starts; give a later second after",
    ),
    (["--gpus", "2", "--nodes", "5"], "TooManyNodes: --nodes: every node needs a GPU (got 5 nodes for 2 GPUs)"),
    (["--slots", "0"], "TooFew: --slots: must be at least 1 (got 0)"),
]


def test_curves_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = {"task": "own", "metric": "loss", "goal": "minimize", "target": None}
    path = tmp_path / "loss.jsonl"
    path.write_text(json.dumps(header) + "\n" + curve(0.5, 0.4) + "\n", encoding="utf-8")
    assert main.run(["plan", str(JOB), str(path)]) is Exit.FAILED
    assert "a smaller loss is better in these curves and worse in the job" in capsys.readouterr().err
    header["goal"] = "maximize"
    path.write_text(json.dumps(header) + "\n" + curve(*[0.5] * 41) + "\n", encoding="utf-8")
    assert main.run(["plan", str(JOB), str(path)]) is Exit.FAILED
    assert "the longest curve has 41 steps, the job's trials.maxSteps is 40" in capsys.readouterr().err


STRETCHED = [
    ([0.0], 40, "the last step of its longest curve is 0: nothing to stretch to the job's trials.maxSteps; give steps"),
    ([5e-324], 40, "its longest curve ends at step 4.94066e-324, too close to 0 to be stretched to 40 steps; give"),
    ([1.0], 1e18, "1e+18 steps (trials.maxSteps) of 1 s each are more than three years; give 1e+08 seconds at most"),
]


@pytest.mark.parametrize(("steps", "most", "expected"), STRETCHED, ids=["none", "tiny", "long"])
def test_curves_that_cannot_be_stretched(
    steps: list[float], most: float, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would divide by 0 or never end: at 1e18 s a 64-bit float cannot represent a second."""
    header = {"task": "own", "metric": "val_acc", "goal": "maximize"}
    trial = {"trial": "a", "seconds": [10.0], "step": steps, "value": [0.5]}
    path, job = tmp_path / "own.jsonl", tmp_path / "job.yaml"
    path.write_text(f"{json.dumps(header)}\n{json.dumps(trial)}\n", encoding="utf-8")
    job.write_text(JOB.read_text(encoding="utf-8").replace("maxSteps: 40", f"maxSteps: {most:g}"), encoding="utf-8")
    assert main.run(["plan", str(job), str(path), "--step-seconds", "1"]) is Exit.FAILED
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("options", "expected"), REFUSALS, ids=[" ".join(row[0]) for row in REFUSALS])
def test_every_refusal_names_its_cure(options: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), *options]) is Exit.USAGE
    assert expected in capsys.readouterr().err


NEVER = [
    (["--gpu-memory", "1Gi"], "a trial needs 4294967296 bytes on a GPU (gpus.memory), a GPU has 1073741824"),
    (["--pod-fails", "0.000001"], "digits has not ended (8 trials left)"),
    (["--node-fails", "0.0001"], "digits has not ended (8 trials left); do its trials fit a node, and do nodes live"),
]


@pytest.mark.parametrize(("options", "expected"), NEVER, ids=[row[0][0] for row in NEVER])
def test_a_job_that_would_never_end(options: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), "--step-seconds", "1", "--seeds", "1", *options]) is Exit.FAILED
    assert expected in capsys.readouterr().err


def test_the_job_names_the_direction_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "loss.csv"
    table.write_text("trial,step,value,seconds\na,1,0.5,10\na,2,0.25,20\n", encoding="utf-8")
    path = changed(tmp_path, ("direction: maximize", "direction: minimize"))
    assert main.run(["plan", str(path), str(table), "--seeds", "1", "-o", "json"]) is Exit.OK
    assert json.loads(capsys.readouterr().out)["searches"][0]["own"]["best"] == 0.25
    assert main.run(["plan", str(path), str(table), "--goal", "maximize"]) is Exit.FAILED
    assert "name other curves, or for CSV and TensorBoard the right --goal" in capsys.readouterr().err


def test_a_file_without_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("kind: Pod\n")
    assert main.run(["plan", str(path)]) is Exit.FAILED
    assert "SingleJobRequired" in capsys.readouterr().err
