"""Markers: what counts as a save, and that reading one leads a privileged agent nowhere else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from agent_builders import Machine, cri, pod, pod_uid
from hypothesis import given
from hypothesis import strategies as st

from podium_agent.observe.cgroups import Container
from podium_agent.report.checkpoint_watch import CheckpointReader
from podium_agent.report.checkpoints import (
    Folder,
    UnsafePathError,
    report_in_hello,
    report_in_log,
)
from podium_core.attempts.completion_marker import parse_completion_marker
from podium_core.attempts.lost_work import CompletionMarker, GateReport

TRAIN = "ab" * 32
PATH = "/data/ckpt"


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        (b"12", CompletionMarker(12.0)),
        (b" 0.5\n", CompletionMarker(0.5)),
        (b'{"step": 12}', CompletionMarker(12.0)),
        (b'{"step": 12.5, "path": "step-12", "onRequest": true}', CompletionMarker(12.5, "step-12", True)),
        (b'{"step": 1, "path": "a/./b//c", "more": [1]}', CompletionMarker(1.0, "a/b/c")),
        (b'{"step": 1, "path": ""}', CompletionMarker(1.0)),
        (b'{\n\t"step": 1\r\n}', CompletionMarker(1.0)),
        (b"", None),
        (b"null", None),
        (b"true", None),
        (b'"12"', None),
        (b"-1", None),
        (b"NaN", None),
        (b"1e999", None),
        (b'{"step": true}', None),
        (b'{"step": "12"}', None),
        (b'{"step": -1}', None),
        (b'{"step": Infinity}', None),
        (b'{"path": "x"}', None),
        (b'{"step": 1, "path": "/etc"}', None),
        (b'{"step": 1, "path": "../other-trial"}', None),
        (b'{"step": 1, "path": "a/../../b"}', None),
        (b'{"step": 1, "path": 7}', None),
        (b'{"step": 1, "path": "a\\u0000b"}', None),
        (b'{"step": 1, "onRequest": "yes"}', None),
        (b'{"step": 1', None),
        (b'{"step": 1} x', None),
        (b"[" * 4000, None),
        (b"\xff\xfe", None),
        (b" " * 4095 + b"1", CompletionMarker(1.0)),
        (b" " * 4096 + b"1", None),
    ],
)
def test_valid_completion_markers(text: bytes, marker: CompletionMarker | None) -> None:
    assert parse_completion_marker(text) == marker


@given(st.binary(max_size=200))
def test_invalid_markers_raise_no_error(text: bytes) -> None:
    parse_completion_marker(text)
    report_in_hello(b'gate {"checkpoint": ' + text + b"}\n")


def test_a_gate_report_follows_the_same_rules() -> None:
    assert report_in_hello(b'gate {"checkpoint": {"step": 1}}\n') == GateReport(CompletionMarker(1.0))
    assert report_in_hello(b'gate {"checkpoint": 1}, "x": {}}\n') == GateReport(None), "no way to say two things"
    assert report_in_hello(b"gate\n") is None


def test_a_gate_report_is_read_from_its_log_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "podium-gate"
    assert report_in_log(folder) is None
    folder.mkdir()
    (folder / "0.log").write_text(cri("wait: saved: 7") + cri("saved: 3"))
    assert report_in_log(folder) == GateReport(CompletionMarker(3.0))
    (folder / "0.log").write_text(cri('saved: {"step": 4, "path": "s"}') + cri("saved: null") + cri("go: it is"))
    assert report_in_log(folder) == GateReport(None)


class Place:
    """A trial's container with its checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        self.machine.run(pod(), TRAIN, pid=77)
        self.proc = folder / "proc"
        self.root = self.machine.root(TRAIN)
        self.folder = self.root / PATH.lstrip("/")
        self.folder.mkdir(parents=True)
        self.container = Container(TRAIN, 77, self.machine.run(pod("b"), "cd" * 32))
        self.secret = folder / "secret"
        self.secret.mkdir()
        (self.secret / "podium-checkpoint.json").write_text("666")

    def read(self) -> CompletionMarker | None:
        with closing(Folder.open(self.proc, self.container, PATH)) as folder:
            return folder.read()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_marker_is_read_and_read_again_when_the_container_is_gone(place: Place) -> None:
    assert place.read() is None
    with closing(Folder.open(place.proc, place.container, PATH)) as folder:
        (place.folder / "podium-checkpoint.json").write_text("3")
        assert folder.read() == CompletionMarker(3.0)
        (place.folder / "podium-checkpoint.json").write_text('{"step": 4}')
        place.root.rename(place.root.with_name("unmounted"))
        (place.proc / "77/root").unlink()
        assert folder.read() == CompletionMarker(4.0)


