"""What commands show of a saved search, without a cluster: reports, sort orders, explanations."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from podium_cli import samples
from podium_cli.commands.thaw import suspended_trials
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.objects import snapshot_of
from podium_cli.views.explain import lines as explanation
from podium_cli.views.trials import ORDERS
from podium_core.domain.migration import MigrationPhase
from podium_core.schema.trial import Migration, WorkerStatus


def test_sample_report_and_summary_need_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "sample.html"
    assert run(["report", "--sample", "-o", str(output)]) is Exit.OK
    assert output.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run(["summary", "--sample"]) is Exit.OK
    assert "digits-9" in capsys.readouterr().out


def test_jobs_of_a_folder_of_runs_of_one_run_and_of_saved_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, *others = samples.search_at(600)
    assert job["kind"] == "HyperParamJob"
    for name in ("first", "second"):
        objects = tmp_path / "podium-runs" / name / "objects"
        objects.mkdir(parents=True)
        (objects / "job.json").write_text(json.dumps({**job, "metadata": {**job["metadata"], "name": name}}))
        (objects / "trial-0.json").write_text(json.dumps(others[0]))
    assert run(["get", "jobs", "--from-files", str(tmp_path / "podium-runs"), "-o", "json"]) is Exit.OK
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["items"]] == ["first", "second"]
    for folder in ("second", "second/objects"):
        assert run(["get", "jobs", "--from-files", str(tmp_path / "podium-runs" / folder)]) is Exit.OK
        shown = capsys.readouterr().out
        assert "second" in shown
        assert "first" not in shown
    assert run(["get", "jobs", "--from-files", str(tmp_path / "none")]) is Exit.NOT_FOUND


@pytest.mark.parametrize("form", ["list.json", "many.yaml", "typed-list.json"])
def test_report_from_saved_files(form: str, tmp_path: Path) -> None:
    objects = samples.search_at(600)
    if form == "list.json":
        (tmp_path / form).write_text(json.dumps({"kind": "List", "items": objects}))
    elif form == "many.yaml":
        (tmp_path / form).write_text("\n---\n".join(json.dumps(one) for one in objects))
    else:
        for kind in ("HyperParamJob", "HyperParamTrial", "GPUNode"):
            items = [
                {key: one[key] for key in ("metadata", "spec", "status")} for one in objects if one["kind"] == kind
            ]
            (tmp_path / f"{kind}.json").write_text(json.dumps({"kind": f"{kind}List", "items": items}))
    output = tmp_path / "out.html"
    assert run(["report", "digits", "--from-files", str(tmp_path), "-o", str(output)]) is Exit.OK
    assert "digits-9" in output.read_text(encoding="utf-8")


def test_every_sort_order_contains_each_trial_once() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    names = {trial.metadata.name for trial in snapshot.trials}
    for order in ORDERS.values():
        shown = [trial.metadata.name for trial in order(snapshot)]
        assert len(shown) == len(names)
        assert set(shown) == names
    best = [trial.status.best.value for trial in ORDERS["value"](snapshot) if trial.status.best]
    assert best == sorted(best, reverse=True)


def test_explain_names_the_holder_and_the_position_in_the_run_queue() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    waiting = next(trial for trial in snapshot.trials if trial.status.phase.value == "Suspended")
    text = "\n".join(explanation(snapshot, waiting))
    assert "Suspended  TimeSliceEnded" in text
    assert "holder       default/digits-" in text
    assert "run queue    position " in text
    assert "resumes      on the same GPUs: " in text
    assert "suspend 0." in text
    assert " s, resume 0." in text
    running = next(trial for trial in snapshot.trials if trial.status.phase.value == "Running")
    assert "resumes  " not in "\n".join(explanation(snapshot, running))
    assert "this trial, for" in "\n".join(explanation(snapshot, running))


def test_explain_names_pod_and_node_of_each_worker() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    trial = snapshot.trials[0]
    workers = [
        WorkerStatus(rank=0, pod="digits-0-0", node="node-1", gpus=["GPU-1"]),
        WorkerStatus(rank=1, pod="digits-0-0-w1"),
    ]
    status = trial.status.model_copy(update={"workers": workers})
    text = explanation(snapshot, trial.model_copy(update={"status": status}))
    assert "worker 0     digits-0-0 on node-1" in text
    assert "worker 1     digits-0-0-w1 on no node" in text
    assert not [line for line in text if line.startswith("pod  ")]


def test_explain_shows_the_progress_of_a_live_migration_and_why_it_failed() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    trial = snapshot.trials[0]
    assert "migration  " not in "\n".join(explanation(snapshot, trial))
    began = snapshot.now - timedelta(seconds=3)
    names = {"sourceNode": "node-1", "targetNode": "node-2", "reason": "Rebalancing", "pod_uid": "u", "attempt": 1}
    migration = Migration(
        phase=MigrationPhase.FAILED, since=began, code="TargetFull", message="none\x1b is free", **names
    )
    changed = trial.model_copy(update={"status": trial.status.model_copy(update={"migration": migration})})
    line = "migration    Failed for 3 s, from node-1 to node-2 (Rebalancing)  TargetFull: none  is free"
    assert line in explanation(snapshot, changed)


def test_each_suspended_trial_is_listed_once() -> None:
    snapshot = snapshot_of(samples.search_at(100), None, None, samples.BEGIN)
    suspended = [trial for trial in snapshot.trials if trial.status.phase.value == "Suspended"]
    assert len(suspended_trials(list(snapshot.nodes))) == len(suspended)
