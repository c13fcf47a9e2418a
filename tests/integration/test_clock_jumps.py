"""The wall clocks of the node and of the operator jump by three hours, in both directions, during suspensions.

A preloaded library (clock_shim.c) shifts the clock of the components; the log lines of trials are shifted too, because
the container runtime has the node's clock.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_ledger, check_no_leaks, check_results
from bare_node import BareNode
from faulty_relay import FaultyRelay

pytestmark = pytest.mark.integration
SHIFT = 3 * 3600
STEPS = 120
SLACK = 30.0  # seconds by which a stored time may be outside of the search


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "clock_shim.so"
    source = Path(__file__).with_name("clock_shim.c")
    command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


class Clock:
    """The wall clock of the components that a test preloads the library into."""

    def __init__(self, path: Path, library: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIM": str(path)}
        self._path = path
        self._path.write_bytes(bytes(8))

    def jump(self, seconds: int) -> None:
        with self._path.open("r+b") as file:  # the same file, which the processes have mapped
            file.write(struct.pack("q", seconds))


def test_the_library_shifts_the_clock_of_a_process(tmp_path: Path, shim: Path) -> None:
    clock = Clock(tmp_path / "clock", shim)
    clock.jump(-SHIFT)
    program = "import datetime, time; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    done = subprocess.run([sys.executable, "-c", program], env=clock.environment, capture_output=True, check=True)
    wall, moment, monotonic = map(float, done.stdout.split())
    assert abs(wall + SHIFT - time.time()) < 60
    assert abs(moment - wall) < 1
    assert abs(monotonic - time.monotonic()) < 60


def test_jumps_of_the_wall_clocks_change_no_result(
    bare_node: BareNode, tmp_path: Path, shim: Path, make_relay: Callable[[str], FaultyRelay]
) -> None:
    """A relay spares them TLS: three hours ago, the certificates of this cluster were not valid yet."""
    node, began = bare_node, time.time()
    kubeconfig = make_relay("both").kubeconfig
    clocks = {name: Clock(tmp_path / f"clock-{name}", shim) for name in ("agent", "operator")}
    node.agent.environment |= {**clocks["agent"].environment, "PODIUM_KUBECONFIG": str(kubeconfig)}
    operator = node.operators["one"] = node.operator("one", kubeconfig)
    operator.environment |= clocks["operator"].environment
    node.start({"one": kubeconfig})
    job = node.search(trials=3, steps=STEPS, seconds=0.1)
    for agent, other in ((-SHIFT, 0), (SHIFT, 0), (0, SHIFT), (0, -SHIFT), (SHIFT, -SHIFT), (0, 0)):
        node.until(partial(more_suspensions, node, job, node.suspensions(job)), "a suspension")
        clocks["agent"].jump(agent)
        clocks["operator"].jump(other)
        node.kubelet.clock_ahead = float(agent)
    node.wait_for_end(job)
    check_results(node, job, STEPS)
    check_ledger(node, job)
    check_no_leaks(node)
    spans = [time_ for object_ in (node.job(job), *node.trials(job), node.gpunode()) for time_ in times(object_)]
    assert len(spans) > 20
    late = [one for one in spans if not began - SLACK <= one.timestamp() <= time.time() + SLACK]
    assert late == [], "all stored times are those of the API server"


def more_suspensions(node: BareNode, job: str, than: int) -> bool:
    return node.suspensions(job) > than


def times(value: Any) -> list[datetime]:
    """Return all times in an object, as text or as seconds in the points of a curve; managedFields are the server's."""
    if isinstance(value, dict):
        found = [datetime.fromtimestamp(value["time"], UTC)] if isinstance(value.get("time"), float) else []
        return found + [one for key, inner in value.items() if key != "managedFields" for one in times(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in times(inner)]
    if isinstance(value, str) and len(value) >= 20 and value[4:5] == "-" and value[10:11] == "T":
        return [datetime.fromisoformat(value)]
    return []
