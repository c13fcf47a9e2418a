"""podium.trial, the file that users' scripts carry: it stands alone, and a kill at any moment leaves a whole save."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from trial_process import SOURCE, end, names, run, whole, write

from podium import trial
from podium_core.logs.line_reader import ParsedLine, line_reader
from podium_core.schema.job import Direction
from podium_core.schema.metrics.config import MetricsConfig

pytestmark = pytest.mark.usefixtures("fresh")

PYTHONS = [
    sys.executable,  # and the others that this machine has, from 3.8 on
    *(str(p) for p in Path.home().glob(".pyenv/versions/3.*/bin/python") if int(p.parts[-3].split(".")[1]) >= 8),
]
PARAMETERS = {"lr": 0.1, "layers": 2, "act": "relu", "nesterov": False, "batch_size": 64}


def test_the_helper_is_one_file_that_needs_only_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parts[-3])
def test_the_helper_works_in_old_python_versions(python: str, mounted: str, tmp_path: Path) -> None:
    code = """
print(trial.params({"lr": 0.1}, ["--lr=0.5"]))
made = trial.save(3, lambda folder: (folder / "x").write_text("state"))
assert trial.load() == made and not trial.stopping() and not trial.should_save()
trial.report(step=3, loss=float("inf"))
"""
    out = end(run(code, python=python, PODIUM_PYTHON=mounted, PODIUM_CHECKPOINT=str(tmp_path)))
    assert out.splitlines() == ["{'lr': 0.5}", '{"step": 3, "loss": "inf"}']


@pytest.mark.parametrize(
    ("defaults", "argv", "podium", "want"),
    [
        (PARAMETERS, [], None, PARAMETERS),
        (PARAMETERS, ["--lr=1e-3", "--layers", "4", "--act=tanh"], None, {"lr": 1e-3, "layers": 4, "act": "tanh"}),
        (PARAMETERS, ["--batch-size=8", "--nesterov", "--epochs=3", "x"], None, {"batch_size": 8, "nesterov": True}),
        (PARAMETERS, ["--nesterov", "true", "--lr", "-1"], None, {"nesterov": True, "lr": -1.0}),
        (PARAMETERS, ["--nesterov=0", "--act", "1"], None, {"act": "1"}),
        (PARAMETERS, ["--lr=9"], {"lr": 0.25, "nesterov": True}, {"lr": 0.25, "nesterov": True}),
        ({}, ["--lr=9", "--act=relu", "--layers", "3"], None, {"lr": 9, "act": "relu"}),
        ({}, [], {"lr": 0.25, "act": "gelu"}, {"lr": 0.25, "act": "gelu"}),
        ({"size": None}, ["--size=3"], None, {"size": 3}),
    ],
)
def test_params(
    monkeypatch: pytest.MonkeyPatch, defaults: dict[str, Any], argv: list[str], podium: Any, want: dict[str, Any]
) -> None:
    if podium is not None:
        monkeypatch.setenv("PODIUM_PARAMS", json.dumps(podium))
    assert trial.params(defaults, argv) == {**defaults, **want}


@pytest.mark.parametrize(
    ("argv", "podium", "says"),
    [
        (["--layers=3.5"], "", "InvalidValue: --layers=3.5 is not of type int; use a value such as 2"),
        (["--nesterov=perhaps"], "", "InvalidValue: --nesterov=perhaps is not of type bool"),
        (["--lr"], "", "InvalidValue: --lr=-- is not of type float"),
        ([], "[1]", "InvalidParams: PODIUM_PARAMS is not a JSON object"),
    ],
)
def test_wrong_parameters_are_refused(monkeypatch: pytest.MonkeyPatch, argv: list[str], podium: str, says: str) -> None:
    monkeypatch.setenv("PODIUM_PARAMS", podium)
    with pytest.raises(ValueError, match=says):
        trial.params(PARAMETERS, argv)


class Scalar:
    """Numpy's, torch's and jax's numbers look like this."""

    def item(self) -> float:
        return 0.25


