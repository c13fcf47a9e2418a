"""The virtual node: its recipe, its command line, what joins it to a cluster, and the guest agent's answers."""

from __future__ import annotations

import base64
import json
import os
import socket
import tarfile
import threading
import tomllib
from pathlib import Path

import pytest
from script_modules import load

from podium_devcluster.artifacts import tiny_images
from podium_devcluster.main import parser, rest
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import pki
from podium_devcluster.runtime.network import NodeAddress, addresses
from podium_devcluster.shell import CommandError
from podium_devcluster.vm import guest, guest_files, join, qemu, root_image

NODE = NodeAddress("vm-1", 41)
OTHERS = addresses(("node-1",))
RUNTIMES = "io.containerd.cri.v1.runtime"


def test_another_recipe_has_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = root_image.folder_name()
    assert before == root_image.folder_name()
    monkeypatch.setattr(guest_files, "INIT", guest_files.INIT + "\n")
    assert root_image.folder_name() != before


def test_an_image_in_the_cache_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_image, "missing_packages", list)
    cache = Cache(tmp_path)
    (cache.machines / root_image.folder_name()).mkdir(parents=True)
    assert root_image.ensure(cache, Progress()).disk == cache.machines / root_image.folder_name() / "root.ext4"


def test_each_unit_of_the_guest_has_a_target() -> None:
    targets = {guest_files.wanted_by(unit) for unit in guest_files.UNITS.values()}
    assert targets == {"sysinit.target", "multi-user.target"}
    assert not {f"{name}.service" for name in guest_files.UNITS} & set(guest_files.MASKED)


def test_containerd_has_both_runtimes_with_the_systemd_driver() -> None:
    config = tomllib.loads(join.containerd())["plugins"][RUNTIMES]
    runtimes = config["containerd"]["runtimes"]
    assert config["containerd"]["default_runtime_name"] == "runc"
    assert {name: one["options"]["SystemdCgroup"] for name, one in runtimes.items()} == {"runc": True, "crun": True}
    assert runtimes["crun"]["options"]["BinaryName"] == "/usr/bin/crun"
    assert "restrict_oom_score_adj" not in config


def test_the_kubelet_is_configured_as_on_a_machine_of_its_own() -> None:
    config = json.loads(join.kubelet(NODE))
    assert config["cgroupDriver"] == "systemd"
    assert config["evictionHard"] == {"memory.available": "100Mi"}
    assert not {"failCgroupV1", "cgroupRoot", "enforceNodeAllocatable"} & config.keys()


def test_the_disk_of_the_configuration_is_a_tar_file(tmp_path: Path) -> None:
    disk = tmp_path / "config.tar"
    contents = join.files(NODE, "vm", OTHERS) | {"pki/vm-1.key": "key"}
    join.write_disk(contents, disk)
    assert disk.stat().st_size % 65536 == 0
    with tarfile.open(disk) as archive:
        assert {member.name for member in archive} == contents.keys()
        assert archive.getmember("pki/vm-1.key").mode == 0o600
        script = archive.extractfile("etc/node/net.sh")
        assert script is not None
        assert b"ip addr add 10.88.0.51/24 dev eth0\n" in script.read()
    assert "--hostname-override=vm-1" in contents["etc/node/env"]
    assert "ip route add 10.89.1.0/24 via 10.88.0.11\n" in contents["etc/node/net.sh"]


def test_a_node_that_joins_later_gets_a_certificate_of_the_same_authority(tmp_path: Path) -> None:
    pki.create(tmp_path, OTHERS)
    pki.add(tmp_path, NODE)
    first = (tmp_path / "vm-1.crt").read_text()
    pki.add(tmp_path, NODE)
    assert (tmp_path / "vm-1.crt").read_text() == first
    assert not pki.create(tmp_path, OTHERS), "the others are still current"


