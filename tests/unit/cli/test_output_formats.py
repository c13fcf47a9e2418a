"""`-o table|json|yaml` of every command that has it: the same values in JSON and YAML, and a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer, kubeconfig_of, serving, with_version
from ruamel.yaml import YAML

from podium_cli.command_group import load
from podium_cli.command_table import COMMANDS
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.samples import BEGIN, search_at
from podium_cli.structured import as_yaml
from podium_cluster import clock

ROOT = Path(__file__).parents[3]
# command, arguments, beginning of the first line of its table
CLUSTER_CASES = {
    "get jobs": ([], "NAMESPACE"),
    "get trials": (["digits"], "TRIAL"),
    "get gpus": ([], "GPU"),
    "get queues": ([], "QUEUE"),
    "best": (["digits"], "trial  "),
    "summary": (["digits"], "job  "),
    "explain job": (["digits", "--samples", "0"], "job  "),
    "explain trial": (["digits-9"], "trial  "),
    "explain pod": (["digits-9-0"], "pod  "),
    "doctor": (["node-a"], "RESULT"),
}
OFFLINE_CASES = {
    "plan": ([str(ROOT / "examples/digits/job.yaml"), "--seeds", "1"], "digits: "),
    "simulate": (["--policy", "asha", "--seeds", "1"], "digits_example "),
    "validate": ([str(ROOT / "examples/digits/job.yaml")], str(ROOT / "examples/digits/job.yaml: digits: valid")),
    "capacity": (["--rate", "120/h", "--service", "30m", "--wait", "5m"], "6"),
    "optimise makespan": (["{tasks}", "--cpus", "2", "--gpus", "1"], "MACHINE"),
    "optimise methods": ([], "METHOD"),
    "realtime simulate": (
        ["--contexts", "2", "--oversubscription", "1", "--tasks", "20", "--seconds", "1"],
        "\n2 contexts (simulated)",
    ),
    "realtime admit": (["{cameras}"], "Admitted: task gate"),
    "realtime run": (["--tasks", "1", "--fps", "2", "--seconds", "1"], "1 tasks at 2 fps under launch-ahead on cpu"),
}
CASES = CLUSTER_CASES | OFFLINE_CASES
CAMERAS = """
apiVersion: podium.dev/v1alpha1
kind: PeriodicTaskSet
spec: {gpu: {contexts: 2}, tasks: [{name: gate, network: resnet18, fps: 30}]}
"""
POD = {
    "kind": "Pod",
    "metadata": {"name": "digits-9-0", "namespace": "default", "uid": "pod-9"},
    "spec": {
        "schedulerName": "podium",
        "containers": [{"name": "train", "resources": {"requests": {"podium.dev/gpu": "1"}}}],
    },
}
NODE = {
    "kind": "Node",
    "metadata": {"name": "node-a"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"podium.dev/gpu": "4"}},
}

QUEUE = {
    "kind": "GPUQueue",
    "metadata": {"name": "research"},
    "spec": {"weight": 2.0, "gpus": 4, "namespaces": ["default"]},
    "status": {"gpus": {"used": 5, "borrowed": 1, "deserved": 4.5}, "window": {"used": 30.0}, "waiting": 3},
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with serving() as started:
        started.put(*map(with_version, [*search_at(150), POD, NODE, QUEUE]))
        yield started


def words_with_output(name: str, command: Any) -> Iterator[str]:
    """Yield the words of each command that has `-o` with the format json."""
    for inner in getattr(command, "commands", {}).values():
        yield from words_with_output(f"{name} {inner.name}", inner)
    for parameter in command.params:
        if parameter.name == "output" and "json" in parameter.metavar and "table" in parameter.metavar:
            assert "table|json|yaml" in parameter.metavar, name
            yield name


def test_every_command_with_formats_has_a_case() -> None:
    assert {words for entry in COMMANDS for words in words_with_output(entry.name, load(entry.name))} == set(CASES)


@pytest.mark.parametrize("words", CASES)
def test_json_and_yaml_have_the_same_values_and_a_table_has_a_head(
    words: str,
    server: ApiServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "now", lambda: BEGIN.timestamp() + 150)
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("name,cpu,gpu\na,4,1\nb,3,2\nc,5,\n")
    cameras = tmp_path / "cameras.yaml"
    cameras.write_text(CAMERAS)
    arguments, head = CASES[words]
    line = [*words.split(), *(one.format(tasks=tasks, cameras=cameras) for one in arguments)]
    if words in CLUSTER_CASES:
        line += ["--kubeconfig", str(kubeconfig_of(server, tmp_path))]

    def printed(output: str) -> str:
        code = run([*line, "-o", output])
        out, err = capsys.readouterr()
        assert (code, err) == (Exit.OK, "")
        return out

    plain = json.loads(printed("json"))
    text = printed("yaml")
    for read in (yaml.safe_load(text), YAML(typ="safe", pure=True).load(text)):
        assert without_measured(read) == without_measured(plain)
    assert printed("table").startswith(head)


def without_measured(value: Any) -> Any:
    """Return the value without what a run has measured, which no two runs share."""
    if isinstance(value, dict) and "measured" in value:
        return {key: sorted(one) if key == "measured" else one for key, one in value.items()}
    if isinstance(value, dict) and "certifiedRatio" in value:
        return {key: one for key, one in value.items() if key != "seconds"}
    return value


@pytest.mark.parametrize(
    "value",
    [
        *(1e-05, 1.5e300, -0.5, 3, True, None, "1e-4", "yes", "Null", "12", "", "a: b\nc", "2026-01-15T09:30:00Z"),
        *("~", "0x1f", "1_000", "1:30", ".inf", "- a", "#", "=", "<<", "é\x1b", [], {}, [[1], [1]], {"1": 2}),
    ],
)
def test_every_reader_of_yaml_reads_the_value(value: Any) -> None:
    text = as_yaml({"value": value})
    assert yaml.safe_load(text) == {"value": value}
    assert YAML(typ="safe", pure=True).load(text) == {"value": value}


def test_a_list_of_jobs_shows_progress_best_trial_and_gpus(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = ["--kubeconfig", str(kubeconfig_of(server, tmp_path))]
    assert run(["get", "jobs", *kubeconfig]) is Exit.OK
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    cells = dict(zip(head, row, strict=False))
    assert cells["NAMESPACE"] == "default"
    assert (cells["NAME"], cells["PHASE"], cells["DONE"]) == ("digits", "Running", "6/12")
    assert (cells["RUNNING"], cells["BEST"], cells["BEST-TRIAL"], cells["GPUS"]) == ("2", "0.9612", "digits-9", "2")
    assert run(["get", "jobs", "-n", "empty", *kubeconfig]) is Exit.OK
    out, err = capsys.readouterr()
    assert (out, err) == ("", "no HyperParamJob in namespace empty; -A lists those of all namespaces\n")
    assert run(["get", "jobs", "-A", "-o", "json", *kubeconfig]) is Exit.OK
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["items"]] == ["digits"]
