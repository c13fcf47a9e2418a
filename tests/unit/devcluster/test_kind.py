"""kind's nodes, which are entered through Docker, and NVIDIA's parts on any cluster.

A small program stands for Docker: its containers are folders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from podium_devcluster import kind
from podium_devcluster.artifacts import nvidia as artifacts
from podium_devcluster.cluster import Cluster
from podium_devcluster.kind import Kind, KindNode
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import nvidia
from podium_devcluster.shell import CommandError

DOCKER = """#!/bin/sh
echo "$@" >>"$CALLS"
case $1 in
exec) shift 3; exec "$@" ;;
cp) [ ! -e "$BROKEN" ] || { mkdir -p "${3#*:}"; echo "disk full" >&2; exit 1; }; exec cp -r "$2" "${3#*:}" ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which Docker's command lines are written."""
    program = tmp_path / "path" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("BROKEN", str(tmp_path / "broken"))
    return tmp_path / "calls"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin" / "nvidia-1234"
    folder.mkdir(parents=True)
    (folder / "nvidia-ctk").write_text("program")
    return folder


def test_a_program_in_a_node_gets_its_input_and_returns_its_output(calls: Path) -> None:
    node = KindNode("podium-worker")
    assert node.execute(["/bin/sh", "-s", "folder", "1.0"], stdin='echo "$1 $2"') == "folder 1.0\n"
    assert calls.read_text().splitlines() == ["exec --interactive podium-worker /bin/sh -s folder 1.0"]
    with pytest.raises(CommandError, match="exit status 3"):
        node.execute(["/bin/sh", "-c", "exit 3"])


def test_a_folder_is_copied_to_a_node_once(calls: Path, programs: Path, tmp_path: Path) -> None:
    node, target = KindNode("podium-worker"), tmp_path / "opt/podium/nvidia-1234"
    node.copy(programs, str(target))
    node.copy(programs, str(target))
    assert (target / "nvidia-ctk").read_text() == "program"
    assert [path.name for path in target.parent.iterdir()] == ["nvidia-1234"]
    copied = [line for line in calls.read_text().splitlines() if line.startswith("cp ")]
    assert copied == [f"cp {programs} podium-worker:{target.parent}/.nvidia-1234"]


def test_an_interrupted_copy_is_repeated(calls: Path, programs: Path, tmp_path: Path) -> None:
    node, target = KindNode("podium-worker"), tmp_path / "opt/podium/nvidia-1234"
    (tmp_path / "broken").touch()
    with pytest.raises(CommandError, match="disk full"):
        node.copy(programs, str(target))
    assert not target.exists()
    (tmp_path / "broken").unlink()
    node.copy(programs, str(target))
    assert [path.name for path in target.iterdir()] == ["nvidia-ctk"], "not inside the rest of the first copy"


def test_all_nodes_of_kind_get_the_programs_and_one_restarts(
    calls: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = (KindNode("podium-control-plane"), KindNode("podium-worker"))
    monkeypatch.setattr(Kind, "nodes", nodes)
    copies: list[tuple[KindNode, Path, str]] = []
    monkeypatch.setattr(KindNode, "copy", lambda *arguments: copies.append(arguments))
    cluster = Kind(Cache(tmp_path), Progress(), tmp_path)
    folder = cluster.provide(programs)
    assert folder == "/opt/podium/nvidia-1234"
    assert copies == [(node, programs, folder) for node in nodes]
    (tmp_path / "path/systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "path/systemctl").chmod(0o755)
    cluster.restart("containerd", "podium-worker")
    assert calls.read_text().splitlines() == ["exec --interactive podium-worker systemctl restart containerd"]


def test_the_nodes_of_kind_are_read_from_kind(tmp_path: Path) -> None:
    cluster = Kind(Cache(tmp_path), Progress(), tmp_path)
    tool = Path(cluster.tool("kind"))
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\n[ "$*" = "get nodes --name {kind.NAME}" ] && printf "podium-worker\\npodium-a\\n"\n')
    tool.chmod(0o755)
    assert cluster.nodes == (KindNode("podium-a"), KindNode("podium-worker"))


def test_the_dev_cluster_mounts_the_programs(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cluster = Cluster("test", cache=cache, progress=Progress())
    assert cluster.provide(cache.bin / "nvidia-1234") == "/opt/k8s/nvidia-1234"


class OneNode:
    """A node with two GPUs that records what is run in it."""

    name = "one"

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], str | None]] = []

    def execute(self, argv: Sequence[str], timeout: float = 30.0, stdin: str | None = None) -> str:
        self.ran.append((list(argv), stdin))
        return "GPU PRODUCT\n0 fake\n1 fake\n" if argv[-1] == "show" else ""


class OneNodeCluster:
    """A cluster whose device plugin announces two GPUs once it was applied."""

    def __init__(self, cache: Cache) -> None:
        self.cache, self.progress, self.node = cache, Progress(), OneNode()
        self.nodes = (self.node,)
        self.restarted: list[tuple[str, str | None]] = []
        self.applied: list[str] = []

    def provide(self, folder: Path) -> str:
        return f"/in/the/node/{folder.name}"

    def restart(self, component: str, node: str | None = None) -> None:
        self.restarted.append((component, node))

    def kubectl(self, *arguments: str, timeout: float = 30.0, stdin: str | None = None) -> str:
        if arguments[0] == "apply":
            self.applied.append(stdin or Path(arguments[-1]).read_text())
        allocatable = {nvidia.RESOURCE: "2"} if any("nvidia-device-plugin" in text for text in self.applied) else {}
        return json.dumps({"status": {"allocatable": allocatable}}) if arguments[0] == "get" else ""


def test_toolkit_and_plugin_on_any_cluster(tmp_path: Path) -> None:
    cluster = OneNodeCluster(Cache(tmp_path))
    name = artifacts.folder_name()
    (cluster.cache.bin / name).mkdir(parents=True)  # the programs are built
    nvidia.install_toolkit(cluster)
    ((argv, script),) = cluster.node.ran
    assert argv[:3] == ["/bin/sh", "-s", f"/in/the/node/{name}"]
    assert script == Path(nvidia.__file__).with_name("nvidia_node.sh").read_text()
    assert cluster.restarted == [("containerd", "one")], "containerd reads its configuration at its start"
    assert nvidia.announced(cluster, cluster.node) == 0
    nvidia.start_plugin(cluster)
    assert f"/in/the/node/{name}/nvidia-device-plugin" in cluster.applied[-1]
    assert "PROGRAMS/" not in cluster.applied[-1]
    assert nvidia.announced(cluster, cluster.node) == nvidia.gpus(cluster.node) == 2
