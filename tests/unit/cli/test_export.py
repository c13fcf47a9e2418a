"""`podium export`: the curves of a search as a file that the replay reads back, and what is left out of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.commands.export import recording_of
from podium_cli.exit_codes import Exit
from podium_cli.objects import picture_of
from podium_cli.samples import BEGIN, search_at
from podium_simulator.traces.sources import ReadOptions, read_all
from podium_simulator.traces.trace import load

ENDED = search_at(600.0)


def test_a_search_is_written_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "digits.jsonl"
    assert main.run(["export", "--sample", "-o", str(path)]) is Exit.OK
    assert capsys.readouterr().out == f"{path}: 12 trials; 0 that were not trained to their end are left out.\n"
    found = load(path)
    assert found == recording_of(picture_of(ENDED, None, None, BEGIN + timedelta(seconds=600)))
    assert (
        main.run(["simulate", str(path), "--gpus", "2", "--seeds", "1", "--policy", "hermes", "-o", "json"]) is Exit.OK
    )
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["trials"]) == ("digits", 12)


def test_times_are_gpu_seconds_without_what_was_lost() -> None:
    objects = search_at(600.0)
    trial = next(o for o in objects if o["metadata"]["name"] == "digits-3")
    last = trial["status"]["curve"]["points"][-1]["step"]
    trial["status"] |= {"gpuSeconds": 100.0, "lostWork": {"gpuSeconds": 40.0}}
    found = recording_of(picture_of(objects, None, None, BEGIN))
    mine = next(t for t in found.trials if t.name == "digits-3")
    assert mine.seconds[-1] == pytest.approx(60.0)
    assert mine.seconds[0] == pytest.approx(60.0 * trial["status"]["curve"]["points"][0]["step"] / last)
    assert dict(mine.hparams) == trial["spec"]["parameters"]


TURNS = [(0, 10), (50, 70)]  # seconds after BEGIN
TIMES = [4, 8, 55, 68]  # of values at steps 1, 2, 3 and 4
EVEN = (7.5, 15.0, 22.5, 30.0)
SECONDS = {
    "held until then, the last to the end": (TURNS, TIMES, 30.0, 0.0, (4.0, 8.0, 15.0, 30.0)),
    "printed as it was frozen, read later": (TURNS, [4, 10.5, 55, 68], 30.0, 0.0, (4.0, 10.0, 15.0, 30.0)),
    "a moment was lost, as it saved": (TURNS, TIMES, 30.0, 0.15, (3.98, 7.96, 14.925, 29.85)),
    "it did some steps again": (TURNS, TIMES, 30.0, 10.0, (5.0, 10.0, 15.0, 20.0)),
    "a turn is no longer on record": (TURNS[1:], TIMES, 30.0, 0.0, EVEN),
    "a turn that nobody ended": ([TURNS[0], (50, None)], TIMES, 30.0, 0.0, EVEN),
    "values that came at once": (TURNS, [4, 60, 60.001, 60.002], 30.0, 0.0, EVEN),
    "values from before its turns": (TURNS, [-4, -3, -2, -1], 30.0, 0.0, EVEN),
    "no GPU": ([], TIMES, 0.0, 0.0, (1.0, 2.0, 3.0, 4.0)),
}


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("turns", "times", "used", "lost", "seconds"), SECONDS.values(), ids=SECONDS)
def test_times_are_those_that_it_held_its_gpus(
    turns: list[tuple[float, float | None]],
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
    begun = [{"gpus": gpus, "node": "n", "start": moment(start)} for start, _ in turns]
    ended = [{} if end is None else {"end": moment(end)} for _, end in turns]
    trial["status"] |= {
        "gpuSeconds": used * width,
        "lostWork": {"gpuSeconds": lost * width},
        "allocations": [one | end for one, end in zip(begun, ended, strict=True)],
        "curve": {
            "points": [
                {"step": step, "value": 0.5, "time": BEGIN.timestamp() + time} for step, time in enumerate(times, 1)
            ]
        },
    }
    found = recording_of(picture_of(objects, None, None, BEGIN))
    assert next(t for t in found.trials if t.name == "digits-3").seconds == pytest.approx(seconds)


def test_who_was_cut_is_left_out_and_nothing_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    next(o for o in objects if o["metadata"]["name"] == "digits-3")["status"]["phase"] = "EarlyStopped"
    found = recording_of(picture_of(objects, None, None, BEGIN))
    assert (len(found.trials), found.left_out) == (11, 1)
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": search_at(1.0)}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.FAILED
    assert "NothingToExport: of 12 trials of digits none was trained to its end" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


NAMES = ["out.csv", "OUT.CSV", "out.csv.gz", "out.jsonl.gz", "out.jsonl.csv", "events.out.tfevents.1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_simulate_would_not_read_as_lines(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is fetched: there is no cluster that could be asked."""
    path = tmp_path / name
    assert main.run(["export", "digits", "-o", str(path)]) is Exit.USAGE
    assert f"InvalidFileName: --output: {path}: JSON lines are written" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("name", ["out.JSONL", "out.csv.jsonl", "out.txt"])
def test_a_name_that_simulate_reads_as_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert main.run(["export", "--sample", "-o", str(path)]) is Exit.OK
    assert len(read_all([path], ReadOptions())[0].trials) == 12


def test_one_of_a_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = search_at(600.0)
    trials = [o for o in objects if o["kind"] == "HyperParamTrial"]
    trials[0]["status"]["phase"] = "EarlyStopped"
    kept = [o for o in objects if o not in trials[2:]]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": kept}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.OK
    assert "x.jsonl: 1 trial; 1 that was not trained to its end is left out." in capsys.readouterr().out
    assert load(tmp_path / "x.jsonl").left_out == 1


ENDS = [
    (["EarlyStopped"], "the job is finished (Succeeded) and its policy, envelope, ended every trial early"),
    (["EarlyStopped", "Failed"], "the job is finished (Succeeded), and 6 of them were ended early"),
]


@pytest.mark.parametrize(("phases", "told"), ENDS, ids=["all cut", "some failed"])
def test_of_a_finished_job_nobody_needs_to_wait(
    phases: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = search_at(600.0)
    for number, trial in enumerate(o for o in objects if o["kind"] == "HyperParamTrial"):
        trial["status"]["phase"] = phases[number % len(phases)]
    next(o for o in objects if o["kind"] == "HyperParamJob")["status"]["phase"] = "Succeeded"
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    assert main.run(["export", "--from-files", str(tmp_path), "-o", str(tmp_path / "x.jsonl")]) is Exit.FAILED
    said = capsys.readouterr().err
    assert told in said
    assert "export needs trials that were trained to their end" in said
    assert "wait" not in said