def test_reported_values_are_read_exactly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PODIUM_STEP_KEY", "epoch")
    read = line_reader(MetricsConfig(metric="acc", direction=Direction.MAXIMIZE, step_key="epoch", container="main"))
    for step, value in enumerate([0.1 + 0.2, Scalar(), math.inf, -math.inf, 1]):
        trial.report(step=step, acc=value, note="fine")
    trial.report(step=5, acc=math.nan)
    trial.report(step=6, loss=1.0)
    *lines, nan, other = [read(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [[ParsedLine(step, value)] for step, value in enumerate([0.1 + 0.2, 0.25, math.inf, -math.inf, 1])]
    assert nan[0].value is not None
    assert math.isnan(nan[0].value)
    assert other == []


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "PODIUM_RANK"])
def test_other_ranks_neither_report_nor_save_but_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, variable: str
) -> None:
    for name in ("RANK", "LOCAL_RANK", "PODIUM_RANK"):
        monkeypatch.setenv(name, "0")
    made = trial.save(1, write("one"))
    monkeypatch.setenv(variable, "1")
    trial.report(step=2, acc=0.5)
    assert trial.save(2, write("two")) is None
    assert trial.mark(2, folder / "step-1") is None
    assert capsys.readouterr().out == ""
    assert trial.load() == made
    assert names(folder) == ["podium-checkpoint.json", "step-1"]


def test_without_a_folder_nothing_is_saved() -> None:
    assert trial.load() is None
    assert trial.save(1, lambda folder: pytest.fail("called")) is None
    assert trial.mark(1, "/tmp") is None
    assert trial.should_save() is False


def test_a_checkpoint_is_loaded_and_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert trial.load() is None
    monkeypatch.setenv("PODIUM_CHECKPOINT_KEEP", "2")
    for step in (1, 2, 3):
        assert trial.save(step, write(str(step))) == (step, folder / f"step-{step}")
    (folder / "mine.txt").write_text("not a save")
    assert whole(trial.load()) == (3, "3")
    trial.save(3, write("3 again"))  # the marker names step-3 until the new one is whole
    assert whole(trial.load()) == (3, "3 again")
    trial.save(1, write("restarted"))  # a trial that started from scratch saves step 1 after step 3
    assert whole(trial.load()) == (1, "restarted")
    assert names(folder) == ["mine.txt", "podium-checkpoint.json", "step-1", "step-3-2"]


def test_the_completion_marker_has_the_form_that_the_agent_reads(folder: Path) -> None:
    trial.save(12, write("x"))
    assert json.loads((folder / trial.MARKER).read_text()) == {"step": 12, "path": "step-12", "onRequest": False}
    trial.should_save()
    trial.save(12.5, write("x"))
    assert json.loads((folder / trial.MARKER).read_text()) == {"step": 12.5, "path": "step-12.5", "onRequest": True}


def test_the_next_checkpoint_answers_a_request(folder: Path) -> None:
    trial.save(1, write("1"))
    assert not trial.should_save()
    (folder / trial.REQUEST).touch()
    assert trial.should_save()
    trial.save(2, write("2"))
    assert not trial.should_save()
    assert not (folder / trial.REQUEST).exists()


def test_a_checkpoint_of_a_framework_can_be_marked(folder: Path) -> None:
    for step in (10, 20):
        (folder / f"step-{step}.ckpt").parent.mkdir(exist_ok=True)
        (folder / f"step-{step}.ckpt").write_text(str(step))
        trial.mark(step, str(folder / f"step-{step}.ckpt"))
    (folder / "checkpoint-30").mkdir()
    assert trial.mark(30, folder / "checkpoint-30") == trial.load() == (30, folder / "checkpoint-30")
    assert names(folder) == ["checkpoint-30", "podium-checkpoint.json"]


