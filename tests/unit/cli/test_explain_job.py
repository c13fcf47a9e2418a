"""`podium explain job`: the output of the synthetic search, of a cluster, of saved objects, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, kubeconfig_of, serving, with_version

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.samples import search_at

GOLDEN = """\
job          default/digits
state        Running  2 trials run, 10 wait. Its next trial is number 1 of 10 waiting trials.
reason       TimeSliceEnded: 10 trials (digits-0, digits-1, digits-2, ...) are suspended until their next time slice. \
digits-0: another trial holds the GPU
cure         Wait, or add GPUs; `podium explain trial NAME` shows rank, rival and gain.
position     1 of 10 waiting trials of all jobs
queue        1. digits-9 waits on its GPU: TimeSliceEnded
queue        2. digits-0 waits on its GPU: TimeSliceEnded
queue        3. digits-5 waits on its GPU: TimeSliceEnded
queue        4. digits-10 waits on its GPU: TimeSliceEnded
queue        5. digits-1 waits on its GPU: TimeSliceEnded
queue        6. digits-2 waits on its GPU: TimeSliceEnded
queue        7. digits-3 waits on its GPU: TimeSliceEnded
queue        8. digits-8 waits on its GPU: TimeSliceEnded
             and 2 trials behind them
GPU          default/digits-6 of job default/digits holds node-a/0, which has 2 free slots. Since 12 s.
GPU          default/digits-7 of job default/digits holds node-b/0, which has 2 free slots. Since 6 s.
"""
SAMPLE = ["explain", "job", "--sample"]


def test_the_synthetic_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SAMPLE, "--samples", "0"]) is Exit.OK
    assert capsys.readouterr().out == GOLDEN


def test_expected_times_of_the_synthetic_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SAMPLE, "--samples", "1"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(GOLDEN.splitlines())] == GOLDEN.splitlines()
    start, end, interval, *assumptions = lines[len(GOLDEN.splitlines()) :]
    assert start.startswith("next start   in ")
    assert end.startswith("end          in 1 m ")
    assert interval == "interval     80 % of 1 simulated sample; it assumes that"
    assert "             - no further job arrives, and nothing fails" in assumptions


def test_data_has_seconds_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SAMPLE, "--samples", "1", "-o", "json"]) is Exit.OK
    made = json.loads(capsys.readouterr().out)
    assert (made["state"], made["position"], made["waiting"]) == ("Running", 1, 10)
    assert made["trials"] == {"running": 2, "waiting": 10, "toCome": 0}
    assert made["reasons"][0]["trials"][:2] == ["digits-0", "digits-1"]
    expected = made["expected"]
    assert expected["end"]["seconds"]["low"] <= expected["end"]["seconds"]["high"]
    assert expected["end"]["at"]["median"].startswith("2026-01-15T09:3")
    assert {one["trial"] for one in expected["trials"]} == {one["trial"] for one in made["queue"]}


def saved(folder: Path, objects: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    (folder / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    return folder


def test_saved_objects_of_an_ended_search_have_no_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "job", "--from-files", str(saved(tmp_path / "saved", search_at(600.0)))]) is Exit.OK
    out = capsys.readouterr().out
    assert "state        Ended  The search has ended: Succeeded.\n" in out
    assert "reason       AllTrialsEnded: " in out
    assert "expected" not in out


def test_a_run_on_this_machine_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = tmp_path / "run" / "objects"
    objects.mkdir(parents=True)
    names = {"HyperParamJob": "job", "GPUNode": "machine"}
    for place, one in enumerate(search_at(60.0)):
        (objects / f"{names.get(one['kind'], f'trial-{place}')}-{place}.json").write_text(json.dumps(one))
    (objects / "job-0.json").rename(objects / "job.json")
    assert run(["explain", "job", "--from-files", str(tmp_path / "run"), "--samples", "1"]) is Exit.OK
    assert "\nend          in " in capsys.readouterr().out


def test_a_reader_of_one_namespace_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.put(*map(with_version, search_at(60.0)))
        line = ["explain", "job", "digits", "--samples", "0", "--kubeconfig", str(kubeconfig_of(server, tmp_path))]
        assert run(line) is Exit.OK
        everything = capsys.readouterr().out
        refuse_other_namespaces(server)
        assert run(line) is Exit.OK
    out = capsys.readouterr().out
    assert "jobs of other namespaces are not counted" not in everything
    assert "note         jobs of other namespaces are not counted, because you may not read them\n" in out
    assert "position     1 of 10 waiting trials of all jobs\n" in out


def refuse_other_namespaces(server: ApiServer) -> None:
    """Make the server answer 403 to lists over all namespaces, as without a cluster-wide role."""

    def before(path: str) -> None:
        kinds = ("/hyperparamjobs", "/hyperparamtrials")
        if path.endswith(kinds) and "/namespaces/" not in path:
            answer = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
            raise web.HTTPForbidden(text=json.dumps(answer), content_type="application/json")

    server.before = before


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--samples", "-1"], Exit.USAGE, "--samples: must be from 0 (no times) to 1000 (got -1)"),
        (["--samples", "1001"], Exit.USAGE, "(got 1001)"),
        (["--step-seconds", "0"], Exit.USAGE, "--step-seconds: must be greater than 0 and at most 86400 (got 0)"),
        (["--step-seconds", "nan"], Exit.USAGE, "(got nan)"),
    ],
)
def test_wrong_options_are_refused(words: list[str], code: Exit, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SAMPLE, *words]) is code
    assert text in capsys.readouterr().err


def test_a_name_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "job"]) is Exit.USAGE
    assert "name the job, or give --from-files or --sample" in capsys.readouterr().err