def link_the_marker(place: Place) -> None:
    (place.folder / "podium-checkpoint.json").symlink_to(place.secret / "podium-checkpoint.json")


def a_fifo(place: Place) -> None:
    os.mkfifo(place.folder / "podium-checkpoint.json")


def a_folder(place: Place) -> None:
    (place.folder / "podium-checkpoint.json").mkdir()


def a_device(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(place.folder / "podium-checkpoint.json", 0o666 | 0o020000, os.makedev(1, 5))


def too_long(place: Place) -> None:
    (place.folder / "podium-checkpoint.json").write_bytes(b" " * 5000 + b"1")


@pytest.mark.parametrize("trap", [link_the_marker, a_fifo, a_folder, a_device, too_long], ids=lambda t: t.__name__)
def test_only_a_small_regular_file_is_a_marker(place: Place, trap: Callable[[Place], None]) -> None:
    trap(place)
    assert place.read() is None


@pytest.mark.parametrize("linked", ["data", "data/ckpt"])
def test_no_link_is_followed_on_the_way(place: Place, linked: str) -> None:
    step = place.root / linked
    step.rename(place.root / "aside")
    step.symlink_to(place.secret)
    with pytest.raises(UnsafePathError, match="is a link or not a folder"):
        place.read()


@pytest.mark.parametrize("path", ["data", "/data/../etc", ""])
def test_odd_paths(place: Place, path: str) -> None:
    with pytest.raises(UnsafePathError, match="is not absolute or contains"):
        Folder.open(place.proc, place.container, path)


def test_a_pid_that_is_another_process_by_now_is_not_entered(place: Place) -> None:
    (place.proc / "77/cgroup").write_text(f"6:freezer:/pod{pod_uid('z')}/{'ef' * 32}\n")
    with pytest.raises(ProcessLookupError):
        place.read()


def test_nothing_stays_open(place: Place) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (place.folder / "podium-checkpoint.json").write_text("3")
    assert place.read() == CompletionMarker(3.0)
    place.folder.rename(place.root / "aside")
    with pytest.raises(FileNotFoundError):
        place.read()
    place.folder.symlink_to(place.secret)
    with pytest.raises(UnsafePathError):
        place.read()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_hung_volume_blocks_one_thread_until_it_answers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does when its server is away: the call does not come back, and no signal reaches it."""
    (place.folder / "podium-checkpoint.json").write_text("3")
    back, closed = threading.Event(), threading.Event()
    reading, closing_it = Folder.read, Folder.close

    def hang(folder: Folder) -> CompletionMarker | None:
        assert back.wait(20)
        return reading(folder)

    def close(folder: Folder) -> None:
        closing_it(folder)
        closed.set()

    monkeypatch.setattr(Folder, "read", hang)
    monkeypatch.setattr(Folder, "close", close)
    before = threading.active_count()

    async def story() -> None:
        looker = CheckpointReader(place.proc, place.container, PATH)
        for _ in range(3):
            assert await looker.look(0.05) is None
            assert looker.trouble.startswith("VolumeUnresponsive")
        assert threading.active_count() == before + 1
        looker.close()
        assert not closed.is_set(), "the thread still uses it"
        back.set()
        assert await asyncio.to_thread(closed.wait, 10)
        assert await looker.look(1.0) is None, "closed is closed"

    asyncio.run(story())
