"""Which instances are refused, and how tasks are read from CSV."""

from __future__ import annotations

import math

import numpy as np
import pytest

from podium_optimisers.makespan.instance import MakespanError, MakespanInstance
from podium_optimisers.makespan.tasks_csv import read_tasks

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("cpu", "gpu", "machines", "code", "message"),
    [
        ([1.0, -2.0], [1.0, 1.0], (1, 1), "InvalidTime", "task t1: cpu: -2 s"),
        ([1.0, 1.0], [1.0, NAN], (1, 1), "InvalidTime", "task t1: gpu: nan s"),
        ([0.0], [1.0], (1, 1), "InvalidTime", "task t0: cpu: 0 s"),
        ([1.0], [1e12], (1, 1), "InvalidTime", "task t0: gpu: 1e+12 s"),
        ([-INF], [1.0], (1, 1), "InvalidTime", "task t0: cpu: -inf s"),
        ([1.0, 2.0], [1.0], (1, 1), "InvalidTime", "cpu has 2 times and gpu has 1"),
        ([1.0], [1.0], (0, 0), "NoMachines", "there are no machines"),
        ([1.0], [1.0], (-1, 2), "NoMachines", "cpus: -1 machines"),
        ([1.0], [1.0], (1, 10_001), "TooManyMachines", "gpus: 10001 machines"),
        ([], [], (1, 1), "NoTasks", "the list is empty"),
        ([INF], [INF], (1, 1), "NoFittingMachine", "task t0: cpu, gpu: no machine can run it"),
        ([1.0], [INF], (0, 3), "NoFittingMachine", "cpu 1 s with 0 CPUs"),
        ([INF], [1.0], (2, 0), "NoFittingMachine", "gpu 1 s with 0 GPUs"),
    ],
)
def test_invalid_instances_are_refused(
    cpu: list[float], gpu: list[float], machines: tuple[int, int], code: str, message: str
) -> None:
    with pytest.raises(MakespanError) as caught:
        MakespanInstance.of(cpu, gpu, *machines)
    assert caught.value.code == code
    assert message in str(caught.value)


def test_names_must_differ() -> None:
    with pytest.raises(MakespanError, match="no name twice"):
        MakespanInstance.of([1.0, 1.0], [1.0, 1.0], 1, 1, names=("a", "a"))


def test_a_side_without_machines_runs_no_task() -> None:
    instance = MakespanInstance.of([1.0], [2.0], 0, 2)
    assert instance.cpu[0] == INF
    assert instance.time_matrix().tolist() == [[2.0, 2.0]]


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        MakespanInstance.of([1.0], [2.0], 1, 1).cpu[0] = 3.0


def test_loads_and_machine_names() -> None:
    instance = MakespanInstance.of([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 2, 1)
    assert instance.loads(np.array([0, 2, 2])).tolist() == [4.0, 0.0, 5.0]
    assert [instance.machine_name(i) for i in range(3)] == ["cpu-0", "cpu-1", "gpu-0"]


def test_tasks_are_read_from_csv() -> None:
    instance = read_tasks("\ufeffname, gpu, cpu\nprep,,2.5\ntrain,10,300\n\n", 4, 1)
    assert instance.names == ("prep", "train")
    assert instance.cpu.tolist() == [2.5, 300.0]
    assert instance.gpu.tolist() == [INF, 10.0]


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        ("a,1,x", "InvalidTime", "line 2: task a: gpu: 'x' is not a number"),
        ("a,nan,1", "InvalidTime", "task a: cpu: nan s"),
        ("ok,1,1\na,1,-3", "InvalidTime", "task a: gpu: -3 s"),
        ("a,,", "NoFittingMachine", "task a: cpu, gpu: no machine can run it"),
        (",1,1", "InvalidName", "line 2: task without a name: name"),
        ("a,1,1\na,2,2", "InvalidName", "line 3: task a: name: two tasks have this name"),
        ("a,1", "InvalidTable", "line 2: the line does not have three fields"),
        ("a,1,2,3", "InvalidTable", "line 2: the line does not have three fields"),
        (
            "ok,1,1\n" + "a" * 131_073 + ",1,2",
            "InvalidTable",
            "line 3: the row is not valid CSV (field larger than field limit",
        ),
        ("", "NoTasks", "no lines below the header"),
    ],
)
def test_invalid_lines_are_refused(lines: str, code: str, message: str) -> None:
    with pytest.raises(MakespanError) as caught:
        read_tasks(f"name,cpu,gpu\n{lines}\n", 1, 1)
    assert caught.value.code == code
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "task,cpu,gpu\na,1,1\n", "name,cpu\na,1\n", "name,cpu,gpu,gpu\na,1,1,1\n"])
def test_invalid_headers_are_refused(text: str) -> None:
    with pytest.raises(MakespanError, match="give name, cpu, gpu"):
        read_tasks(text, 1, 1)


def test_missing_machines_are_reported_before_invalid_tasks() -> None:
    with pytest.raises(MakespanError, match="there are no machines"):
        read_tasks("name,cpu,gpu\na,1,1\n", 0, 0)
