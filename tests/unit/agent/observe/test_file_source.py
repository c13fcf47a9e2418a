"""Files of a trial with metrics, on a machine of folders: growing, replaced, written again, and hostile ones."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_builders import FIRST_PID, Machine, pod
from descriptors import no_descriptors, no_threads

from podium_agent.observe.cgroups import Container
from podium_agent.observe.sources.volume_source import ContainerPlace, VolumeSource, file_source
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources import file_reader
from podium_core.sources.batch import CHUNK, LONGEST_LINE, Position

TRAIN = "ab" * 32


class Trial:
    """A container with a file, and the source that reads it."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.machine = Machine(folder)
        self.freezer = self.machine.run(pod(), TRAIN)
        self.container: Container | None = Container(TRAIN, FIRST_PID, self.freezer)
        self.root = self.machine.root(TRAIN)
        (self.root / "logs").mkdir()
        self.file = self.root / "logs" / "metrics.jsonl"
        given = {"metric": "acc", "direction": "maximize", "container": "train", "source": "file"}
        self.metrics = MetricsConfig.model_validate(given | {"path": "/logs/metrics.jsonl"} | more)
        self.seconds = 60.0
        self.source = self.open(Position())

    def open(self, position: Position) -> VolumeSource:
        place = ContainerPlace(self.machine.folder / "proc", lambda: self.container, self.seconds)
        self.source = file_source(place, self.metrics, position)
        return self.source

    def append(self, text: str) -> None:
        with self.file.open("a") as file:
            file.write(text)

    def texts(self, last: bool = False) -> list[str]:
        """Return all lines that are there now."""

        async def read() -> list[str]:
            texts: list[str] = []
            while True:
                batch = await self.source.read(last)
                texts += [line.text for line in batch.lines]
                self.position = batch.position
                if not batch.more:
                    return texts

        return asyncio.run(read())


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_a_file_that_grows_is_read_line_by_line(trial: Trial) -> None:
    assert trial.texts() == []
    assert "the file does not exist in the container yet" in trial.source.explain()
    trial.append("")
    assert trial.texts() == []
    assert "the file is empty" in trial.source.explain()
    trial.append('{"step": 1}\n{"st')
    assert trial.texts() == ['{"step": 1}']
    trial.append('ep": 2}\n{"step": 3}')
    assert trial.texts() == ['{"step": 2}']
    assert trial.source.explain() == ""
    assert trial.texts(last=True) == ['{"step": 3}'], "nothing ends the last line of a file that stays as it is"
    assert trial.texts(last=True) == []


def test_a_restarted_agent_continues_and_a_new_file_begins_again(trial: Trial) -> None:
    trial.append('{"step": 1}\n{"step": 2}\n')
    assert len(trial.texts()) == 2
    trial.append('{"step": 3}\n')
    trial.open(trial.position)
    assert trial.texts() == ['{"step": 3}']
    trial.file.unlink()  # an ephemeral disk
    trial.append('{"step": 7}\n')
    trial.open(trial.position)
    assert trial.texts() == ['{"step": 7}']


def test_a_file_written_again_in_place_and_a_replaced_one(trial: Trial) -> None:
    trial.append('{"step": 1}\n{"step": 2}\n')
    assert len(trial.texts()) == 2
    trial.file.write_text('{"step": 5}\n')
    assert trial.texts() == ['{"step": 5}']
    trial.append('{"step": 6}')
    assert trial.texts() == []
    trial.file.rename(trial.file.with_suffix(".old"))
    trial.append('{"step": 7}\n')
    assert trial.texts() == ['{"step": 6}', '{"step": 7}']


