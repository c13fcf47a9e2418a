"""How GPUs reach a container: CDI specifications of the node, its device nodes, and the answer to the kubelet."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from podium_agent.deviceplugin import gpu_access
from podium_agent.deviceplugin.exclusive import ExclusiveGpuService
from podium_agent.deviceplugin.gpu_access import Access, GpuAccess, device_names, parse_specification
from podium_agent.deviceplugin.proto import deviceplugin_pb2 as pb
from podium_agent.deviceplugin.servicer import DevicePluginService, SlotService
from podium_agent.observe.gpu_health import Gpu, Reading, Sample
from podium_agent.observe.telemetry import Telemetry
from podium_agent.settings import AgentSettings, ExtraDevice

NVIDIA, PLUGIN = gpu_access.KINDS
# as `nvidia-ctk cdi generate --device-name-strategy=uuid` of NVIDIA's container toolkit 1.20 writes it, shortened
GENERATED = """---
cdiVersion: 0.5.0
containerEdits:
    env:
        - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu
        - NVIDIA_VISIBLE_DEVICES=void
    hooks:
        - args: [nvidia-cdi-hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so"]
          hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
devices:
    - containerEdits: {deviceNodes: [{hostPath: /run/nvidia/driver/dev/nvidia0, path: /dev/nvidia0}]}
      name: GPU-A
    - containerEdits: {deviceNodes: [{hostPath: /run/nvidia/driver/dev/nvidia1, path: /dev/nvidia1}]}
      name: GPU-B
    - containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}
      name: all
