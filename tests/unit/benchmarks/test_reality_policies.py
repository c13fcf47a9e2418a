"""bench_reality under other policies: stopped trials, result files, and the forecast of `podium plan`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from benchmarks.simulator import bench_reality, comparison, forecast, record

from podium_cli import main
from podium_cli.samples import search_at
from podium_core.policies.registry import NAMES, create
from podium_devcluster.shell import CommandError
from podium_simulator.traces.trace import RecordedTrial, trace_lines

BEGIN = datetime.fromisoformat("2026-01-15T09:30:00+00:00").timestamp()
STOPPED, SHOWN, AT = 7, 7, 42  # the number of a trial, how many values it reports, when it is stopped
LOAD = 0.2  # seconds from an open gate to the first step


def saved(folder: Path, policy: str, *, stops: bool = False, name: str = "digits-0") -> list[dict[str, Any]]:
    """Save the synthetic search as a run under that policy. `stops`: a suspended trial is stopped early."""
    items = search_at(600.0)
    items[0]["spec"]["policy"] = {"name": policy}
    for point in (point for item in items for point in item["status"].get("curve", {}).get("points", [])):
        point["time"] += LOAD
    if stops:
        trial = next(item for item in items if item.get("spec", {}).get("number") == STOPPED)
        status = trial["status"]
        points = status["curve"]["points"] = status["curve"]["points"][:SHOWN]
        last = points[-1]["time"]
        status["allocations"] = [hold for hold in status["allocations"] if _seconds(hold["start"]) < last]
        assert _seconds(status["allocations"][-1]["end"]) < BEGIN + AT
        status |= {"phase": "EarlyStopped", "reason": "StoppedByPolicy", "finishedAt": f"2026-01-15T09:30:{AT}Z"}
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    return items


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


@pytest.mark.parametrize("policy", NAMES)
def test_the_job_has_the_policy_and_no_settings_of_another(policy: str) -> None:
    job, usual = record.job_of(3, policy, 0), record.job_of(3, None, 0)
    chosen = job["spec"].pop("policy")
    assert create(chosen["name"], chosen.get("settings", {})).name == policy
    own = usual["spec"].pop("policy")
    assert own == record.example()["spec"]["policy"]
    assert chosen == (own if policy == own["name"] else {"name": policy})
    assert job == usual
    assert job["metadata"]["name"] == "digits-3"


def test_the_simulation_has_the_policy_of_the_cluster_and_plans_at_each_value(tmp_path: Path) -> None:
    saved(tmp_path, "median_stop")
    (found,) = comparison.read_searches(tmp_path)
    (job,) = found.scenario.jobs
    assert (job.view.policy, dict(job.view.settings)) == ("median_stop", {})
    assert found.scenario.timing.progress == 0.0


def test_a_stopped_trial_ends_with_its_stop_and_its_curve_does_not_show_it(tmp_path: Path) -> None:
    saved(tmp_path, "median_stop", stops=True)
    (found,) = comparison.read_searches(tmp_path)
    (job,) = found.scenario.jobs
    assert found.stopped == {STOPPED}
    assert found.ends[STOPPED] == pytest.approx(AT + 0.5), "the middle of its second"
    curve: RecordedTrial = job.curves[STOPPED]
    assert len(curve.values) == len(job.curves[0].values) == job.view.max_steps
    assert set(curve.values[SHOWN - 1 :]) == {curve.values[SHOWN - 1]}
    gaps = [b - a for a, b in zip(curve.seconds[SHOWN - 1 :], curve.seconds[SHOWN:], strict=False)]
    assert gaps == pytest.approx([0.8] * len(gaps)), "at its own pace"
    made = comparison.compared(found)
    assert made.stopped[0] == 1
    assert len(made.finishes) == job.view.limits.max_trials


def test_a_trial_that_was_stopped_before_its_first_value_is_simulated_too(tmp_path: Path) -> None:
    items = saved(tmp_path, "median_stop", stops=True)
    trial = next(one for one in items if one.get("spec", {}).get("number") == STOPPED)
    trial["status"] |= {"curve": {"points": []}, "allocations": [], "gpuSeconds": 0.0}
    (tmp_path / "digits-0.json").write_text(json.dumps({"kind": "List", "items": items}))
    (found,) = comparison.read_searches(tmp_path)
    assert found.scenario.jobs[0].facts[STOPPED].load is None
    assert len(comparison.compared(found).finishes) == len(found.ends)


def test_deleted_pods_are_known_from_the_logs(tmp_path: Path) -> None:
    saved(tmp_path, "median_stop", stops=True)
    log = f"[pod/digits-{STOPPED}-0/podium-gate] 2026-01-15T09:30:{AT - 40:02}.25Z wait\n"
    (tmp_path / "digits-0.gates.log").write_text(log)
    (found,) = comparison.read_searches(tmp_path)
    assert found.scenario.jobs[0].facts[STOPPED].gate == pytest.approx(2.25 - 0.1)


class Cluster:
    """A cluster whose job ends after the third read of the gates' logs; the second read fails."""

    def __init__(self) -> None:
        self.reads, self.over = 0, Event()

    def kubectl(self, verb: str, *_: str, timeout: float = 30.0) -> str:
        if verb == "wait":
            assert self.over.wait(timeout)
            return ""
        self.reads += 1
        if self.reads == 3:
            self.over.set()
        if self.reads == 2:
            raise CommandError(["kubectl", "logs"], "failed", "")
        return f"error: not yet\nread {self.reads}\n"