def test_lines_written_just_before_a_replacement_are_read(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.append('{"step": 1}\n')
    assert trial.texts() == ['{"step": 1}']
    pread, rotated = os.pread, []

    def late(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        if size == CHUNK and not rotated:  # the script writes and rotates just after this read
            rotated.append(offset)
            trial.append('{"step": 2}\n')
            trial.file.rename(trial.file.with_suffix(".old"))
            trial.append('{"step": 3}\n')
        return data

    monkeypatch.setattr(file_reader.os, "pread", late)
    assert trial.texts() == ['{"step": 2}', '{"step": 3}']


def test_the_last_lines_are_read_when_the_container_has_ended(trial: Trial) -> None:
    assert trial.texts() == []
    trial.append('{"step": 1}\n')
    (trial.machine.folder / "roots" / "gone").mkdir()
    trial.machine.end(trial.freezer)
    assert trial.texts(last=True) == ['{"step": 1}']


def test_links_stay_inside_the_container(trial: Trial, tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text('{"step": 1, "acc": 0.9}\n')
    trial.file.symlink_to(secret)
    assert trial.texts() == []
    assert "does not exist" in trial.source.explain(), "the link is resolved inside the container's root"
    trial.file.unlink()
    trial.file.symlink_to("../../../../../../.." + str(secret))
    assert trial.texts() == []
    (trial.root / "etc").mkdir()
    (trial.root / "etc" / "real").write_text("inside\n")
    trial.file.unlink()
    trial.file.symlink_to("/etc/real")
    assert trial.texts() == ["inside"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.mkdir(), "is not a regular file"),
        (lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)), "is not a regular file"),
        (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    ],
    ids=["a FIFO", "a folder", "a device", "a loop"],
)
def test_what_is_not_a_regular_file_is_never_opened(trial: Trial, make: Callable[[Path], None], why: str) -> None:
    try:
        make(trial.file)
    except PermissionError:
        pytest.skip("only root makes devices")
    assert trial.texts() == []
    assert why in trial.source.explain()


def test_what_the_trial_may_not_read_the_agent_does_not_read_for_it(trial: Trial) -> None:
    trial.append("secret\n")
    trial.file.chmod(0o600)
    status = trial.machine.folder / "proc" / str(FIRST_PID) / "status"
    status.write_text("Uid:\t1000\t1000\t1000\nGid:\t1000\t1000\nGroups:\t4 5\n")
    if os.stat(trial.file).st_uid == 1000:
        pytest.skip("the test runs as the trial's user")
    assert trial.texts() == []
    assert "the trial's process may not read" in trial.source.explain()
    trial.file.chmod(0o644)
    assert trial.texts() == ["secret"]


def test_files_of_the_kernel_are_refused(trial: Trial) -> None:
    trial.metrics = trial.metrics.model_copy(update={"path": "/version"})
    process = trial.machine.folder / "proc" / str(FIRST_PID)
    (process / "root").unlink()
    (process / "root").symlink_to("/proc")
    trial.open(Position())
    assert trial.texts() == []
    assert "is a file of the kernel" in trial.source.explain()


def test_an_endless_file_costs_one_chunk_a_read(trial: Trial) -> None:
    with trial.file.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte

    async def read() -> int:
        size = 0
        for _ in range(40):
            batch = await trial.source.read(False)
            size += sum(len(line.text) for line in batch.lines)
            assert batch.more
        return size

    assert asyncio.run(read()) <= LONGEST_LINE + 40 * CHUNK


