"""`podium warm-start`: results of files become part of a job, or the command says which file does not suit it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import dump_manifests, parse_manifests
from podium_core.schema.validation import problems

Captured = pytest.CaptureFixture[str]
HEADER = {"task": "old", "metric": "acc", "goal": "maximize", "target": None}


def job_file(folder: Path, **spec: Any) -> str:
    given: dict[str, Any] = {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.001, "max": 0.1, "scale": "log"}, {"name": "width", "values": [16, 32]}],
        "search": {"algorithm": "tpe"},
        "trials": {"max": 8, "maxSteps": 10},
        "template": {"spec": {"containers": [{"name": "t", "image": "i:1", "command": ["t", "$(podium.args)"]}]}},
        **spec,
    }
    manifest = {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamJob", "metadata": {"name": "new"}}
    path = folder / "job.yaml"
    path.write_text(dump_manifests([{**manifest, "spec": given}]))
    return str(path)


def lines_file(folder: Path, *trials: dict[str, Any], **header: Any) -> str:
    path = folder / "old.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ({**HEADER, **header}, *trials)))
    return str(path)


def recorded(number: int, *values: float | None, **hparams: Any) -> dict[str, Any]:
    steps = list(range(1, len(values) + 1))
    given = hparams or {"lr": 0.01, "width": 16}
    return {"trial": number, "hparams": given, "seconds": steps, "step": steps, "value": list(values)}


def written(capsys: Captured) -> tuple[list[dict[str, Any]], str]:
    """Return the results in the printed job, which would be accepted, and the notes."""
    shown = capsys.readouterr()
    (job,) = parse_manifests(shown.out)
    assert problems(job) == ()
    return job["spec"]["search"]["warmStart"]["results"], shown.err


def test_trials_of_json_lines_become_results(tmp_path: Path, capsys: Captured) -> None:
    file = lines_file(
        tmp_path,
        recorded(0, 0.2, 0.9, 0.8),
        recorded(1, *[None] * 10),
        recorded(2, *[0.1 * n for n in range(10)], lr=0.02, width=32),
        recorded(3, 0.5, lr=0.5, width=32),
        recorded(4, 0.5, lr=0.05, depth=3),
    )
    assert run(["warm-start", job_file(tmp_path), file]) is Exit.OK
    results, notes = written(capsys)
    assert results == [
        {"parameters": {"lr": 0.01, "width": 16}, "value": 0.9, "step": 3.0, "completed": False},
        {"parameters": {"lr": 0.02, "width": 32}, "value": pytest.approx(0.9), "step": 10.0, "completed": True},
    ]
    assert f"2 of 4 trials of {file} are used. 2 lie outside this search space (3: lr must be" in notes


def test_a_table_counts_by_the_objective_of_the_job(tmp_path: Path, capsys: Captured) -> None:
    table = tmp_path / "old.csv"
    table.write_text("trial,step,value,seconds,lr,width\na,1,0.5,1,0.01,16\na,10,0.3,2,0.01,16\nb,10,0.4,1,0.02,32\n")
    objective = {"metric": "loss", "direction": "minimize"}
    assert run(["warm-start", job_file(tmp_path, objective=objective), str(table)]) is Exit.OK
    results, _ = written(capsys)
    assert [(one["parameters"], one["value"], one["completed"]) for one in results] == [
        ({"lr": 0.01, "width": 16}, 0.3, True),
        ({"lr": 0.02, "width": 32}, 0.4, True),
    ]


def test_of_many_trials_the_best_and_the_latest_are_written(tmp_path: Path, capsys: Captured) -> None:
    trials = [recorded(n, 1.0 - n / 1000, lr=0.001 + n / 10_000, width=16) for n in range(300)]
    listed = {"algorithm": "tpe", "warmStart": {"results": [{"parameters": {"lr": 0.09, "width": 16}, "value": 2.0}]}}
    assert run(["warm-start", job_file(tmp_path, search=listed), lines_file(tmp_path, *trials)]) is Exit.OK
    results, notes = written(capsys)
    assert len(results) == 100
    assert [one["value"] for one in results[:2]] == [2.0, 1.0], "the job's own result counts with the others"
    assert results[-1]["value"] == pytest.approx(0.701)
    assert "100 of 301" in notes
    job = HyperParamJob.model_validate({"metadata": {"name": "new"}, "spec": {}} | _job(tmp_path, results))
    assert job.spec.search.warm_start is not None


def _job(folder: Path, results: list[dict[str, Any]]) -> dict[str, Any]:
    (manifest,) = parse_manifests(Path(job_file(folder)).read_text())
    return {**manifest, "spec": {**manifest["spec"], "search": {"algorithm": "tpe", "warmStart": {"results": results}}}}


@pytest.mark.parametrize(
    ("spec", "header", "words"),
    [
        ({}, {"metric": "loss"}, "WarmStartObjectiveDiffers: {file} has the objective maximize loss, but the job"),
        ({}, {"goal": "minimize"}, "WarmStartObjectiveDiffers: {file} has the objective minimize acc"),
        ({"search": {"algorithm": "random"}}, {}, "WarmStartWithoutLearning: spec.search.algorithm is random"),
        ({"parameters": [{"name": "depth", "values": [1, 2]}]}, {}, "WarmStartWithoutResults: Warm start: 0 of 1"),
        (
            {
                "objective": None,
                "objectives": [{"metric": "acc", "direction": "maximize"}, {"metric": "loss", "direction": "minimize"}],
                "policy": {"name": "pareto"},
            },
            {},
            "WarmStartObjectiveDiffers: the job has several objectives",
        ),
    ],
    ids=["other metric", "other direction", "does not learn", "other parameters", "several objectives"],
)
def test_a_file_that_does_not_suit_the_job(
    tmp_path: Path, capsys: Captured, spec: dict[str, Any], header: dict[str, Any], words: str
) -> None:
    file = lines_file(tmp_path, recorded(0, 0.5), **header)
    given = {name: value for name, value in spec.items() if value is not None}
    path = job_file(tmp_path, **given)
    if "objectives" in given:
        (manifest,) = parse_manifests(Path(path).read_text())
        del manifest["spec"]["objective"]
        Path(path).write_text(dump_manifests([manifest]))
    assert run(["warm-start", path, file]) is Exit.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words.format(file=file) in shown.err


def test_unreadable_files_are_named(tmp_path: Path, capsys: Captured) -> None:
    job = job_file(tmp_path)
    assert run(["warm-start", job, str(tmp_path / "none.csv")]) is Exit.FAILED
    assert "FileUnreadable: " in (said := capsys.readouterr().err)
    assert "none.csv: No such file or directory; name a file of curves" in said
    (tmp_path / "bad.jsonl").write_text("{")
    assert run(["warm-start", job, str(tmp_path / "bad.jsonl")]) is Exit.FAILED
    assert "InvalidCurves: bad.jsonl, line 1: not JSON" in capsys.readouterr().err
    assert run(["warm-start", job, *["a.csv"] * 65]) is Exit.FAILED
    assert "TooManyFiles: 65 files" in capsys.readouterr().err
