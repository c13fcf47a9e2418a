"""The search for the NVIDIA driver's libraries: the table of places, the choice, and real libraries that are loaded.

A process keeps the libraries that it loads, so each load runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cuda_node import driver

from podium_agent.driver.libraries import DriverFiles, DriverLibraries, LibrariesMissingError
from podium_agent.driver.node_files import add_device_nodes, resolve
from podium_agent.driver.places import (
    LIBRARY,
    MACHINES,
    Candidate,
    Place,
    choose,
    describe_search,
    kernel_module_version,
    library_version,
    mismatch_message,
    places,
)

__all__ = ["driver"]
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (abuild@host)  Thu Jul 11\n"
SCRIPT = """
import json, logging, os, sys
from pathlib import Path
from podium_agent.driver.libraries import DriverFiles, DriverLibraries, LibrariesMissingError
from podium_agent.observe.nvml import DriverTroubleError, open_driver
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for folder in sys.argv[2:]:
    if os.fork():  # a process of its own, which need not import everything again
        assert os.wait()[1] == 0
        continue
    explicit = Path(sys.argv[1]) if sys.argv[1] else None
    folder = Path(folder)
    libraries = DriverLibraries(DriverFiles(folder / "proc", folder / "root", explicit, folder / "dev"))
    try:
        gpus, error = len(open_driver(libraries).sample()), ""
    except DriverTroubleError as trouble:
        gpus, error = 0, str(trouble)
    mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libnvidia-ml" in line or "libcuda." in line}
    print(json.dumps({"found": libraries.found, "gpus": gpus, "error": error, "mapped": sorted(mapped)}), flush=True)
    os._exit(0)
"""


class Node:
    """A node's file system in a folder, as the agent sees it through its /proc."""

    def __init__(self, folder: Path, built: Path, gpus: Path) -> None:
        self.folder, self.proc, self.root = folder, folder / "proc", folder / "root"
        self._built, self._gpus = built, gpus
        self.root.mkdir(parents=True)
        self.proc.mkdir()
        (folder / "dev").mkdir()

    def another(self, name: str) -> Node:
        """Return a further node with the same GPUs."""
        return Node(self.folder / name, self._built, self._gpus)

    def install(self, place: str, version: str = "610.43.02") -> Path:
        """Install the driver's libraries as NVIDIA's installer does: files with the version, and links to them."""
        folder = self.root / place.lstrip("/")
        folder.mkdir(parents=True)
        for name in ("libnvidia-ml.so", "libcuda.so"):
            shutil.copy(self._built / f"{name}.1", folder / f"{name}.{version}")
            (folder / f"{name}.1").symlink_to(f"{name}.{version}")
        return folder

    def load_module(self, version: str) -> None:
        (self.proc / "driver/nvidia").mkdir(parents=True)
        (self.proc / "driver/nvidia/version").write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sat\n"
        )

    def run(self, explicit: str = "") -> dict[str, object]:
        (answer,) = self.run_all([self], explicit)
        return answer

    def run_all(self, nodes: Sequence[Node], explicit: str = "") -> list[dict[str, object]]:
        """Open the driver as an agent of each node does, each in a process of its own."""
        command = [sys.executable, "-c", SCRIPT, explicit, *(str(node.folder) for node in nodes)]
        environment = {name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"}
        environment["PODIUM_FAKE_DRIVER_STATE"] = str(self._gpus / "state")
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr
        answers: list[dict[str, object]] = [json.loads(line) for line in ran.stdout.splitlines()]
        assert all(str(answer["found"]) in ran.stderr for answer in answers), "the log names it, too"
        return answers


@pytest.fixture
def node(tmp_path: Path, driver: Path) -> Node:
    if os.environ.get("PODIUM_TEST_DRIVER") == "real":
        pytest.skip("the loader finds a real driver before any folder")
    gpus = tmp_path / "gpus"
    gpus.mkdir()
    environment = {"FAKE_GPU_DIR": str(gpus), "FAKE_GPU_NODE": "places", "FAKE_GPUS": "2"}
    daemon = subprocess.Popen([str(driver / "podium-fake-gpud"), "run"], env=environment, stdout=subprocess.PIPE)
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline().startswith(b"podium-fake-gpud: node")
    finally:
        daemon.terminate()  # its state remains
        daemon.communicate(timeout=300)
    return Node(tmp_path, driver, gpus)


MACHINE = os.uname().machine


def test_the_libraries_are_loaded_from_every_known_place(node: Node) -> None:
    nodes = {place: node.another(str(number)) for number, place in enumerate(places(MACHINE))}
    for place, one in nodes.items():
        one.install(place.folder)
    for (place, one), answer in zip(nodes.items(), node.run_all(list(nodes.values())), strict=True):
        assert (answer["error"], answer["gpus"]) == ("", 2), place
        assert answer["found"] == f"{place.folder} ({place.owner})"
        folder = f"{one.root}{place.folder}"
        assert answer["mapped"] == [f"{folder}/libcuda.so.610.43.02", f"{folder}/libnvidia-ml.so.610.43.02"]


def test_the_version_of_the_kernel_module_decides_between_two_places(node: Node) -> None:
    """A node whose image has a driver, on which GPU Operator runs another one, and the reverse."""
    node.install("/run/nvidia/driver/usr/lib64", "595.10")
    node.install("/usr/lib64", "610.43.02")
    node.load_module("610.43.02")
    assert str(node.run()["found"]).startswith("/usr/lib64 (")


def test_a_library_for_another_machine_is_passed_over(node: Node) -> None:
    broken = node.install("/home/kubernetes/bin/nvidia/lib64")
    (broken / "libnvidia-ml.so.610.43.02").write_bytes(b"\x7fELF")
    node.install("/usr/lib64")
    answer = node.run()
    assert (answer["gpus"], str(answer["found"]).split()[0]) == (2, "/usr/lib64")


def test_an_absolute_link_of_the_node_stays_on_the_node(node: Node) -> None:
    """As on NixOS and on Debian, whose alternatives are absolute links."""
    node.install("/nix/store/nvidia/lib")
    (node.root / "run/opengl-driver").mkdir(parents=True)
    (node.root / "run/opengl-driver/lib").symlink_to("/nix/store/nvidia/lib")
    assert node.run()["gpus"] == 2


def test_the_value_of_the_chart_comes_before_every_search(node: Node) -> None:
    node.install("/usr/lib64")
    mine = node.install("/opt/driver")
    answer = node.run(explicit=str(mine))
    assert (answer["gpus"], answer["found"]) == (2, f"{mine} (agent.driver.libraryPath)")
    (mine / LIBRARY).unlink()
    answer = node.run(explicit=str(mine))
    assert (answer["gpus"], answer["found"]) == (0, f"none; searched: {mine} (agent.driver.libraryPath)")
    assert f"agent.driver.libraryPath is {mine}: set it to" in str(answer["error"])


@pytest.mark.parametrize(
    ("module", "cure"),
    [("", "install the driver on this node, or"), ("570.86.15", "(570.86.15): set agent.driver.libraryPath to")],
)
def test_a_node_without_libraries_names_every_place_and_the_cure(node: Node, module: str, cure: str) -> None:
    if module:
        node.load_module(module)
    answer = node.run()
    assert answer["gpus"] == 0
    assert cure in str(answer["error"])
    assert str(answer["found"]).startswith("none; searched: ")
    assert all(place.folder in str(answer["found"]) for place in places(MACHINE))


def test_an_agent_that_cannot_see_its_node_says_so(tmp_path: Path, node: Node) -> None:
    shutil.rmtree(node.root)
    assert "hostPID" in str(node.run()["error"])


def test_the_library_is_loaded_when_the_driver_appears(tmp_path: Path) -> None:
    """One instance: the first call finds nothing, the next one finds what was installed meanwhile."""
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    libraries = DriverLibraries(DriverFiles(tmp_path, tmp_path, folder, tmp_path))
    with pytest.raises(LibrariesMissingError, match="cannot open shared object file"):
        libraries.prepare()
    # any library does for the loader
    (folder / LIBRARY).symlink_to(_any_library())
    libraries.prepare()
    assert libraries.found.endswith("(agent.driver.libraryPath)")


def _any_library() -> str:
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if line.rstrip().endswith("libc.so.6"))


