"""GPUs of a container by its device nodes, as a real driver knows them, whatever its environment names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Until = Callable[..., None]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and namespaces: root only")
WORK = ["/bin/sh", "-c", "while :; do :; done"]
# Prints the result of cuInit and the last byte of the UUID of each device. argv: library.
LIST_DEVICES = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)))
for number in range(count.value):
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetUuid_v2(uuid, device)
    print(bytes(uuid).hex())
"""


def container(
    nodes: Iterable[tuple[str, int, int]], environment: dict[str, str], *unshare: str, shell: str = "/bin/sh"
) -> list[str]:
    """Return the command that runs a program with only these device nodes (name, major, minor) in its /dev.

    The environment is set by the last exec, as a container runtime does. `shell` makes the nodes.
    """
    made = "".join(f"mknod /dev/{name} c {major} {minor}; " for name, major, minor in nodes)
    script = f'mount -t tmpfs dev /dev; mknod /dev/null c 1 3; {made}exec "$@"'
    variables = ["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []
    return ["unshare", "--mount", *unshare, shell, "-ec", script, "sh", *variables]


def family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return {pid}.union(*map(family, children))


CONTROL, FIRST, SECOND = ("nvidiactl", 195, 255), ("nvidia0", 195, 0), ("nvidia1", 195, 1)


@pytest.mark.parametrize("named", ["void", "all", "none", "other"])
def test_work_counts_on_the_gpus_of_the_device_nodes(gpud: Any, until: Until, named: str) -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": gpud.uuid(0) if named == "other" else named}
    command = container([CONTROL, SECOND], environment, "--pid", "--fork", "--kill-child")
    gpud.workers.append(subprocess.Popen([*command, *WORK]))
    until(lambda: gpud.log(), "work")
    assert {interval.gpu for interval in gpud.log()} == {gpud.uuid(1)}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([CONTROL], "no GPU"),
        ([CONTROL, ("nvidia0", 195, 1)], "the node of another GPU under this name"),
        ([CONTROL, ("nvidia0", 1, 0)], "a node of another driver"),
    ],
)
def test_a_container_without_the_node_of_a_gpu_works_on_none(gpud: Any, until: Until, nodes: Any, why: str) -> None:
    command = container(nodes, {"NVIDIA_VISIBLE_DEVICES": gpud.uuid(0)}, "--pid", "--fork", "--kill-child")
    gpud.workers.append(subprocess.Popen([*command, *WORK]))
    witness = gpud.work(gpud.uuid(1))
    until(lambda: sum(interval.pid == witness.pid for interval in gpud.log()) >= 2, "two seconds of other work")
    assert {interval.pid for interval in gpud.log()} == {witness.pid}, why


def test_a_container_without_the_control_node_is_on_the_gpus_that_its_environment_names(
    gpud: Any, until: Until
) -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": gpud.uuid(0)}
    command = container([SECOND], environment, "--pid", "--fork", "--kill-child")
    gpud.workers.append(subprocess.Popen([*command, *WORK]))
    until(lambda: gpud.log(), "work")
    assert {interval.gpu for interval in gpud.log()} == {gpud.uuid(0)}


@pytest.mark.parametrize("name", ["runc:[2:INIT]", "memfd:runc_cloned"])
def test_a_process_of_the_host_and_a_starting_runtime_are_not_work(
    gpud: Any, tmp_path: Path, until: Until, name: str
) -> None:
    """An agent sees the nodes of all GPUs. runc is in the container's root before it execs the program.

    So the runtime makes the nodes too. A shell of another name would be work for a moment, if it was sampled there.
    """
    runtime = shutil.copy(os.path.realpath("/bin/sh"), tmp_path / name)
    for program, unshare in (("/bin/sh", ()), (str(runtime), ("--pid", "--fork", "--kill-child"))):
        command = container([CONTROL, FIRST], {}, *unshare, shell=program)
        gpud.workers.append(subprocess.Popen([*command, program, *WORK[1:]]))
    witness = gpud.work(gpud.uuid(1))
    until(lambda: sum(interval.pid == witness.pid for interval in gpud.log()) >= 2, "two seconds of other work")
    own = set().union(*(family(worker.pid) for worker in gpud.workers if worker.pid != witness.pid))
    assert len(own) >= 3, "two programs, and unshare with a child"
    assert own.isdisjoint(interval.pid for interval in gpud.log()), "containers of other clusters may work meanwhile"


@pytest.mark.parametrize(
    ("nodes", "named", "devices"),
    [
        ([CONTROL, SECOND], "void", [1]),
        ([CONTROL, SECOND], "all", [1]),
        ([CONTROL, FIRST, SECOND], "void", [0, 1]),
        ([CONTROL], "all", []),
        ([], "all", [0, 1]),
        ([], "void", []),
    ],
)
def test_cuda_lists_the_gpus_of_the_device_nodes(gpud: Any, nodes: Any, named: str, devices: list[int]) -> None:
    state = str(gpud.folder / "state")
    command = container(nodes, {"NVIDIA_VISIBLE_DEVICES": named, "PODIUM_FAKE_DRIVER_STATE": state})
    program = [sys.executable, "-S", "-E", "-c", LIST_DEVICES, str(gpud.build / "libcuda.so.1")]
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=60, check=True)
    result, *uuids = done.stdout.splitlines()
    assert result == "0 0"
    assert uuids == [gpud.uuid(index).removeprefix("GPU-").replace("-", "") for index in devices]
