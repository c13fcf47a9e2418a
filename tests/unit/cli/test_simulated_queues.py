"""`--queues` of `podium plan` and `podium simulate`: shares by weight, quotas in a forecast, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

ROOT = Path(__file__).parents[3]
JOB = ROOT / "examples" / "digits" / "job.yaml"
SHORT = ["simulate", "--system", "--trials", "8", "--seeds", "1", "--gpus", "2", "--policy", "fifo"]
WEIGHTS = {"one": 1, "two": 2, "three": 3}


def queues_of(folder: Path, *specs: tuple[str, str]) -> str:
    """Return the path of a file with these GPUQueues: name and spec."""
    head = "apiVersion: podium.dev/v1alpha1\nkind: GPUQueue\n"
    path = folder / "queues.yaml"
    path.write_text("\n---\n".join(f"{head}metadata: {{name: {name}}}\nspec: {{{spec}}}" for name, spec in specs))
    return str(path)


def weighted(folder: Path) -> str:
    return queues_of(folder, *((name, f"weight: {weight}") for name, weight in WEIGHTS.items()))


def job_in(folder: Path, queue: str) -> str:
    """Return the path of the example's job in this queue."""
    path = folder / "job.yaml"
    path.write_text(JOB.read_text().replace("\nspec:\n", f"\nspec:\n  queue: {queue}\n", 1))
    return str(path)


def test_jobs_belong_to_the_queues_in_turn_and_share_by_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SHORT, "--jobs", "6", "--queues", weighted(tmp_path)]
    assert main.run([*command, "-o", "json"]) is Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert found["queues"] == [{"name": name, "weight": weight} for name, weight in WEIGHTS.items()]
    (policy,) = found["policies"]
    (one_round,) = policy["rounds"]
    assert [job["user"] for job in one_round["jobs"]] == [*WEIGHTS] * 2
    for queue in one_round["users"]:
        assert queue["ofEqualShare"] == pytest.approx(1.0, abs=0.2), "while others competed, it had its share by weight"
    assert policy["fairness"] > 0.97
    assert main.run([*SHORT, "--jobs", "6", "--users", "3", "-o", "json"]) is Exit.OK
    (without,) = json.loads(capsys.readouterr().out)
    assert without["queues"] == []


def test_the_table_names_the_queues_and_their_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*SHORT, "--jobs", "3", "--queues", weighted(tmp_path)]) is Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert "3 jobs of 3 queues of weight 1 : 2 : 3, all at once," in lines[0]
    assert lines[3].startswith("GPU time by queue;")
    assert lines[4].split() == ["QUEUE", "FIFO"]
    assert sorted(line.split()[0] for line in lines[5:]) == sorted(WEIGHTS)


def forecast(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[float, list[str]]:
    """Return the seconds until the job ends, and the assumptions."""
    assert (
        main.run(["plan", *options, "--gpus", "2", "--seeds", "1", "--step-seconds", "0.75", "-o", "json"]) is Exit.OK
    )
    found = json.loads(capsys.readouterr().out)
    return found["searches"][0]["own"]["endSeconds"], found["assumptions"]


def test_a_forecast_keeps_to_the_quota_of_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_in(tmp_path, "team")
    alone, said = forecast(capsys, job)
    assert not any("queue" in line for line in said)
    strict = queues_of(tmp_path, ("team", "gpus: 1, borrowing: false"), ("other", "weight: 3"))
    limited, said = forecast(capsys, job, "--queues", strict)
    assert limited == pytest.approx(2 * alone, rel=0.1), "on one of two GPUs"
    assert "the other queues are idle; if all of them had trials, queue team would get 0.4 of 2 GPUs" in said
    lent = queues_of(tmp_path, ("team", "gpus: 1"), ("other", "weight: 3"))
    assert forecast(capsys, job, "--queues", lent)[0] == pytest.approx(alone, rel=0.1), "the idle GPU is lent"


IMPOSSIBLE = [
    ("gone", ("team", "weight: 2"), "QueueNotFound: spec.queue: GPUQueue gone does not exist"),
    ("team", ("team", "namespaces: [lab]"), "QueueForbidden: spec.queue: namespace default may not use GPUQueue team"),
    ("team", ("team", "gpus: 0, borrowing: false"), "QueueQuotaTooSmall: gpus.perTrial is 1, but GPUQueue team may"),
]


@pytest.mark.parametrize(("queue", "spec", "expected"), IMPOSSIBLE, ids=[row[2].split(":")[0] for row in IMPOSSIBLE])
def test_a_job_that_its_queue_can_give_no_gpu_is_refused(
    queue: str, spec: tuple[str, str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", job_in(tmp_path, queue), "--queues", queues_of(tmp_path, spec)]) is Exit.FAILED
    assert expected in capsys.readouterr().err


def test_a_budget_that_ends_before_the_job_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    poor = queues_of(tmp_path, ("team", "budget: {gpuHours: 0.01}"))
    command = ["plan", job_in(tmp_path, "team"), "--seeds", "1", "--step-seconds", "0.75", "--queues", poor]
    assert main.run(command) is Exit.FAILED
    error = capsys.readouterr().err
    assert "digits has not ended" in error
    assert "do the budgets of the queues last" in error


FILES = [
    ([("a", "weight: 0")], "GPUQueue a: spec.weight: must be greater than 0"),
    ([("a", "weight: '2'")], "GPUQueue a: spec.weight: must be a number"),
    ([("a", "wieght: 2")], "GPUQueue a: spec.wieght:"),
    ([("a", "borrowing: false")], "QuotaMissing: --queues: "),
    ([("a", "gpus: 1, minimum: 2")], "minimum must not be greater than gpus"),
    ([("a", "weight: 1"), ("a", "weight: 2")], "QueueTwice: --queues: "),
    ([(f"q{n}", "weight: 1") for n in range(101)], "101 GPUQueues, too many to simulate; give 100 at most"),
]


@pytest.mark.parametrize(("specs", "expected"), FILES, ids=[row[1][:40] for row in FILES])
def test_an_invalid_file_of_queues_is_refused(
    specs: list[tuple[str, str]], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", str(JOB), "--queues", queues_of(tmp_path, *specs)]) is Exit.FAILED
    assert expected in capsys.readouterr().err


def test_a_queue_without_metadata_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text("apiVersion: podium.dev/v1alpha1\nkind: GPUQueue\nmetadata: [team]\n")
    assert main.run(["plan", str(JOB), "--queues", str(path)]) is Exit.FAILED
    assert "GPUQueue without a name: metadata: must be a map of fields" in capsys.readouterr().err


def test_a_file_without_queues_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(JOB), "--queues", str(JOB)]) is Exit.FAILED
    assert "holds no GPUQueue; one starts with apiVersion: podium.dev/v1alpha1" in capsys.readouterr().err


OPTIONS = [
    ([], "SystemRequired: --queues: "),
    (["--system"], "JobsRequired: --queues: "),
    (["--system", "--jobs", "2"], "TooFew: --jobs: 2 is too few for 3 queues (--queues); give at least 3"),
    (["--system", "--jobs", "1"], "TooFew: --jobs: 1 is too few for 3 queues"),
    (["--system", "--jobs", "6", "--users", "3"], "OptionUnused: --users: 3 has no effect with --queues"),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS, ids=[" ".join(row[0]) or "replay" for row in OPTIONS])
def test_options_that_contradict_each_other(
    options: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["simulate", *options, "--queues", weighted(tmp_path)]) is Exit.USAGE
    assert expected in capsys.readouterr().err
