"""`podium simulate --system --jobs`: tables, JSON, and every refusal."""

from __future__ import annotations

import json

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

SHORT = ["simulate", "--system", "--trials", "4", "--seeds", "2", "--gpus", "2", "--suspend", "1", "--resume", "1"]


def test_a_table_of_policies_and_one_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*SHORT, "--jobs", "3", "--users", "2", "--arrivals", "300", "--policy", "hermes"]
    assert main.run(command) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "digits_example (val_acc, larger is better): 3 jobs of 2 users, one every 5 m 00 s, 4 trials each, "
        "on 2 GPUs on 1 node, 4 slots per GPU, "
        "suspend 1 s, resume 1 s, 2 rounds, the whole system simulated."
    )
    assert lines[1].split()[:2] == ["POLICY", "FOUND"]
    assert {line.split()[0] for line in lines[2:4]} == {"fifo", "hermes"}
    assert all(line.split()[1] == "6/6" for line in lines[2:4]), "three jobs, two rounds, no trial is stopped early"
    assert lines[4].startswith("GPU time by user;")
    assert lines[5].split() == ["POLICY", "USER-1", "USER-2"]
    assert [line.split()[0] for line in lines[6:]] == [line.split()[0] for line in lines[2:4]]


def test_more_users_than_policies_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*SHORT, "--jobs", "3", "--policy", "hermes"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert set(lines[5].split()) == {"USER", "FIFO", "HERMES"}
    assert [line.split()[0] for line in lines[6:]] == ["user-1", "user-2", "user-3"]


def test_one_user_has_no_table_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*SHORT, "--jobs", "2", "--users", "1", "--policy", "fifo"]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert "2 jobs of 1 user, all at once," in lines[0]
    assert len(lines) == 3
    assert lines[2].endswith("–"), "one user is neither fair nor unfair"


def test_json_is_the_same_twice_and_has_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*SHORT, "--jobs", "3", "--arrivals", "300", "--policy", "asha", "-o", "json"]
    assert main.run(command) is Exit.OK
    first = capsys.readouterr().out
    assert main.run(command) is Exit.OK
    assert capsys.readouterr().out == first
    (found,) = json.loads(first)
    assert (found["jobs"], found["users"], found["arrivalSeconds"], found["rounds"]) == (3, 3, 300.0, 2)
    for policy in found["policies"]:
        jobs = [job for one in policy["rounds"] for job in one["jobs"]]
        assert [job["arrivedSeconds"] for job in jobs] == [0.0, 300.0, 600.0] * 2
        assert len({job["seed"] for job in jobs}) == 6, "each job has a pool of its own"
        assert [job["user"] for job in jobs] == ["user-1", "user-2", "user-3"] * 2
        assert policy["found"] == sum(job["nearBestSeconds"] is not None for job in jobs)
        assert policy["endSeconds"]["worst"] == max(job["endSeconds"] for job in jobs)
        assert policy["slowdown"]["mean"] == pytest.approx(sum(job["slowdown"] for job in jobs) / 6)
        for one in policy["rounds"]:
            assert sum(user["share"] for user in one["users"]) == pytest.approx(1.0)
            assert one["fairness"] is None or 1.0 / 3.0 <= one["fairness"] <= 1.0


def test_one_job_is_the_search_as_it_is_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*SHORT, "--policy", "hermes", "-o", "json"]
    assert main.run(command) is Exit.OK
    plain = capsys.readouterr().out
    assert main.run([*command, "--jobs", "1", "--users", "1"]) is Exit.OK
    assert capsys.readouterr().out == plain


NEEDS = "needs the simulated system, which jobs share; add --system"
REFUSALS = [
    (["--jobs", "3"], f"SystemRequired: --jobs: 3 {NEEDS}"),
    (["--arrivals", "60"], f"SystemRequired: --arrivals: 60 {NEEDS}"),
    (["--users", "2"], f"SystemRequired: --users: 2 {NEEDS}"),
    (["--system", "--arrivals", "60"], "JobsRequired: --arrivals: 60 needs several jobs, and --jobs is not given"),
    (
        ["--system", "--users", "2"],
        "JobsRequired: --users: 2 needs several jobs, and --jobs is not given; add --jobs 2",
    ),
    (
        ["--system", "--jobs", "1", "--arrivals", "60"],
        "JobsRequired: --arrivals: 60 needs several jobs, and --jobs is 1",
    ),
    (["--system", "--jobs", "0"], "TooFew: --jobs: must be at least 1 (got 0)"),
    (["--system", "--jobs", "101"], "TooMany: --jobs: 101 is too many jobs to simulate; give 100 at most"),
    (
        ["--system", "--jobs", "50", "--trials", "300"],
        "TooMany: --jobs: 50 jobs of 300 trials are too many to simulate",
    ),
    (
        ["--system", "--jobs", "2", "--arrivals", "-1"],
        "InvalidTime: --arrivals: must be 0 to 604800 seconds (got -1)",
    ),
    (
        ["--system", "--jobs", "2", "--arrivals", "nan"],
        "InvalidTime: --arrivals: must be 0 to 604800 seconds (got nan)",
    ),
    (
        ["--system", "--jobs", "2", "--arrivals", "inf"],
        "InvalidTime: --arrivals: must be 0 to 604800 seconds (got inf)",
    ),
    (["--system", "--jobs", "2", "--users", "0"], "TooFew: --users: must be at least 1 (got 0)"),
    (["--system", "--jobs", "2", "--users", "3"], "TooMany: --users: 3 is too many users of 2 jobs (--jobs); give 2"),
    (
        ["--jobs", "2", "--report", "x.html"],
        "SingleJobOnly: --report: it draws one job, and --jobs is 2; omit",
    ),
]


@pytest.mark.parametrize(("options", "expected"), REFUSALS, ids=[" ".join(row[0]) for row in REFUSALS])
def test_every_refusal_names_its_cure(options: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", *options]) is Exit.USAGE
    assert expected in capsys.readouterr().err


def test_jobs_that_never_end_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--system", "--jobs", "2", "--trials", "2", "--seeds", "1", "--policy", "fifo"]
    assert main.run([*command, "--node-fails", "0.001"]) is Exit.FAILED
    assert "digits_example-2 has" in capsys.readouterr().err
