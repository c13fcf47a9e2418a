"""`podium export`: the curves of a search as a file that the replay reads, and the omitted trials."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit
from podium_cli.objects import snapshot_of
from podium_cli.samples import BEGIN, search_at
from podium_simulator.traces.sources import ReadOptions, read_all
from podium_simulator.traces.trace import load
from podium_views.trace import trace_of

ENDED = search_at(600.0)


def test_a_search_is_written_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "digits.jsonl"
    assert main.run(["export", "--sample", "-o", str(path)]) is Exit.OK
    assert capsys.readouterr().out == f"{path}: 12 trials written, 0 incomplete trials omitted.\n"
    found = load(path)
    assert found == trace_of(snapshot_of(ENDED, None, None, BEGIN + timedelta(seconds=600)))
    assert (
        main.run(["simulate", str(path), "--gpus", "2", "--seeds", "1", "--policy", "hermes", "-o", "json"]) is Exit.OK
    )
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["trials"]) == ("digits", 12)


def test_times_are_gpu_seconds_without_lost_work() -> None:
    objects = search_at(600.0)
    trial = next(o for o in objects if o["metadata"]["name"] == "digits-3")
    last = trial["status"]["curve"]["points"][-1]["step"]
    trial["status"] |= {"gpuSeconds": 100.0, "lostWork": {"gpuSeconds": 40.0}}
    found = trace_of(snapshot_of(objects, None, None, BEGIN))
    mine = next(t for t in found.trials if t.name == "digits-3")
    assert mine.seconds[-1] == pytest.approx(60.0)
    assert mine.seconds[0] == pytest.approx(60.0 * trial["status"]["curve"]["points"][0]["step"] / last)
    assert dict(mine.hparams) == trial["spec"]["parameters"]


ALLOCATIONS = [(0, 10), (50, 70)]  # seconds after BEGIN
TIMES = [4, 8, 55, 68]  # of values at steps 1, 2, 3 and 4
EVEN = (7.5, 15.0, 22.5, 30.0)
SECONDS = {
    "seconds held until each point, the last to the end": (ALLOCATIONS, TIMES, 30.0, 0.0, (4.0, 8.0, 15.0, 30.0)),
    "printed at the suspension, read later": (ALLOCATIONS, [4, 10.5, 55, 68], 30.0, 0.0, (4.0, 10.0, 15.0, 30.0)),
    "a moment was lost after a checkpoint": (ALLOCATIONS, TIMES, 30.0, 0.15, (3.98, 7.96, 14.925, 29.85)),
    "some steps were repeated": (ALLOCATIONS, TIMES, 30.0, 10.0, (5.0, 10.0, 15.0, 20.0)),
    "an allocation is no longer recorded": (ALLOCATIONS[1:], TIMES, 30.0, 0.0, EVEN),
    "an allocation without an end": ([ALLOCATIONS[0], (50, None)], TIMES, 30.0, 0.0, EVEN),
    "values that arrived together": (ALLOCATIONS, [4, 60, 60.001, 60.002], 30.0, 0.0, EVEN),
    "values from before the allocations": (ALLOCATIONS, [-4, -3, -2, -1], 30.0, 0.0, EVEN),
    "no GPU": ([], TIMES, 0.0, 0.0, (1.0, 2.0, 3.0, 4.0)),
}


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("allocations", "times", "used", "lost", "seconds"), SECONDS.values(), ids=SECONDS)
def test_times_are_the_seconds_for_which_the_trial_held_its_gpus(
    allocations: list[tuple[float, float | None]],
    times: list[float],
    used: float,
    lost: float,
    seconds: tuple[float, ...],
    width: int,
) -> None:
    def moment(after: float) -> str:
        return (BEGIN + timedelta(seconds=after)).isoformat()

    objects = search_at(600.0)
    next(o for o in objects if o["kind"] == "HyperParamJob")["spec"]["gpus"] = {"perTrial": width}
    trial = next(o for o in objects if o["metadata"]["name"] == "digits-3")
    gpus = [f"GPU-{place}" for place in range(width)]
    started = [{"gpus": gpus, "node": "n", "start": moment(start)} for start, _ in allocations]
    ended = [{} if end is None else {"end": moment(end)} for _, end in allocations]
    trial["status"] |= {
        "gpuSeconds": used * width,
        "lostWork": {"gpuSeconds": lost * width},
        "allocations": [one | end for one, end in zip(started, ended, strict=True)],
        "curve": {
            "points": [
                {"step": step, "value": 0.5, "time": BEGIN.timestamp() + time} for step, time in enumerate(times, 1)
            ]
        },
    }
    found = trace_of(snapshot_of(objects, None, None, BEGIN))
    assert next(t for t in found.trials if t.name == "digits-3").seconds == pytest.approx(seconds)


def test_stopped_trials_are_omitted_and_nothing_writes_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = search_at(600.0)
    next(o for o in objects if o["metadata"]["name"] == "digits-3")["status"]["phase"] = "EarlyStopped"
    found = trace_of(snapshot_of(objects, None, None, BEGIN))
    assert (len(found.trials), found.left_out) == (11, 1)
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": search_at(1.0)}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.FAILED
    assert "NothingToExport: none of 12 trials of digits has completed with a value" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


NAMES = ["out.csv", "OUT.CSV", "out.csv.gz", "out.jsonl.gz", "out.jsonl.csv", "events.out.tfevents.1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_simulate_would_not_read_as_lines(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check comes before any request: the test has no cluster."""
    path = tmp_path / name
    assert main.run(["export", "digits", "-o", str(path)]) is Exit.USAGE
    assert f"InvalidFileName: --output: {path}: podium writes JSON lines" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("name", ["out.JSONL", "out.csv.jsonl", "out.txt"])
def test_a_name_that_simulate_reads_as_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert main.run(["export", "--sample", "-o", str(path)]) is Exit.OK
    assert len(read_all([path], ReadOptions())[0].trials) == 12


def test_singular_and_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    trials = [o for o in objects if o["kind"] == "HyperParamTrial"]
    trials[0]["status"]["phase"] = "EarlyStopped"
    kept = [o for o in objects if o not in trials[2:]]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": kept}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.OK
    assert "x.jsonl: 1 trial written, 1 incomplete trial omitted." in capsys.readouterr().out
    assert load(tmp_path / "x.jsonl").left_out == 1


ENDS = [
    (["EarlyStopped"], "the job has ended (Succeeded), and its policy envelope stopped every trial early"),
    (["EarlyStopped", "Failed"], "the job has ended (Succeeded), and 6 of them were stopped early"),
]


@pytest.mark.parametrize(("phases", "expected"), ENDS, ids=["all cut", "some failed"])
def test_the_message_for_an_ended_job_does_not_suggest_to_wait(
    phases: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = search_at(600.0)
    for number, trial in enumerate(o for o in objects if o["kind"] == "HyperParamTrial"):
        trial["status"]["phase"] = phases[number % len(phases)]
    next(o for o in objects if o["kind"] == "HyperParamJob")["status"]["phase"] = "Succeeded"
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.FAILED
    printed = capsys.readouterr().err
    assert expected in printed
    assert "export needs completed trials" in printed
    assert "wait" not in printed
