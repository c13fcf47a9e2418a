"""`podium plan JOB.yaml`: a forecast of our own example, its JSON, what it assumes, and every no with its sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exits import Exit

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
QUICK = ["--gpus", "2", "--nodes", "2", "--seeds", "2", "--step-seconds", "0.75"]


def curve(*values: float, gap: float = 10.0) -> str:
    seconds = [gap * (place + 1) for place in range(len(values))]
    steps = [place + 1 for place in range(len(values))]
    return json.dumps({"trial": "t", "hparams": {}, "seconds": seconds, "value": values, "step": steps})


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """One curve of 40 steps of 10 s: every trial is the same, so the forecast can be worked out by hand."""
    path = tmp_path / "own.jsonl"
    header = {"task": "own", "metric": "val_acc", "goal": "maximize", "target": None}
    path.write_text(json.dumps(header) + "\n" + curve(*[k / 40 for k in range(1, 41)]) + "\n", encoding="utf-8")
    return path


def test_the_example_is_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), *QUICK]) is Exit.OK
    out = capsys.readouterr().out
    assert out.startswith(
        "digits: 12 trials under hermes, forecast from 2 simulated searches on curves of digits_example"
    )
    for row in (
        "all done after",
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


def test_the_figures_by_hand(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12 equal trials of 400 s + 1 s to load on 2 GPUs, nothing to gain by switching: 6 in a row on each."""
    command = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1", "-o", "json", "--suspend", "0"]
    assert main.run([*command, "--resume", "0"]) is Exit.OK
    (search,) = json.loads(capsys.readouterr().out)["searches"]
    for policy in ("own", "fifo"):
        assert search[policy]["reason"] == "AllTrialsEnded"
        assert search[policy]["gpuHours"] == pytest.approx(12 * 401.0 / 3600.0)
        assert search[policy]["endSeconds"] == pytest.approx(6 * 401.0, abs=5.0), "and a pod's way to its gate"
        assert search[policy]["best"] == 1.0
    assert search["fifo"]["suspensions"] == 0


def test_memory_makes_it_longer(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial wants 4Gi: on a GPU of 4Gi each pod waits for the one before to end, and its way to the gate shows."""
    ends = []
    for size in ("4Gi", "64Gi"):
        command = ["plan", str(JOB), str(curves), "--gpus", "2", "--seeds", "1", "-o", "json", "--gpu-memory", size]
        assert main.run(command) is Exit.OK
        ends.append(json.loads(capsys.readouterr().out)["searches"][0]["fifo"]["endSeconds"])
    assert ends[0] > ends[1]


NOS = [
    (["--step-seconds", "0"], "BadTime: --step-seconds: 0 is no time"),
    (["--gpu-memory", "much"], "BadSize: --gpu-memory:"),
    (["--shares", "0"], "TooFew: --shares: 0 is too few"),
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


@pytest.mark.parametrize(("options", "told"), NOS, ids=[row[1][:8] for row in NOS])
def test_every_no_names_its_cure(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), *options]) is Exit.USAGE
    assert told in capsys.readouterr().err


def test_a_file_without_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("kind: Pod\n")
    assert main.run(["plan", str(path)]) is Exit.FAILED
    assert "NotOneJob" in capsys.readouterr().err