def test_the_gates_of_stopped_trials_are_read_while_their_pods_exist() -> None:
    cluster: Any = Cluster()
    assert list(record._ended(cluster, "digits-0", 20.0, 0.01))[:3] == ["error: not yet", "read 1", "read 3"]


def test_results_of_another_policy_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(forecast, "SEEDS", 1)
    for policy in ("envelope", "hermes"):
        saved(tmp_path / policy, policy)
        monkeypatch.setattr(
            "sys.argv", ["bench", "--from-files", str(tmp_path / policy), "--out", str(tmp_path / "results")]
        )
        bench_reality.main()
    files = {path.name for path in (tmp_path / "results").iterdir()}
    assert files == {f"bench-reality{own}.{kind}" for own in ("", "-hermes") for kind in ("md", "png")}
    text = (tmp_path / "results" / "bench-reality-hermes.md").read_text()
    assert "(bench-reality-hermes.png)" in text
    assert "`make bench-reality POLICY=hermes`" in text
    result = json.loads(text.split("RESULT ")[1])
    assert result["policy"] == "hermes"
    assert len(result["forecast"]["end_within"]) == 1
    table = [line for line in text.splitlines() if line.startswith("|")]
    # results, repetitions, forecasts
    assert {line.count("|") for line in table} == {10, 6}
    capsys.readouterr()


def test_searches_of_another_policy_or_of_two_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, "envelope")
    monkeypatch.setattr("sys.argv", ["bench", "--from-files", str(tmp_path), "--policy", "pop"])
    with pytest.raises(SystemExit):
        bench_reality.main()
    assert "searches under envelope; give a folder with searches of one policy, pop" in capsys.readouterr().err
    saved(tmp_path, "pop", name="digits-1")
    with pytest.raises(ValueError, match="searches under envelope, pop"):
        bench_reality.report(comparison.read_searches(tmp_path), None)


def test_the_forecast_is_that_of_podium_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = saved(tmp_path / "run", "envelope")
    (found,) = comparison.read_searches(tmp_path / "run")
    assert found.run.step_seconds == pytest.approx(0.8)
    (tmp_path / "job.json").write_text(json.dumps({key: items[0][key] for key in items[0] if key != "status"}))
    options = ["--gpus", "2", "--nodes", "2", "-o", "json"]
    assert main.run(["plan", str(tmp_path / "job.json"), *options, "--step-seconds", repr(found.run.step_seconds)]) == 0
    planned = [search["own"] for search in json.loads(capsys.readouterr().out)["searches"]]
    made = forecast.forecasted(found.scenario.jobs[0].view, 2, 2, found.run)
    ends = [one["endSeconds"] for one in planned]
    assert (made.end.low, made.end.median, made.end.high) == (min(ends), sorted(ends)[2], max(ends))
    assert made.gpu_seconds.median == pytest.approx(3600.0 * sorted(one["gpuHours"] for one in planned)[2])
    assert made.suspensions.median == sorted(one["suspensions"] for one in planned)[2]
    status = items[0]["status"]
    assert made.end.real == pytest.approx(_seconds(status["finishedAt"]) + 0.5 - BEGIN), "the middle of its second"
    assert made.suspensions.real == status["suspensions"]
    assert made.gpu_seconds.real == pytest.approx(sum(status["gpuSeconds"].values()))
    (tmp_path / "last.jsonl").write_text("\n".join(trace_lines(found.run.exported)))
    assert main.run(["plan", str(tmp_path / "job.json"), str(tmp_path / "last.jsonl"), *options]) == 0
    ends = [search["own"]["endSeconds"] for search in json.loads(capsys.readouterr().out)["searches"]]
    by_export = forecast.forecasted(found.scenario.jobs[0].view, 2, 2, found.run, found.run)
    assert (by_export.end.low, by_export.end.high) == (min(ends), max(ends))
    assert by_export.end != made.end


def test_the_error_of_a_forecast_is_relative_to_the_run() -> None:
    figure = forecast.Figure
    assert figure(100.0, 80.0, 90.0, 99.0).error == pytest.approx(-0.1)
    assert not figure(100.0, 80.0, 90.0, 99.0).within
    assert figure(100.0, 80.0, 120.0, 130.0).within
    assert (figure(0.0, 0.0, 0.0, 0.0).error, figure(0.0, 1.0, 1.0, 1.0).error) == (0.0, 1.0)
