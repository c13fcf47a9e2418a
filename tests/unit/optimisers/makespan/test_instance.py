"""What an instance refuses, and how its tasks come from CSV."""

from __future__ import annotations

import math

import numpy as np
import pytest

from podium_optimisers.makespan.instance import Instance, MakespanError
from podium_optimisers.makespan.tasks_csv import read

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("cpu", "gpu", "machines", "code", "told"),
    [
        ([1.0, -2.0], [1.0, 1.0], (1, 1), "InvalidTime", "task t1: cpu: -2 s"),
        ([1.0, 1.0], [1.0, NAN], (1, 1), "InvalidTime", "task t1: gpu: nan s"),
        ([0.0], [1.0], (1, 1), "InvalidTime", "task t0: cpu: 0 s"),
        ([1.0], [1e12], (1, 1), "InvalidTime", "task t0: gpu: 1e+12 s"),
        ([-INF], [1.0], (1, 1), "InvalidTime", "task t0: cpu: -inf s"),
        ([1.0, 2.0], [1.0], (1, 1), "InvalidTime", "cpu has 2 times, gpu has 1"),
        ([1.0], [1.0], (0, 0), "NoMachines", "there is no machine"),
        ([1.0], [1.0], (-1, 2), "NoMachines", "cpus: -1 machines"),
        ([1.0], [1.0], (1, 10_001), "TooManyMachines", "gpus: 10001 machines"),
        ([], [], (1, 1), "NoTasks", "there are none"),
        ([INF], [INF], (1, 1), "NoFittingMachine", "task t0: cpu, gpu: it fits nowhere"),
        ([1.0], [INF], (0, 3), "NoFittingMachine", "cpu 1 s with 0 CPUs"),
        ([INF], [1.0], (2, 0), "NoFittingMachine", "gpu 1 s with 0 GPUs"),
    ],
)
def test_bad_instances(cpu: list[float], gpu: list[float], machines: tuple[int, int], code: str, told: str) -> None:
    with pytest.raises(MakespanError) as caught:
        Instance.of(cpu, gpu, *machines)
    assert caught.value.code == code
    assert told in str(caught.value)


def test_names_must_differ() -> None:
    with pytest.raises(MakespanError, match="no two alike"):
        Instance.of([1.0, 1.0], [1.0, 1.0], 1, 1, names=("a", "a"))


def test_a_side_without_machines_takes_nobody() -> None:
    instance = Instance.of([1.0], [2.0], 0, 2)
    assert instance.cpu[0] == INF
    assert instance.table().tolist() == [[2.0, 2.0]]


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Instance.of([1.0], [2.0], 1, 1).cpu[0] = 3.0


def test_loads_and_machine_names() -> None:
    instance = Instance.of([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 2, 1)
    assert instance.loads(np.array([0, 2, 2])).tolist() == [4.0, 0.0, 5.0]
    assert [instance.machine_name(i) for i in range(3)] == ["cpu-0", "cpu-1", "gpu-0"]


def test_csv() -> None:
    instance = read("\ufeffname, gpu, cpu\nprep,,2.5\ntrain,10,300\n\n", 4, 1)
    assert instance.names == ("prep", "train")
    assert instance.cpu.tolist() == [2.5, 300.0]
    assert instance.gpu.tolist() == [INF, 10.0]


@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        ("a,1,x", "InvalidTime", "line 2: task a: gpu: 'x' is no number"),
        ("a,nan,1", "InvalidTime", "task a: cpu: nan s"),
        ("ok,1,1\na,1,-3", "InvalidTime", "task a: gpu: -3 s"),
        ("a,,", "NoFittingMachine", "task a: cpu, gpu: it fits nowhere"),
        (",1,1", "InvalidName", "line 2: task without a name: name"),
        ("a,1,1\na,2,2", "InvalidName", "line 3: task a: name: it is there twice"),
        ("a,1", "InvalidTable", "line 2: it has not three fields"),
        ("a,1,2,3", "InvalidTable", "line 2: it has not three fields"),
        ("ok,1,1\n" + "a" * 131_073 + ",1,2", "InvalidTable", "line 3: no CSV (field larger than field limit"),
        ("", "NoTasks", "none below the header"),
    ],
)
def test_bad_lines(lines: str, code: str, told: str) -> None:
    with pytest.raises(MakespanError) as caught:
        read(f"name,cpu,gpu\n{lines}\n", 1, 1)
    assert caught.value.code == code
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "task,cpu,gpu\na,1,1\n", "name,cpu\na,1\n", "name,cpu,gpu,gpu\na,1,1,1\n"])
def test_bad_headers(text: str) -> None:
    with pytest.raises(MakespanError, match="give name, cpu, gpu"):
        read(text, 1, 1)


def test_no_machines_is_said_before_any_task_is_blamed() -> None:
    with pytest.raises(MakespanError, match="there is no machine"):
        read("name,cpu,gpu\na,1,1\n", 0, 0)
