"""The disk or the kernel does not answer for a while: I/O errors, a full disk, no free file descriptor.

`/proc/self/mem` answers EIO at its start, and `/dev/full` refuses every write. The descriptors are really used up.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_builders import TrialServer, cri, pod
from agent_node import Node, order
from agent_writing import Writing, end, started
from descriptors import no_descriptors
from nvml_stub import NvmlStub

from podium_agent.metrics import Metrics
from podium_agent.node_setup import fill_trial_folder
from podium_agent.observe.cgroups import find_remaining_containers
from podium_agent.observe.gpu_notes import GpuNote, GpuNotes
from podium_agent.observe.logs.tail import Tail
from podium_agent.schedule.admissions import Admissions
from podium_core.schema.gpunode import SlotState
from podium_core.sources.batch import Position
from podium_suspension.gpu_state_notes import GpuStateNotes

TRAIN = "ab" * 32
UNREADABLE = Path("/proc/self/mem")


@contextmanager
def io_error(path: Path) -> Iterator[None]:
    """Let every read of this file fail with EIO."""
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(UNREADABLE)
    try:
        yield
    finally:
        path.unlink()
        aside.rename(path)


def texts(tail: Tail) -> list[str]:
    return [line.text for line in tail.read().lines]


def test_a_log_that_cannot_be_read_is_continued_at_its_cursor(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(cri("one", 1))
    tail = Tail(tmp_path, Position())
    assert texts(tail) == ["one"]
    again = Tail(tmp_path, tail.read().position)
    tail.close()
    with io_error(log):
        assert texts(again) == []
        assert isinstance(again.trouble, OSError)
        assert again.trouble.errno == errno.EIO
    with log.open("a") as file:
        file.write(cri("two", 2))
    assert texts(again) == ["two"]
    assert (again.trouble, again.lost) == (None, 0)
    again.close()


def test_without_descriptors_no_file_of_a_log_seems_deleted(tmp_path: Path) -> None:
    (tmp_path / "0.log.20261121-025401").write_text(cri("one", 1))
    (tmp_path / "0.log").write_text(cri("two", 2))
    first = Tail(tmp_path, Position())
    assert texts(first) == ["one"]
    tail = Tail(tmp_path, first.read().position)
    first.close()
    with no_descriptors():
        assert texts(tail) == []
        assert isinstance(tail.trouble, OSError)
        assert tail.trouble.errno == errno.EMFILE
    assert [text for _ in range(4) for text in texts(tail)] == ["two"]
    assert tail.lost == 0
    tail.close()


def test_the_last_values_of_a_log_that_was_unreadable_at_the_end_are_reported(
    write: Callable[..., TrialServer], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(writing: Writing) -> None:
        log, record = writing.machine.log(pod()), started(pod())
        log.write_text(cri('{"acc": 0.5}', 1))
        task = writing.start(record)
        await writing.until(lambda: writing.server.status.get("lastValue") == 0.5, "the first value")
        log.rename(log.with_name("0.log.20261121-025402"))
        log.symlink_to(UNREADABLE)
        await writing.until(lambda: "cannot be read now" in caplog.text, "the message")
        end(record)
        await asyncio.sleep(0.1)  # several passes
        assert not task.done()
        log.unlink()
        log.write_text(cri('{"acc": 0.75}', 2))
        await asyncio.wait_for(task, 60)

    assert write(scene).status["lastValue"] == 0.75
    assert len([one for one in caplog.messages if "cannot be read now" in one]) == 1, "each reason once"


def test_without_descriptors_no_process_seems_to_have_ended(on_node: Callable[..., None]) -> None:
    """Otherwise the next trial would run beside it."""

    def scene(node: Node) -> None:
        running = pod(containers__running=frozenset({TRAIN}))
        node.run(running, TRAIN, os.getpid())
        node.restart_agent()
        ended = pod(status__ended=True, containers__running=frozenset())
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            node.look(ended)
        assert node.state(ended) is SlotState.RUNNING
        assert node.steps(order("b"), ended) == set()

    on_node(scene)


def test_a_process_whose_cgroup_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/cgroup").symlink_to(UNREADABLE)
    with pytest.raises(OSError, match="Input/output error"):
        find_remaining_containers(tmp_path, tmp_path, frozenset({pod().uid}))


def test_a_note_of_a_gpu_that_cannot_be_read_does_not_seem_deleted(nvml: NvmlStub, tmp_path: Path) -> None:
    notes = GpuNotes(tmp_path / "notes")
    notes.write("GPU-0", GpuNote(xid=79))
    with io_error(tmp_path / "notes/GPU-0"):
        notes.clear_deleted()
    assert not notes.of("GPU-0").xid_cleared
    (tmp_path / "notes/GPU-0").unlink()
    notes.clear_deleted()
    assert notes.of("GPU-0").xid_cleared


def test_a_full_disk_is_counted_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics, folder = Metrics(), tmp_path / "notes"
    notes = Admissions(folder, metrics.note_failed)
    folder.mkdir()
    (folder / f".{pod().uid}").symlink_to("/dev/full")

    def failures() -> float:
        return metrics.registry.get_sample_value("podium_agent_failures_total", {"what": "note", "code": "ENOSPC"}) or 0

    notes.note(pod(), ("G",))
    assert failures() == 1
    assert "No space left on device" in caplog.text
    notes.note(pod(), ("G",))
    assert list(notes.read()) == [pod().uid], "the incomplete file was removed, so the next write has room"


def test_an_agent_starts_on_a_full_disk(tmp_path: Path) -> None:
    helper, folder = tmp_path / "helper", tmp_path / "trial"
    helper.write_bytes(b"program")
    fill_trial_folder(folder, helper)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f".{path.name}.new").symlink_to("/dev/full")
    fill_trial_folder(folder, helper)
    helper.write_bytes(b"newer program")
    with pytest.raises(OSError, match="No space left"):
        fill_trial_folder(folder, helper)
    assert (folder / "podium-gate").read_bytes() == b"program"


def test_the_memory_of_a_checkpointed_container_is_known_without_its_disk(tmp_path: Path) -> None:
    """A restore without that memory would destroy the process."""
    notes = GpuStateNotes(tmp_path / "notes")
    notes.write_held(TRAIN, {"G": 5})
    with io_error(tmp_path / "notes" / TRAIN):
        assert notes.held_bytes(TRAIN) == {"G": 5}
    notes.remove(TRAIN)
    assert notes.held_bytes(TRAIN) == {}
