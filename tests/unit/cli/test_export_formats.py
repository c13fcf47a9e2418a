"""`podium export --format`: what other tools read, hostile searches, exports that are repeated, and refusals."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from export_folders import HOSTILE, files_below, hostile_search, job_of, saved, trials_of

from podium_cli import main
from podium_cli.exit_codes import Exit
from podium_cli.samples import search_at
from podium_core.logs.event_records import RecordAssembler
from podium_simulator.traces.sources import ReadOptions, read_all

BUILT_IN = ("csv", "tensorboard", "mlflow")  # formats that need no package
OUTPUTS = {"csv": "out.csv", "tensorboard": "out", "mlflow": "out"}


def export(*arguments: str | Path) -> Exit:
    return main.run(["export", *map(str, arguments)])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(folder: Path) -> dict[tuple[str, int], list[float]]:
    """Return the values of a run by tag and step, all of them where there are several."""
    values: dict[tuple[str, int], list[float]] = {}
    for path in sorted(folder.glob("events.*")):
        assembler = RecordAssembler()
        for event in assembler.feed(path.read_bytes()):
            for tag, value in event.values:
                values.setdefault((tag, event.step), []).append(value)
        assert assembler.damaged == ""
        assert assembler.safe == path.stat().st_size
    return values


def test_csv_holds_every_value_of_running_trials_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(40.0)
    path = tmp_path / "digits.csv"
    assert export("--from-files", saved(tmp_path / "saved", objects), "-f", "csv", "-o", path) is Exit.OK
    found = [(row["trial"], float(row["step"]), float(row["value"])) for row in table(path)]
    wanted = [
        (trial["metadata"]["name"], point["step"], point["value"])
        for trial in trials_of(objects)
        for point in trial["status"]["curve"]["points"]
    ]
    assert sorted(found) == sorted(wanted)
    assert {row["phase"] for row in table(path)} > {"Succeeded"} or len({row["phase"] for row in table(path)}) > 1
    assert "params.lr" in table(path)[0]
    assert "trials with" in capsys.readouterr().out


def test_simulate_reads_an_exported_table_and_an_exported_folder(tmp_path: Path) -> None:
    lines, rows, runs = tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "c"
    assert export("--sample", "-o", lines) is Exit.OK
    assert export("--sample", "-f", "csv", "-o", rows) is Exit.OK
    assert export("--curves", lines, "-f", "tensorboard", "-o", runs) is Exit.OK
    (first,) = read_all([lines], ReadOptions())
    (second,) = read_all([rows], ReadOptions())
    curves = {trial.name: (trial.steps, trial.values) for trial in first.trials}
    assert {trial.name: (trial.steps, trial.values) for trial in second.trials} == curves
    (third,) = read_all([runs], ReadOptions())
    assert {trial.name: trial.steps for trial in third.trials} == {name: steps for name, (steps, _) in curves.items()}
    for trial in third.trials:
        assert trial.values == pytest.approx(curves[trial.name][1], rel=1e-6)


def test_a_running_search_is_exported_again_without_doubling(tmp_path: Path) -> None:
    runs, store = tmp_path / "runs", tmp_path / "mlruns"
    sizes: list[int] = []
    for elapsed in (40.0, 40.0, 90.0, 600.0):
        folder = saved(tmp_path / f"saved-{elapsed}-{len(sizes)}", search_at(elapsed))
        assert export("--from-files", folder, "-f", "tensorboard", "-o", runs) is Exit.OK
        assert export("--from-files", folder, "-f", "mlflow", "-o", store) is Exit.OK
        (history,) = [
            path
            for path in store.glob("*/*/metrics/val_acc")
            if (path.parents[1] / "tags" / "mlflow.runName").read_text() == "digits-0"
        ]
        lines = history.read_text().splitlines()
        points = trials_of(search_at(elapsed))[0]["status"]["curve"]["points"]
        assert [line.split()[2] for line in lines] == [f"{point['step']:.0f}" for point in points]
        values = events(runs / "digits-0")
        assert {step for _, step in values} == {int(point["step"]) for point in points}
        assert all(len(found) == 1 for found in values.values())
        sizes.append(sum(len(events(run)) for run in runs.iterdir() if run.is_dir()))
    assert sizes[0] == sizes[1] < sizes[2] < sizes[3]


def test_an_event_file_grows_in_place_so_that_an_open_reader_sees_the_new_values(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert export("--from-files", saved(tmp_path / "a", search_at(40.0)), "-f", "tensorboard", "-o", runs) is Exit.OK
    (path,) = (runs / "digits-0").glob("events.*")
    before, inode = path.read_bytes(), path.stat().st_ino
    with path.open("ab") as file:
        file.write(before[:17])  # an export that was interrupted
    assert export("--from-files", saved(tmp_path / "b", search_at(600.0)), "-f", "tensorboard", "-o", runs) is Exit.OK
    assert path.stat().st_ino == inode
    assert path.read_bytes().startswith(before)
    assert len(events(runs / "digits-0")) == 31


def test_a_curve_that_changed_is_written_again(tmp_path: Path) -> None:
    objects, runs = search_at(600.0), tmp_path / "runs"
    assert export("--from-files", saved(tmp_path / "a", objects), "-f", "tensorboard", "-o", runs) is Exit.OK
    point = trials_of(objects)[0]["status"]["curve"]["points"][4]
    point["value"] = 0.125
    assert export("--from-files", saved(tmp_path / "b", objects), "-f", "tensorboard", "-o", runs) is Exit.OK
    assert events(runs / "digits-0")["val_acc", int(point["step"])] == [0.125]


@pytest.mark.parametrize("form", BUILT_IN)
def test_hostile_names_stay_in_the_folder(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = tmp_path / "one" / "two" / "three"
    inner.mkdir(parents=True)
    folder = saved(tmp_path / "saved", hostile_search())
    outside = files_below(tmp_path)
    assert export("--from-files", folder, "-f", form, "-o", inner / OUTPUTS[form]) is Exit.OK
    mine = (inner / OUTPUTS[form]).relative_to(tmp_path)
    assert all(path == mine or mine in path.parents for path in files_below(tmp_path) - outside)
    assert all(name.isprintable() and len(name) < 150 for path in files_below(inner) for name in path.parts)
    assert capsys.readouterr().out.count("\n") == 1


def test_hostile_values_are_written_as_what_they_are(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", hostile_search())
    assert export("--from-files", folder, "-f", "csv", "-o", tmp_path / "out.csv") is Exit.OK
    rows = table(tmp_path / "out.csv")
    first = [row for row in rows if row["trial"].startswith("../../x\\n")]
    assert math.isnan(float(first[3]["value"]))
    assert first[0]["params.width"] == "9" * 400
    assert first[0]["params.activation"] == HOSTILE.replace("\n", "\\n").replace("\x1b", "\\x1b").replace(
        "\u202e", "\\u202e"
    )
    second = [row for row in rows if row["trial"] == ".."]
    assert second[0]["time"] == ""
    assert float(second[-1]["step"]) == 1e300


def test_mlflow_files_hold_one_line_each(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", hostile_search())
    assert export("--from-files", folder, "-f", "mlflow", "-o", tmp_path / "out") is Exit.OK
    texts = [path.read_text() for kind in ("params", "tags") for path in tmp_path.glob(f"out/*/*/{kind}/*")]
    assert len(texts) > 50
    assert all("\n" not in text and len(text) <= 6000 for text in texts)


def test_values_between_whole_steps_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    for point in trials_of(objects)[0]["status"]["curve"]["points"]:
        point["step"] /= 2
    folder = saved(tmp_path / "saved", objects)
    assert export("--from-files", folder, "-f", "tensorboard", "-o", tmp_path / "out") is Exit.OK
    assert "15 values between whole steps omitted, which --format csv keeps." in capsys.readouterr().out
    assert len(events(tmp_path / "out" / "digits-0")) == 16


@pytest.mark.parametrize("form", [*BUILT_IN, "curves"])
def test_nothing_is_overwritten_without_force(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "there"
    if form in ("csv", "curves"):
        path = kept = tmp_path / ("there.csv" if form == "csv" else "there.jsonl")
    else:
        path.mkdir()
        kept = path / "notes.txt"
    kept.write_text("mine")
    before = files_below(tmp_path)
    assert export("--sample", "-f", form, "-o", path) is Exit.USAGE
    assert "--force" in capsys.readouterr().err
    assert kept.read_text() == "mine"
    assert files_below(tmp_path) == before
    assert export("--sample", "-f", form, "-o", path, "--force") is Exit.OK
    assert (kept.read_text() == "mine") is path.is_dir()


def test_a_folder_of_another_search_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    job_of(objects)["metadata"]["uid"] = "another"
    assert export("--sample", "-f", "mlflow", "-o", tmp_path / "out") is Exit.OK
    folder = saved(tmp_path / "saved", objects)
    assert export("--from-files", folder, "-f", "mlflow", "-o", tmp_path / "out") is Exit.USAGE
    assert "FolderInUse: --output: " in capsys.readouterr().err
    assert export("--from-files", folder, "-f", "mlflow", "-o", tmp_path / "out", "--force") is Exit.OK
    assert len(list((tmp_path / "out").glob("*/meta.yaml"))) == 2


def test_an_error_leaves_no_incomplete_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    trials_of(objects)[5]["spec"]["parameters"]["dropout"] = 0.5
    folder = saved(tmp_path / "saved", objects)
    assert export("--from-files", folder, "-f", "csv", "-o", tmp_path / "out.csv") is Exit.FAILED
    assert "ParameterUnknown: trial digits-5: its parameter dropout" in capsys.readouterr().err
    assert files_below(tmp_path) == {path for path in files_below(tmp_path) if path.parts[0] == "saved"}


def test_two_trials_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "two.jsonl"
    trial = {"trial": "a", "seconds": [1.0], "value": [0.5]}
    header = {"task": "t", "metric": "m", "goal": "maximize"}
    lines.write_text("\n".join(map(json.dumps, (header, trial, trial))))
    assert export("--curves", lines, "-f", "mlflow", "-o", tmp_path / "out") is Exit.FAILED
    assert "TrialNameAmbiguous: two trials have the name a;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sample", "--curves", "x.jsonl"], "SourceAmbiguous: --curves"),
        (["-f", "csv"], "JobNameRequired: name the job, or give --from-files, --curves or --sample"),
        (["--curves", "missing.jsonl", "-f", "csv"], "FileUnreadable: missing.jsonl"),
        (["--sample", "-f", "csv", "-o", "/proc/x.csv"], "FileNotWritten: /proc/"),
        (["--sample", "-f", "mlflow", "-o", "/proc/x"], "FileNotWritten: /proc/x"),
    ],
)
def test_refusals_name_the_field_and_the_cure(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(*arguments) is not Exit.OK
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("form", "module"), [("parquet", "pyarrow"), ("wandb", "wandb")])
def test_a_missing_package_is_named(
    form: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    assert export("--sample", "-f", form, "-o", tmp_path / "out") is Exit.USAGE
    assert f"pip install 'kube-podium[{form}]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