def test_the_command_line_names_all_disks_in_the_order_of_the_guest(tmp_path: Path) -> None:
    files = qemu.Files(tmp_path, tmp_path / "console.log")
    argv = qemu.command("vm-1", root_image.RootImage(tmp_path), files, qemu.Hardware(), "vm1")
    drives = [word.split(",")[2] for word in argv if word.startswith("if=none")]
    assert drives == [f"file={file}" for file in (files.root, files.store, files.config)]
    assert guest_files.CONFIG_DISK == "/dev/vdc"
    assert argv[argv.index("-cpu") + 1] == "max"
    assert "ifname=vm1" in argv[argv.index("-netdev") + 1]


@pytest.mark.parametrize(("printed", "works"), [(guest_files.TEST_BOOT_ENDED, True), ("Kernel panic", False)])
def test_kvm_works_only_if_the_kernel_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, works: bool
) -> None:
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(qemu, "_DEVICE", device)
    monkeypatch.setattr(qemu, "run", lambda argv, timeout: f"\n{printed}\n")
    assert qemu.kvm_works(root_image.RootImage(tmp_path)) is works


def test_without_the_device_or_an_end_of_the_boot_kvm_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], timeout: float) -> str:
        raise CommandError(argv, "did not end", "")

    monkeypatch.setattr(qemu, "run", run)
    monkeypatch.setattr(qemu, "_DEVICE", tmp_path / "kvm")
    assert not qemu.kvm_works(root_image.RootImage(tmp_path))
    (tmp_path / "kvm").touch()
    assert not qemu.kvm_works(root_image.RootImage(tmp_path))


def test_answers_of_the_guest_agent() -> None:
    assert guest.parse_answer(b'\xff{"return": 7}\n') == {"return": 7}
    status = {"exited": True, "exitcode": 3, "out-data": base64.b64encode(b"text\n").decode()}
    assert guest.output_of(status) == guest.Output(3, "text\n", "")
    assert guest.output_of({"exited": True, "signal": 9}).code == 137


def test_a_program_runs_through_the_agents_socket(tmp_path: Path) -> None:
    server = socket.create_server(str(tmp_path / "guest.sock"), family=socket.AF_UNIX)

    def serve() -> None:
        with server, server.accept()[0] as client, client.makefile("rwb") as stream:
            running = True
            for line in stream:
                request = json.loads(line)
                match request["execute"]:
                    case "guest-sync":
                        answer = (
                            {"return": 1},
                            {"return": request["arguments"]["id"]},
                        )  # the first: to an earlier client
                    case "guest-exec":
                        assert request["arguments"] == {"path": "/bin/echo", "arg": ["a"], "capture-output": True}
                        answer = ({"return": {"pid": 5}},)
                    case _:
                        out = base64.b64encode(b"a\n").decode()
                        done = {"exited": True, "exitcode": 0, "out-data": out}
                        answer = ({"return": {"exited": False} if running else done},)
                        running = False
                for one in answer:
                    stream.write(json.dumps(one).encode() + b"\n")
                stream.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    assert guest.execute(tmp_path / "guest.sock", ["/bin/echo", "a"], 10) == guest.Output(0, "a\n", "")
    thread.join(10)
    assert not thread.is_alive()


def test_no_agent_is_no_answer(tmp_path: Path) -> None:
    assert not guest.answers(tmp_path / "guest.sock")


def test_a_listing_of_cgroups_is_read() -> None:
    module = load(Path(__file__).parents[2] / "vm/guest_evidence.py")
    listing = "/s/a.scope/container 1 1 7 8\n/s/a.scope 0 0\n"
    assert module.freezers_of(listing) == [
        module.Freezer("/s/a.scope/container", True, True, (7, 8)),
        module.Freezer("/s/a.scope", False, False, ()),
    ]
    assert module.freezers_of("") == []


def test_the_command_accepts_a_program_for_the_guest() -> None:
    options = parser().parse_args(["vm", "exec", "--", "uname", "-r"])
    assert (options.action, rest(options.arguments)) == ("exec", ["uname", "-r"])


def test_the_trials_image_is_one_that_every_node_has() -> None:
    text = (Path(__file__).parents[2] / "vm/virtual_node.py").read_text()
    assert f'"{tiny_images.BUSYBOX}"' in text
    assert os.access(Path(__file__).parents[2] / "vm/trial.sh", os.R_OK)