def test_a_volume_that_hangs_does_not_hang_the_reader(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.append("one\n")
    answers = threading.Event()
    pread = os.pread

    def hanging(*about: int) -> bytes:
        answers.wait()
        return pread(*about)

    monkeypatch.setattr(file_reader.os, "pread", hanging)
    trial.seconds = 0.01
    trial.open(Position())

    async def read() -> list[str]:
        assert (await trial.source.read(False)).lines == ()
        assert "VolumeUnresponsive" in trial.source.explain()
        assert (await trial.source.read(False)).lines == (), "the call before still hangs"
        answers.set()
        while True:
            batch = await trial.source.read(False)
            if batch.lines:
                return [line.text for line in batch.lines]
            await asyncio.sleep(0.01)

    assert asyncio.run(read()) == ["one"]
    trial.source.close()


def test_a_csv_file_continues_with_its_header(tmp_path: Path) -> None:
    trial = Trial(tmp_path, format="csv", additional=("loss",))
    trial.append("step;acc;loss\n1;0,5;2\n")
    assert [trial.source.parse(text) for text in trial.texts()][1][0].value == 0.5
    trial.append("2;0,75;1\n")
    trial.open(trial.position)
    (line,) = (trial.source.parse(text) for text in trial.texts())
    assert (line[0].step, line[0].value, line[0].additional[0].value) == (2.0, 0.75, 1.0)


def test_a_csv_file_begun_again_meanwhile_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Its first line is the header of the old one, and it may be longer by now."""
    trial = Trial(tmp_path, format="csv")
    trial.append("step,acc\n" + "".join(f"{step},0.25\n" for step in range(100)))
    assert len(trial.texts()) == 101
    old = trial.position
    trial.file.write_text("step,acc\n" + "".join(f"{step},0.75\n" for step in range(200)))
    trial.open(old)
    assert len(trial.texts()) == 201
    trial.append("200,0.5\n")
    trial.open(trial.position)
    assert trial.texts() == ["200,0.5"]


@pytest.mark.parametrize("back", [0, 3, 90], ids=["after the lines", "at an announced step", "at an early one"])
def test_a_position_before_the_last_bytes_that_were_read_is_continued(trial: Trial, back: int) -> None:
    trial.append("".join(f"{number:02}\n" for number in range(100)) + "half")
    assert len(trial.texts()) == 100
    trial.open(replace(trial.position, offset=trial.position.offset - back))
    trial.append("\n")
    assert len(trial.texts()) == back // 3 + 1


def test_the_cursor_of_an_earlier_version_is_continued(trial: Trial) -> None:
    """It holds the hash of the first line alone."""
    trial.append('{"step": 1}\n{"step": 2}\n')
    trial.texts()
    first = hashlib.sha256(b'{"step": 1}').hexdigest()[:32]
    assert trial.position.fingerprint.startswith(first)
    trial.append('{"step": 3}\n')
    trial.open(replace(trial.position, fingerprint=first))
    assert trial.texts() == ['{"step": 3}']


@pytest.mark.parametrize("last", ["x", "x-y", "9" * 5000 + "-y", "-", "-5-y"])
def test_a_cursor_that_no_agent_wrote_begins_the_file_again(trial: Trial, last: str) -> None:
    trial.append('{"step": 1}\n')
    trial.texts()
    first = trial.position.fingerprint.partition("-")[0]
    trial.open(replace(trial.position, fingerprint=f"{first}-{last}"))
    assert trial.texts() == ['{"step": 1}']


def test_without_threads_a_file_is_continued_later(trial: Trial) -> None:
    before = len(os.listdir("/proc/self/fd"))
    trial.append("one\n")
    assert trial.texts() == ["one"]
    trial.append("two\n")
    with no_threads():
        assert trial.texts() == []
        assert trial.source.fault is not None
        assert trial.source.fault.errno == errno.EAGAIN
        assert "Resource temporarily unavailable" in trial.source.explain()
    assert trial.texts() == ["two"]
    assert trial.source.fault is None
    with no_threads():
        assert trial.texts() == []
    trial.source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_closes_every_descriptor(trial: Trial) -> None:
    before = len(os.listdir("/proc/self/fd"))
    trial.append("x\n")
    trial.texts()
    trial.source.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("spare", range(5))
def test_without_descriptors_a_file_is_continued_at_its_position_later(trial: Trial, spare: int) -> None:
    trial.append('{"step": 1}\n')
    assert trial.texts() == ['{"step": 1}']
    trial.source.close()
    source = trial.open(trial.position)

    async def starved() -> int:
        with no_descriptors(spare):
            return len((await source.read(False)).lines)

    assert asyncio.run(starved()) == 0
    assert source.fault is None or source.fault.errno == errno.EMFILE
    assert spare or source.fault is not None
    trial.append('{"step": 2}\n')
    assert trial.texts() == ['{"step": 2}']
    assert source.fault is None


def test_a_file_that_is_not_there_is_no_fault_of_the_node(trial: Trial) -> None:
    assert trial.texts() == []
    assert trial.source.fault is None


def test_a_disk_error_while_a_file_is_opened_keeps_its_position(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.append('{"step": 1}\n')
    assert trial.texts() == ['{"step": 1}']
    trial.source.close()
    source = trial.open(trial.position)

    def broken(descriptor: int) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(file_reader, "_fingerprint", broken)
        assert trial.texts() == []
    assert source.fault is not None
    assert "Input/output error" in source.explain()
    trial.append('{"step": 2}\n')
    assert trial.texts() == ['{"step": 2}']