def test_missing_device_nodes_are_added_once(tmp_path: Path) -> None:
    host, devices = tmp_path / "node/dev", tmp_path / "dev"
    host.mkdir(parents=True)
    devices.mkdir()
    try:
        for name, minor in (("nvidia0", 0), ("nvidiactl", 255), ("null", 3)):
            os.mknod(host / name, stat.S_IFCHR | 0o600, os.makedev(195, minor))
    except PermissionError:
        pytest.skip("device nodes need CAP_MKNOD")
    (host / "nvidia-caps").mkdir()
    assert add_device_nodes(tmp_path / "node", devices) == ("nvidia0", "nvidiactl")
    assert os.stat(devices / "nvidiactl").st_rdev == os.makedev(195, 255)
    assert add_device_nodes(tmp_path / "node", devices) == ()
    assert add_device_nodes(tmp_path / "nowhere", devices) == ()


def test_no_link_of_the_node_leads_out_of_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "up").symlink_to("../../secret")
    (root / "loop").symlink_to("loop")
    assert resolve(root, "/up") is None
    assert resolve(root, "/../secret") is None
    assert resolve(root, "/loop") is None
    (root / "secret").write_text("of the node")
    assert resolve(root, "/up") == root / "secret"


@pytest.mark.parametrize("machine", MACHINES)
def test_the_table_is_sound(machine: str) -> None:
    folders = [place.folder for place in places(machine)]
    assert len(folders) == len(set(folders))
    assert all(folder.startswith("/") and "{" not in folder for folder in folders)
    text = describe_search(places(machine))
    assert len(text) < 1500, "it is a field of each GPUNode"
    assert all(place.owner in text for place in places(machine))


def test_versions_are_read_from_names_and_from_the_kernel() -> None:
    assert (kernel_module_version(PROPRIETARY), kernel_module_version(OPEN)) == ("535.104.05", "555.42.06")
    assert kernel_module_version("nothing") == ""
    assert library_version("libnvidia-ml.so.570.86.15") == "570.86.15"
    assert library_version(LIBRARY) == ""


def test_the_first_place_wins_without_a_version() -> None:
    first, second = (Candidate(Place(f"/{number}", "x"), f"/{number}", f"{number}.0") for number in (1, 2))
    assert choose((first, second), "") == (first, second)
    assert choose((first, second), "3.0") == (first, second)
    assert choose((first, second), "2.0") == (second, first)
    assert "restart the agent" in mismatch_message("/1 (x)", "1.0", "2.0")
    assert mismatch_message("/1 (x)", "1.0", "1.0") == mismatch_message("/1 (x)", "", "1.0") == ""
