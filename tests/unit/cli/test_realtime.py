"""`podium realtime`: tables, verdicts and refusals, without a cluster and without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run

CAMERAS = """
apiVersion: podium.dev/v1alpha1
kind: PeriodicTaskSet
spec:
  gpu: {contexts: 2}
  tasks:
    - {name: gate, network: resnet18, fps: 30}
    - {name: dock, network: resnet18, fps: FPS, deadlineMs: 12}
"""


@pytest.fixture
def cameras(tmp_path: Path) -> Path:
    return tmp_path / "cameras.yaml"


@pytest.mark.parametrize(
    ("fps", "code", "expected"),
    [
        ("60", Exit.OK, "Admitted: task dock fits gpu-0, context 1"),
        ("83", Exit.OK, "tightest"),
        ("-1", Exit.FAILED, ""),
    ],
)
def test_admit(cameras: Path, fps: str, code: Exit, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    cameras.write_text(CAMERAS.replace("FPS", fps))
    assert run(["realtime", "admit", str(cameras)]) is code
    out, err = capsys.readouterr()
    assert expected in out
    assert code is Exit.OK or "InvalidValue: task dock: fps: must be at least 0.001, not -1" in err


def test_admit_refuses_with_numbers_and_a_cure(cameras: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = "".join(f"    - {{name: more-{n}, network: resnet18, fps: 80}}\n" for n in range(6))
    cameras.write_text(CAMERAS.replace("FPS", "60") + tasks)
    assert run(["realtime", "admit", str(cameras)]) is Exit.FAILED
    out = capsys.readouterr().out
    assert "does not fit gpu-0" in out
    assert "would fit." in out


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["admit", "/nowhere/x.yaml"], Exit.NOT_FOUND, "FileUnreadable"),
        (["simulate", "--seconds", "0"], Exit.FAILED, "InvalidValue: --seconds"),
        (["simulate", "--contexts", "2,99"], Exit.FAILED, "InvalidValue: --contexts"),
        (["simulate", "--tasks", "1-5000"], Exit.FAILED, "InvalidValue: --tasks"),
        (["simulate", "--plot", "figures.xyz"], Exit.FAILED, "InvalidValue: --plot"),
        (["simulate", "--oversubscription", "0.5"], Exit.FAILED, "InvalidValue: --oversubscription"),
        (["run", "--tasks", "0"], Exit.FAILED, "InvalidValue: --tasks"),
        (["run", "--fps", "-3"], Exit.FAILED, "InvalidValue: --fps"),
    ],
)
def test_every_refusal_has_a_code_and_a_sentence(
    arguments: list[str], code: Exit, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["realtime", *arguments]) is code
    out, err = capsys.readouterr()
    assert f"podium: {expected}" in err
    assert out == "", "a refusal comes before the first figure"


@pytest.mark.parametrize("arguments", [["simulate", "--tasks", "x"], ["simulate", "--contexts", "a,b"], ["nonsense"]])
def test_usage(arguments: list[str]) -> None:
    assert run(["realtime", *arguments]) is Exit.USAGE


def test_simulate_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "figures.png"
    options = ["--contexts", "3", "--oversubscription", "1.5", "--tasks", "20-21", "--seconds", "1"]
    assert run(["realtime", "simulate", *options, "--plot", str(figure)]) is Exit.OK
    out = capsys.readouterr().out
    assert "| 21 |" in out
    assert "SGPRS 3 contexts x 1.5: no miss up to 21 tasks" in out
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_run_reports_what_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["realtime", "run", "--tasks", "1", "--fps", "2", "--seconds", "1.5", "--policy", "launch-ahead"])
        is Exit.OK
    )
    assert "1 tasks at 2 fps under launch-ahead on cpu" in capsys.readouterr().out


def test_cuda_is_refused_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    from podium_realtime.runtime import cuda

    if cuda.availability().available:
        pytest.skip("there is a GPU here: benchmarks/realtime/bench_realtime.py uses it")
    assert run(["realtime", "run", "--backend", "cuda"]) is Exit.FAILED
    assert "not run: " in capsys.readouterr().err


def test_the_command_line_starts_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("podium_realtime")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "podium_realtime", None)
    assert run(["realtime", "simulate"]) is Exit.USAGE
    assert "ExtraMissing" in capsys.readouterr().err
