"""bench-katib: the searches of both tools, what is read of their trials, GPU-seconds, and the page."""

from __future__ import annotations

import io
import json
import re
from typing import Any, cast

import pytest
from benchmarks.katib import measured, report, searches, start
from benchmarks.katib.bench_katib import page
from benchmarks.katib.measured import Search, Trial, Watch
from benchmarks.katib.report import KATIB_RANDOM, KATIB_TPE, PODIUM, PODIUM_MEDIAN

from podium_core.schema.validation import problems

SIZE = searches.Size(trials=3, gpus=2, work=150)
POINT = {"log_lr": "-1.2345678901234", "width": "32", "batch_size": "64", "activation": "tanh"}


def katib_trial(*conditions: tuple[str, str], latest: str = "0.91") -> dict[str, Any]:
    metrics = [{"name": "loss", "latest": "0.3"}, {"name": "val_acc", "latest": latest, "max": "0.95"}]
    status = {"conditions": [{"type": one, "status": value} for one, value in conditions]}
    return {"status": status | {"observation": {"metrics": metrics}}}


def test_both_tools_start_the_same_trainer_with_the_same_values() -> None:
    made = searches.experiment("a", "kubeflow", "random", 4, SIZE, stops=True)["spec"]
    (theirs,) = made["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    (ours,) = searches.job("a", [POINT] * 3, SIZE)["spec"]["template"]["spec"]["containers"]
    assert theirs["command"][:4] == ours["command"][:4] == ["python3", "/scripts/start.py", "--epochs=40", "--work=150"]
    assert theirs["image"] == ours["image"]
    assert ours["command"][4:] == ["$(podium.args)"]
    values = [
        one.replace(f"${{trialParameters.{name}}}", POINT[name])
        for one, name in zip(theirs["command"][4:-1], POINT, strict=True)
    ]
    assert theirs["command"][-1] == start.STAMPED not in ours["command"]
    assert start.arguments([*values, start.STAMPED])[1:] == ["--width=32", "--batch_size=64", "--activation=tanh"]
    assert start.arguments(["--log_lr=-1.2345678901234"]) == start.arguments(["--log_lr=-1.234568"])
    assert float(start.arguments(values)[0].removeprefix("--lr=")) == pytest.approx(0.05827, abs=1e-5)


def test_lines_begin_with_times_that_order_them() -> None:
    written = io.StringIO()
    stream = start.StampedLines(written)
    print('{"epoch": 1}', file=cast("Any", stream))
    stream.write("not yet")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \{\"epoch\": 1\}\n", written.getvalue())
    stream.write("\n")
    lines = written.getvalue().splitlines()
    assert lines == sorted(lines)
    assert lines[1].endswith("Z not yet")


def test_the_experiment_has_whole_gpus_and_one_kind_of_stopping() -> None:
    stops = searches.experiment("a", "kubeflow", "random", 4, SIZE, stops=True)["spec"]
    own = searches.experiment("a", "kubeflow", "tpe", 4, SIZE, stops=False)["spec"]
    assert stops["earlyStopping"] == {"algorithmName": "medianstop"}
    assert "earlyStopping" not in own
    assert own["algorithm"]["algorithmSettings"] == [{"name": "random_state", "value": "4"}]
    assert (own["parallelTrialCount"], own["maxTrialCount"]) == (2, 3)
    assert stops["trialTemplate"] == own["trialTemplate"]
    pod = own["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_filter_reads_the_lines_of_the_trainer() -> None:
    line = json.dumps({"epoch": 3, "val_acc": 0.9125, "loss": 1.5e-05})
    assert re.findall(searches.LINE, line) == [("epoch", "3"), ("val_acc", "0.9125"), ("loss", "1.5e-05")]


def test_the_job_is_valid_and_has_the_points_in_order() -> None:
    points = [POINT, POINT | {"log_lr": "-2.5", "activation": "relu"}]
    manifest = searches.job("podium-0", points, SIZE)
    assert problems(manifest) == ()
    spec = manifest["spec"]
    assert spec["trials"] == {"max": 2, "parallel": 8, "maxSteps": 40}
    assert spec["policy"] == {"name": "envelope"}, "the default"
    assert problems(searches.job("podium-0", points, SIZE, "median_stop")) == ()
    assert [one["log_lr"] for one in spec["search"]["initialTrials"]] == [-1.2345678901234, -2.5]
    assert spec["search"]["initialTrials"][1]["batch_size"] == 64


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ([("Created", "True"), ("Running", "True")], ""),
        ([("Running", "False"), ("Succeeded", "True")], "Succeeded"),
        ([("Succeeded", "False"), ("EarlyStopped", "True")], "EarlyStopped"),
        ([("Succeeded", "True"), ("EarlyStopped", "True")], "EarlyStopped"),
        ([("Failed", "True")], "Failed"),
    ],
)
def test_how_a_trial_of_katib_ended(conditions: list[tuple[str, str]], phase: str) -> None:
    assert measured.katib_phase(katib_trial(*conditions)) == phase


