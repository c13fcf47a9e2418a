"""What is refused before a container is checkpointed: runtimes, places, pods, open files; and the facts behind it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from podium_agent.migration.eligibility import ContainerFacts, NodeRuntime, ineligible
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.facts import NodeAddress, Pod
from podium_agent.migration.open_files import OpenFiles, open_files_of
from podium_agent.migration.runtimes import Runtime, checkpoint_unsupported, parse, restore_unsupported

HERE = NodeRuntime("node-1", "containerd://2.1.9", "amd64")
THERE = NodeRuntime("node-2", "containerd://2.1.9", "amd64")
FIT = ContainerFacts(("train",), (("saves", "persistentVolumeClaim"),), "registry/trial@sha256:" + "0" * 64)
WRITES = OpenFiles(frozenset({"/ckpt/run/events"}), frozenset({"/ckpt/run/events"}))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("containerd://2.1.9", Runtime("containerd", (2, 1, 9))),
        ("containerd://v2.3.4-rc.1", Runtime("containerd", (2, 3, 4))),
        ("cri-o://1.34", Runtime("cri-o", (1, 34, 0))),
        ("docker://Unknown", None),
        ("", None),
    ],
)
def test_runtimes_are_parsed(said: str, found: Runtime | None) -> None:
    if found is not None:
        assert parse(said) == found
        return
    with pytest.raises(MigrationError) as refused:
        parse(said)
    assert refused.value.code == "RuntimeUnknown"


@pytest.mark.parametrize(
    ("said", "writes", "restores", "switched_on"),
    [
        ("containerd://1.7.30", "RuntimeTooOld", "RuntimeTooOld", "RuntimeTooOld"),
        ("containerd://2.0.5", None, "RuntimeTooOld", "RuntimeTooOld"),
        ("containerd://2.1.0", None, None, None),
        ("containerd://2.2.6", None, None, None),
        ("containerd://2.2.7", None, "RestoreDisabled", None),
        ("containerd://2.3.3", None, None, None),
        ("containerd://2.3.4", None, "RestoreDisabled", None),
        ("containerd://2.4.0", None, "RestoreUnsupported", "RestoreUnsupported"),
        ("containerd://3.0.0", None, "RestoreUnsupported", "RestoreUnsupported"),
        ("cri-o://1.24.6", "RuntimeTooOld", "RuntimeTooOld", "RuntimeTooOld"),
        ("cri-o://1.36.0", None, None, None),
        ("docker://20.10.1", "RuntimeUnknown", "RuntimeUnknown", "RuntimeUnknown"),
    ],
)
def test_which_runtimes_write_and_restore_checkpoints(
    said: str, writes: str | None, restores: str | None, switched_on: str | None
) -> None:
    runtime = parse(said)
    answers = (checkpoint_unsupported(runtime), restore_unsupported(runtime, False), restore_unsupported(runtime, True))
    assert tuple(answer.code if answer else None for answer in answers) == (writes, restores, switched_on)


@pytest.mark.parametrize(
    ("facts", "target", "code", "named"),
    [
        (FIT, THERE, None, ""),
        (FIT, None, None, ""),
        (FIT, replace(THERE, runtime="cri-o://1.36.0"), "RuntimesDiffer", "cri-o 1.36.0"),
        (FIT, replace(THERE, architecture="arm64"), "ArchitecturesDiffer", "arm64"),
        (FIT, replace(THERE, runtime="containerd://2.4.1"), "RestoreUnsupported", "containerd 2.4.1"),
        (replace(FIT, containers=("train", "logs")), THERE, "MultipleContainers", "train, logs"),
        (replace(FIT, host_namespaces=True), THERE, "HostNamespaces", "network"),
        (replace(FIT, volumes=(("work", "emptyDir"),)), THERE, "NodeLocalVolume", "work (emptyDir)"),
        (replace(FIT, volumes=(("data", "hostPath"),)), THERE, "NodeLocalVolume", "data (hostPath)"),
        (replace(FIT, volumes=(("of-tomorrow", "novel"),)), THERE, "NodeLocalVolume", "of-tomorrow"),
        (replace(FIT, image_id="sha256:" + "0" * 64), THERE, "ImageWithoutDigest", "sha256:0000"),
        (replace(FIT, image_id=""), THERE, "ImageWithoutDigest", "unknown"),
        (
            replace(FIT, open_files=OpenFiles(frozenset({"/lib/libcuda.so.570"}))),
            THERE,
            "GPUAttached",
            "/lib/libcuda.so.570",
        ),
        (replace(FIT, open_files=OpenFiles(frozenset({"/dev/nvidia0"}))), THERE, "GPUAttached", "/dev/nvidia0"),
        (replace(FIT, open_files=OpenFiles(frozenset({"/lib/libcuda.so.570"})), off_gpu=True), THERE, None, ""),
        (
            replace(FIT, open_files=OpenFiles(frozenset({"/dev/nvidia0"})), off_gpu=True),
            THERE,
            "GPUAttached",
            "/dev/nvidia0",
        ),
        (replace(FIT, open_files=OpenFiles(frozenset({"anon_inode:[io_uring]"}))), THERE, "IOUringInUse", "io_uring"),
        (replace(FIT, open_files=OpenFiles(frozenset({"/lib/libc.so.6", "socket:[7]"}))), THERE, None, ""),
        (replace(FIT, mounts=("/ckpt",), open_files=WRITES), THERE, "VolumeFileOpen", "/ckpt/run/events"),
        (replace(FIT, mounts=("/ckpt/",), open_files=WRITES), THERE, "VolumeFileOpen", "/ckpt/run/events"),
        (replace(FIT, mounts=("/ckp",), open_files=WRITES), THERE, None, ""),
        (replace(FIT, mounts=("/ckpt",), open_files=OpenFiles(WRITES.all)), THERE, None, ""),
    ],
)
def test_a_container_that_cannot_be_migrated_is_refused_with_a_reason(
    facts: ContainerFacts, target: NodeRuntime | None, code: str | None, named: str
) -> None:
    refused = ineligible(facts, HERE, target)
    assert (refused.code if refused else None) == code
    assert named in (refused.message if refused else "")


def test_an_old_runtime_of_the_source_is_refused_without_a_target() -> None:
    refused = ineligible(FIT, replace(HERE, runtime="containerd://1.7.1"), None)
    assert refused is not None
    assert refused.code == "RuntimeTooOld"


def test_the_open_files_of_this_process_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "held"
    with file.open("w"):
        found = open_files_of([os.getpid(), 2**22 + 1])  # the second is beyond the kernel's greatest pid
    assert str(file) in found.written & found.all
    assert any("python" in path or "libc" in path for path in found.all)
    with file.open():
        found = open_files_of([os.getpid()])
    assert str(file) in found.all - found.written
    assert str(file) not in open_files_of([os.getpid()]).all


def test_a_pod_and_a_node_as_the_api_writes_them() -> None:
    pod = Pod.model_validate(
        {
            "metadata": {"name": "t-0"},
            "spec": {
                "nodeName": "node-1",
                "hostIPC": True,
                "containers": [{"name": "train", "volumeMounts": [{"name": "b", "mountPath": "/b"}]}],
                "initContainers": [
                    {"name": "gate", "volumeMounts": [{"name": "of-the-gate", "mountPath": "/podium"}]},
                    {"name": "proxy", "restartPolicy": "Always", "volumeMounts": [{"name": "a", "mountPath": "/a"}]},
                ],
                "volumes": [
                    {"name": "a", "emptyDir": {}},
                    {"secret": {"secretName": "s"}, "name": "b"},
                    {"name": "of-the-gate", "emptyDir": {}},
                ],
            },
            "status": {
                "containerStatuses": [{"name": "train", "containerID": "containerd://abc", "imageID": "i@sha256:1"}]
            },
        }
    )
    assert pod.container_id("train") == "abc"
    assert pod.container_id("gate") == ""
    opened = OpenFiles(frozenset({"/x"}))
    assert pod.container_facts("train", opened, off_gpu=True) == ContainerFacts(
        ("train", "proxy"), (("a", "emptyDir"), ("b", "secret")), "i@sha256:1", True, ("/b",), opened, True
    )
    node = NodeAddress.model_validate(
        {
            "metadata": {"name": "node-1"},
            "status": {
                "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.9", "architecture": "amd64"},
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10251}},
            },
        }
    )
    assert (node.address, node.port, node.node_facts()) == ("10.0.0.1", 10251, HERE)