@pytest.mark.parametrize("marked", ["step-2/model.ckpt", "step-2", "."])
def test_a_marked_checkpoint_is_not_removed(folder: Path, marked: str) -> None:
    for step in (1, 2):
        (folder / f"step-{step}").mkdir(parents=True)
        (folder / f"step-{step}" / "model.ckpt").write_text(str(step))
    assert trial.mark(2, folder / marked) == trial.load() == (2, folder / marked)
    assert (folder / "step-2" / "model.ckpt").read_text() == "2"
    assert (folder / "step-1").exists() == (marked == "."), "older checkpoints are removed if they can be recognised"


@pytest.mark.parametrize("where", ["/tmp", "../elsewhere", "missing"])
def test_a_marked_path_must_exist_in_the_folder(folder: Path, where: str) -> None:
    trial.save(1, write("1"))
    with pytest.raises(ValueError, match="InvalidCheckpoint"):
        trial.mark(2, folder / where)
    assert whole(trial.load()) == (1, "1")


@pytest.mark.parametrize("step", [-1, math.nan, math.inf, True, "three", None])
def test_a_step_must_be_a_number_of_at_least_0(folder: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="InvalidStep"):
        trial.save(step, write("x"))


@pytest.mark.parametrize(
    ("marker", "want"),
    [
        ("7", (7, ".")),
        ("7.5\n", (7.5, ".")),
        ('{"step": 7}', (7, ".")),
        ('{"step": 7.0, "path": "a"}', (7, "a")),
        ('{"step": 7, "path": "a", "by": "someone"}', (7, "a")),
        ('{"step": 7, "path": "gone"}', None),
        ('{"step": 7, "path": "../a"}', None),
        ('{"step": 7, "path": "/tmp"}', None),
        ('{"step": 7, "path": 3}', None),
        ('{"step": true}', None),
        ('{"step": -1}', None),
        ('{"step": NaN}', None),
        ('{"path": "a"}', None),
        ("[7]", None),
        ('{"step": 7', None),
        ("", None),
        ("[" * 4000, None),
        ('{"step": 7, "by": "' + "x" * 4096 + '"}', None),
    ],
)
def test_only_a_complete_marker_is_valid(folder: Path, marker: str, want: tuple[float, str] | None) -> None:
    (folder / "a").mkdir(parents=True)
    (folder / trial.MARKER).write_text(marker)
    assert trial.load() == (None if want is None else (want[0], folder / want[1]))


def test_a_write_that_fails_changes_nothing(folder: Path) -> None:
    trial.save(1, write("1"))
    before = names(folder)

    def full(where: Path) -> None:
        (where / "weights").write_text("half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        trial.save(2, full)
    assert names(folder) == before
    (folder / (trial.MARKER + trial.ASIDE)).mkdir()  # the marker cannot be written either
    with pytest.raises(OSError, match="Is a directory"):
        trial.save(2, write("2"))
    assert whole(trial.load()) == (1, "1")
    assert "step-2" not in names(folder)


def test_threads_do_not_interfere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(20):
                trial.report(step=step, acc=number, filling="x" * 500)
                trial.stopping()  # of no effect outside of the main thread
                if step % 5 == 0:
                    trial.save(step, write(f"{number}"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 120
    whole(trial.load())
    assert len(names(folder)) == 2


def test_a_copy_of_the_helper_sends_reports_with_the_agents_module(tmp_path: Path) -> None:
    """A script may bring a copy of the helper alone; the module that sends reports is in the agent's folder."""
    copy, agent = tmp_path / "podium", tmp_path / "agent" / "podium"
    for folder in (copy, agent):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (copy / "trial.py").write_bytes(SOURCE.read_bytes())
    (agent / "push.py").write_text("def push(path, text): print(path, text)\n")
    environment = {"PODIUM_PYTHON": str(tmp_path / "agent"), "PODIUM_METRICS_SOCKET": "/a.sock"}
    script = "from podium import trial; trial.report(step=1, acc=0.5); trial.report(step=2, acc=0.75)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.splitlines() == ['/a.sock {"step": 1, "acc": 0.5}', '/a.sock {"step": 2, "acc": 0.75}']
