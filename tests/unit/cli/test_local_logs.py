"""`podium logs --from-files`: the log files of `podium run`, their last lines, and the attempts that follow."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium_cli.exit_codes import Exit
from podium_cli.logs import local_log
from podium_cli.logs.local_log import start_of_tail
from podium_cli.logs.log_options import LogOptions
from podium_cli.main import run
from podium_cli.samples import search_at


def write_trial(folder: Path, **changes: Any) -> None:
    """Write digits-9 as `podium run` stores it."""
    trial = next(one for one in search_at(100) if one["metadata"]["name"] == "digits-9")
    trial["status"] |= changes
    new = folder / "objects" / "trial-9.new"
    new.write_text(json.dumps(trial))
    new.replace(new.with_suffix(".json"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run with one trial in its first attempt, whose runner is this process."""
    for name in ("objects", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "lock").write_text(str(os.getpid()))
    (tmp_path / "logs" / "digits-9-0.log").write_text("a\nb\nc\n")
    write_trial(tmp_path, phase="Running")
    with (tmp_path / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


@pytest.mark.parametrize("inside", ["", "objects"])
def test_the_log_file_is_printed(inside: str, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["logs", "digits-9", "--from-files", str(folder / inside)]) is Exit.OK
    assert capfdbinary.readouterr().out == b"a\nb\nc\n"
    assert run(["logs", "digits-9", "--tail", "2", "--from-files", str(folder / inside)]) is Exit.OK
    assert capfdbinary.readouterr().out == b"b\nc\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["digits-8"], Exit.NOT_FOUND, "HyperParamTrialNotFound: there is no trial digits-8 in "),
        (["digits-9", "-p"], Exit.NOT_FOUND, "NoPreviousAttempt: digits-9 is in its first attempt (0)"),
        (["digits-9", "--timestamps"], Exit.USAGE, "OptionUnused: --timestamps: the lines of a local run"),
        (["digits-9", "--since", "5m"], Exit.USAGE, "OptionUnused: --since: the lines of a local run"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: list[str], code: Exit, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["logs", *arguments, "--from-files", str(folder)]) is code
    assert message in capsys.readouterr().err


def test_a_trial_without_a_log_file_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "logs" / "digits-9-0.log").unlink()
    write_trial(folder, phase="Pending", reason="WaitingForSlot", message="")
    assert run(["logs", "digits-9", "--from-files", str(folder)]) is Exit.NOT_FOUND
    assert "LogNotReady: digits-9 is Pending (WaitingForSlot); " in capsys.readouterr().err


def test_a_followed_log_continues_with_the_next_attempt_until_the_trial_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_log, "POLL_SECONDS", 0.01)
    written, notes, shown = bytearray(), [], threading.Condition()

    def write(chunk: bytes) -> None:
        with shown:
            written.extend(chunk)
            shown.notify_all()

    def wait_for(text: bytes) -> None:
        with shown:
            assert shown.wait_for(lambda: written.endswith(text), 30), bytes(written)

    options = LogOptions(follow=True, tail=1)
    reader = threading.Thread(target=local_log.show_local_log, args=(folder, "digits-9", options, write, notes.append))
    reader.start()
    wait_for(b"c\n")
    with (folder / "logs" / "digits-9-0.log").open("a") as file:
        file.write("d\n")
    wait_for(b"d\n")
    (folder / "logs" / "digits-9-1.log").write_text("e\n")
    write_trial(folder, phase="Running", attempt=1)
    wait_for(b"e\n")
    write_trial(folder, phase="Succeeded", attempt=1)
    reader.join(30)
    assert not reader.is_alive()
    assert bytes(written) == b"c\nd\ne\n"
    assert notes == ["attempt 1 of digits-9"]


def test_a_followed_log_ends_with_a_runner_that_was_stopped(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The number in the lock is that of another process, here of this one."""
    (folder / "lock").unlink()
    (folder / "lock").write_text(str(os.getpid()))
    assert run(["logs", "digits-9", "-f", "--from-files", str(folder)]) is Exit.OK
    out, err = capfd.readouterr()
    assert out == "a\nb\nc\n"
    assert "run it again to continue the search" in err


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 99])
def test_the_tail_has_that_many_lines(count: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lines = tmp_path / "log", ["one", "", "three", "four"]
    path.write_text("\n".join(lines) + end)
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr(local_log, "CHUNK", size)
        rest = path.read_bytes()[start_of_tail(path, count) :].decode()
        assert rest.splitlines() == (lines[-count:] if count else [])