def test_the_last_value_of_a_trial_of_katib() -> None:
    assert measured.katib_final(katib_trial()) == 0.91
    assert measured.katib_final(katib_trial(latest="unavailable")) is None
    assert measured.katib_final({"status": {}}) is None


def test_points_in_the_order_of_their_suggestion() -> None:
    parts = [{"name": name, "value": value} for name, value in POINT.items()]
    suggestions = [{"name": "a-x", "parameterAssignments": parts}, {"name": "a-b", "parameterAssignments": parts[:1]}]
    assert measured.katib_points({"status": {"suggestions": suggestions}}) == [POINT, {"log_lr": POINT["log_lr"]}]


def pod(phase: str = "Running", node: str | None = "node-1", gpus: str = "1") -> dict[str, Any]:
    limits = [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}, {}]
    spec = {"containers": limits} | ({"nodeName": node} if node else {})
    return {"spec": spec, "status": {"phase": phase, "containerStatuses": [{"containerID": "containerd://ab"}, {}]}}


def test_gpu_seconds_count_from_the_binding_to_the_end_of_the_containers() -> None:
    watch = Watch(created=100.0)
    watch.see(101.0, [], [pod(node=None)])
    watch.see(102.0, [], [pod("Pending"), pod(node=None)])
    watch.see(104.0, [], [pod(), pod()])
    watch.see(108.0, ["one"], [pod("Succeeded"), pod()])
    watch.see(110.0, ["one", "two"], [])
    assert watch.held == 0.5 * 1 + 1.5 * 2 + 1.5 * 4 + 0.5 * 2
    assert watch.ended == {"one": 108.0, "two": 110.0}
    assert watch.containers == {"ab"}
    assert measured.whole_gpus(pod(gpus="2")) == 2


def found(*finals: float | None, seconds: float, point: str = "-1", phase: str = "Succeeded") -> Search:
    trials = [
        Trial(f"t{number}", POINT | {"log_lr": point, "width": str(number)}, final, phase, 10.0 * (number + 1))
        for number, final in enumerate(finals)
    ]
    return Search(tuple(trials), seconds, first=5.0, held=seconds, busy=seconds / 2.0)


SEED = {
    KATIB_RANDOM: found(0.5, 0.9, 0.9, seconds=60.0),
    KATIB_TPE: found(None, 0.7, 0.95, seconds=80.0),
    PODIUM: found(0.5, 0.9, 0.9, seconds=40.0, point="-1.0"),
    PODIUM_MEDIAN: found(0.5, 0.9, seconds=30.0, point="-1.0"),
}


def test_the_best_trial_is_the_first_of_equals() -> None:
    assert SEED[KATIB_RANDOM].best.name == "t1"
    assert SEED[KATIB_TPE].reached(0.7) == 20.0
    assert SEED[PODIUM].reached(0.95) is None


def test_equal_points_have_to_have_equal_values() -> None:
    assert report.same_points(SEED) == 3
    with pytest.raises(ValueError, match="final values differ"):
        report.same_points(SEED | {PODIUM: found(0.5, 0.8, seconds=40.0)})
    with pytest.raises(ValueError, match=r"0\.4 in podium-median"):
        report.same_points(SEED | {PODIUM_MEDIAN: found(0.4, seconds=30.0)})
    assert report.same_points(SEED | {PODIUM: found(0.4, seconds=40.0, phase="EarlyStopped")}) == 0


def test_losses_are_shown() -> None:
    slower = SEED | {PODIUM: found(0.5, 0.9, 0.8, seconds=120.0)}
    against = report.ratios([SEED, slower], PODIUM, KATIB_TPE)
    assert against["best"] == {"by_seed": [1.5, 1.5], "mean": 1.5}
    assert against["as_good"] == {"by_seed": [None, None], "mean": None}
    assert against["end"]["by_seed"] == [2.0, 0.67]
    rows = report.comparison_table([SEED, slower])
    tpe = [row for row in rows if "| the same random points | TPE |" in row]
    assert "| never, never |  | 2 of 2 |" in tpe[1]
    assert tpe[2].endswith("| 2.00, 0.67 | 1.15 | 1 of 2 |")
    assert rows[-1].endswith(
        "| the same random points, median stopping | random points, median stopping | 2.00, 2.00 | 2.00 | 0 of 2 |"
    )


def test_the_page_ends_with_the_result() -> None:
    text = page([SEED, SEED], SIZE, 5.0)
    figures = json.loads(text.strip().rpartition("RESULT ")[2])
    assert figures["contenders"][PODIUM]["seconds_to_best"] == [20.0, 20.0]
    assert figures["contenders"][KATIB_TPE]["best"] == [0.95, 0.95]
    assert figures["against"][PODIUM][KATIB_RANDOM]["held"]["mean"] == 1.5
    assert figures["against"][PODIUM_MEDIAN][KATIB_RANDOM]["held"]["mean"] == 2.0
    assert text.count("| 1 | Podium: the same random points | 0.9000 | 20 | 40 | 5 | 0 of 3 | 40 | 20 |") == 1