kind: nvidia.com/gpu
"""


def specification(kind: str, *names: str) -> str:
    """Return a specification as JSON."""
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": name} for name in names]})


@dataclass(frozen=True, slots=True)
class Host:
    """The root folder of a node."""

    root: Path

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def make_nodes(self, *names: str) -> None:
        """Make character devices; only root may."""
        (self.root / "dev").mkdir(exist_ok=True)
        for name in names:
            os.mknod(self.root / "dev" / name, 0o600 | stat.S_IFCHR, os.makedev(195, 0))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def cdi(host: Host, *uuids: str) -> tuple[str, ...]:
    return GpuAccess(host.root).of(dict.fromkeys(uuids, 0)).cdi


def test_the_specification_of_nvidias_toolkit_names_the_gpus(host: Host) -> None:
    host.write("etc/cdi/nvidia.yaml", GENERATED)
    assert cdi(host, "GPU-A") == ("nvidia.com/gpu=GPU-A",)
    assert cdi(host, "GPU-A", "GPU-B") == ("nvidia.com/gpu=GPU-A", "nvidia.com/gpu=GPU-B")
    assert cdi(host, "GPU-A", "GPU-C") == (), "a container gets all of its GPUs in the same way"


@pytest.mark.parametrize("folder", ["etc/cdi", "run/cdi", "var/run/cdi"])
def test_each_folder_of_specifications_is_read(host: Host, folder: str) -> None:
    host.write(f"{folder}/gpus.json", specification(NVIDIA, "GPU-A"))
    assert cdi(host, "GPU-A") == ("nvidia.com/gpu=GPU-A",)


def test_a_link_to_run_is_followed_below_the_root(host: Host) -> None:
    host.write("run/cdi/gpus.json", specification(NVIDIA, "GPU-A"))
    (host.root / "var").mkdir()
    (host.root / "var/run").symlink_to("../run")
    assert cdi(host, "GPU-A") == ("nvidia.com/gpu=GPU-A",)


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        ([[(PLUGIN, "A")]], {"A": f"{PLUGIN}=A"}),
        ([[(PLUGIN, "A"), (NVIDIA, "A")]], {"A": f"{NVIDIA}=A"}),
        ([[(PLUGIN, "A")], [(NVIDIA, "A")]], {"A": f"{NVIDIA}=A"}),
        ([[("management.nvidia.com/gpu", "A"), ("other.example/gpu", "B")]], {}),
        ([[(NVIDIA, "A"), (NVIDIA, "A")]], {}),  # two files of one folder: the runtime refuses the device
        ([[(NVIDIA, "A")], [(NVIDIA, "A")]], {"A": f"{NVIDIA}=A"}),  # the file of the first folder counts
        ([[(NVIDIA, "A")], [(NVIDIA, "A"), (NVIDIA, "A")]], {"A": f"{NVIDIA}=A"}),
        ([[(NVIDIA, "A"), (NVIDIA, "A")], [(PLUGIN, "A")]], {"A": f"{PLUGIN}=A"}),
    ],
)
def test_the_device_of_a_gpu(folders: Sequence[Sequence[tuple[str, str]]], named: dict[str, str]) -> None:
    read = [[parse_specification(specification(kind, name)) for kind, name in folder] for folder in folders]
    assert device_names(read) == named


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file: Input should be"),
        ("[]", "the file: Input should be"),
        ("kind: nvidia.com/gpu", "devices: Field required"),
        (specification(NVIDIA, ""), "devices.0.name: String should have at least 1 character"),
        ("kind: [", "it is neither JSON nor YAML"),
        ("{" * 10_000, "it is neither JSON nor YAML"),
        (
            "x" * (gpu_access.MAX_BYTES + 1),
            f"it has {gpu_access.MAX_BYTES + 1} bytes, more than {gpu_access.MAX_BYTES}",
        ),
    ],
)
def test_an_invalid_specification_is_named_and_the_others_are_used(
    host: Host, caplog: pytest.LogCaptureFixture, text: str, why: str
) -> None:
    host.write("etc/cdi/gpus.json", specification(NVIDIA, "GPU-A"))
    invalid = host.write("etc/cdi/invalid.yaml", text)
    access = GpuAccess(host.root)
    for _ in range(2):
        assert access.of({"GPU-A": 0}).cdi == ("nvidia.com/gpu=GPU-A",)
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warning.startswith(f"CDI specification {invalid} is not used: {why}")
    assert warning.endswith("write it again with `nvidia-ctk cdi generate`")


def test_a_specification_may_come_change_and_go(host: Host) -> None:
    access = GpuAccess(host.root)
    assert access.of({"GPU-A": 0}) == Access()
    file = host.write("run/cdi/gpus.json", specification(NVIDIA, "GPU-B"))
    assert access.of({"GPU-A": 0}) == Access()
    host.write("run/cdi/gpus.json", specification(NVIDIA, "GPU-A", "GPU-B"))
    assert access.of({"GPU-A": 0}) == Access(cdi=("nvidia.com/gpu=GPU-A",))
    file.unlink()
    assert access.of({"GPU-A": 0}) == Access()


def test_an_unchanged_specification_is_parsed_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("etc/cdi/nvidia.yaml", GENERATED)
    access = GpuAccess(host.root)
    access.refresh()
    monkeypatch.setattr(gpu_access, "parse_specification", None)  # a call would fail
    assert access.of({"GPU-A": 0}).cdi == ("nvidia.com/gpu=GPU-A",)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: root only")
@pytest.mark.parametrize(
    ("present", "minors", "nodes"),
    [
        (["nvidia0", "nvidiactl", "nvidia-uvm"], {"GPU-A": 0}, ["nvidia0", "nvidiactl", "nvidia-uvm"]),
        (["nvidia1", "nvidia3", "nvidiactl"], {"GPU-A": 3, "GPU-B": 1}, ["nvidia3", "nvidia1", "nvidiactl"]),
        (["nvidiactl", "nvidia-uvm"], {"GPU-A": 0}, []),
        (["nvidia0", "nvidiactl"], {"GPU-A": 0, "GPU-B": 1}, []),
        (["nvidia0", "nvidiactl"], {"GPU-A": None}, []),
    ],
)
def test_without_a_specification_the_device_nodes_are_given(
    host: Host, present: list[str], minors: dict[str, int | None], nodes: list[str]
) -> None:
    host.make_nodes(*present)
    assert GpuAccess(host.root).of(minors) == Access(nodes=tuple(f"/dev/{name}" for name in nodes))


def test_a_file_is_no_device_node(host: Host) -> None:
    host.write("dev/nvidia0", "")
    assert GpuAccess(host.root).of({"GPU-A": 0}) == Access()


# ---- the answer to the kubelet ---------------------------------------------------------------------------------------


class Exclusive:
    """Reservation of exclusive GPUs, which always succeeds."""

    def reserve(self, uuids: tuple[str, ...]) -> None:
        pass


def service(host: Host, exclusive: bool = False, **settings: Any) -> DevicePluginService:
    telemetry = Telemetry(1.0, 1.0)
    gpus = tuple(Gpu(Sample(f"GPU-{name}", minor, minor=minor), 0.0, "Healthy") for minor, name in enumerate("AB"))
    telemetry.reading = Reading(gpus=gpus)
    made = AgentSettings(node_name="n", host_root=host.root, **settings)
    if exclusive:
        return ExclusiveGpuService(made, telemetry, cast(Any, None), cast(Any, Exclusive()))
    return SlotService(made, telemetry)


def allocate(servicer: DevicePluginService, *devices: str) -> Any:
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices)])
    (answer,) = asyncio.run(servicer.Allocate(request, None)).container_responses
    return answer


@pytest.mark.parametrize("exclusive", [False, True])
def test_the_answer_names_the_cdi_devices_and_the_uuids(host: Host, exclusive: bool) -> None:
    host.write("etc/cdi/nvidia.yaml", GENERATED)
    answer = allocate(service(host, exclusive), "GPU-B::0", "GPU-A::0")
    assert [device.name for device in answer.cdi_devices] == ["nvidia.com/gpu=GPU-A", "nvidia.com/gpu=GPU-B"]
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-A,GPU-B"}, "for a runtime without CDI"
    assert list(answer.devices) == []


@pytest.mark.parametrize("exclusive", [False, True])
def test_the_answer_without_a_specification_and_nodes_has_only_the_uuids(host: Host, exclusive: bool) -> None:
    answer = allocate(service(host, exclusive), "GPU-B::0")
    assert (list(answer.cdi_devices), list(answer.devices)) == ([], [])
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-B"}


@pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: root only")
def test_a_device_of_the_settings_replaces_the_one_of_the_node(host: Host) -> None:
    host.make_nodes("nvidia0", "nvidia1", "nvidiactl")
    own = ExtraDevice(host_path="/dev/other", container_path="/dev/nvidiactl", permissions="rwm")
    answer = allocate(service(host, extra_devices=(own,)), "GPU-B::0")
    assert [(device.host_path, device.container_path, device.permissions) for device in answer.devices] == [
        ("/dev/other", "/dev/nvidiactl", "rwm"),
        ("/dev/nvidia1", "/dev/nvidia1", "rw"),
    ]
