"""The preStop hook against real folders: it asks, waits for the marker that a script writes, and never fails."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ANSWERS = '{"step": 12, "path": "step-12", "onRequest": true}'
MARKER, REQUEST = "podium-checkpoint.json", "podium-checkpoint-request"
ASKED_NOTHING = "hook: this trial does not answer save requests; SIGTERM does the rest"
TOO_LATE = "hook: no save in time; SIGTERM does the rest"


def start(gate: Path, folder: Path | str, grace: str = "60") -> subprocess.Popen[str]:
    environment = {"PODIUM_CHECKPOINT": str(folder), "PODIUM_GRACE_SECONDS": grace}
    return subprocess.Popen([str(gate), "hook"], env=environment, stdout=subprocess.PIPE, text=True)


def said(hook: subprocess.Popen[str]) -> str:
    out, _ = hook.communicate(timeout=300)
    assert hook.returncode == 0
    return out.strip()


def save(folder: Path, content: str) -> None:
    """As a script saves: written aside, then in one step under its name."""
    (folder / "aside").write_text(content)
    os.replace(folder / "aside", folder / MARKER)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "12",
        '{"step": 12}',
        '{"step": 12, "onRequest": false}',
        '{"step": 12, "onRequest": "true"}',
        '{"step": 12, "deep": {"onRequest": true}}',
        '{"step": 12, "path": "onRequest", "x": true}',
        '{"step": 12, "path": "\\"onRequest\\": true"}',
        '{"onRequest": true, "path": "' + "x" * 4096 + '"}',
        '{"onRequest"',
        '{"onRequest":',
        '{"a": "\\',
        '"',
    ],
)
def test_a_script_that_does_not_answer_is_not_asked(gate: Path, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / MARKER).write_text(content)
    assert said(start(gate, tmp_path, grace="0")) == ASKED_NOTHING
    assert not (tmp_path / REQUEST).exists()


@pytest.mark.parametrize("answers", [ANSWERS, '{"onRequest":true,"step":1}', '{\n "onRequest"\t:\r\n true, "step": 1}'])
def test_it_waits_for_the_next_marker(gate: Path, tmp_path: Path, until: Callable[..., None], answers: str) -> None:
    save(tmp_path, answers)
    hook = start(gate, tmp_path)
    until((tmp_path / REQUEST).exists, "the request")
    (tmp_path / REQUEST).unlink()  # that alone is no save
    time.sleep(0.3)
    assert hook.poll() is None
    save(tmp_path, answers)  # the same words: it is another file
    assert said(hook) == "hook: saved"


def test_a_marker_that_goes_away_is_no_save(gate: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    save(tmp_path, ANSWERS)
    hook = start(gate, tmp_path)
    until((tmp_path / REQUEST).exists, "the request")
    (tmp_path / MARKER).unlink()
    (tmp_path / MARKER).mkdir()
    time.sleep(0.3)
    assert hook.poll() is None
    (tmp_path / MARKER).rmdir()
    save(tmp_path, "13")
    assert said(hook) == "hook: saved"


@pytest.mark.parametrize(("grace", "waits"), [("2.5", 0.5), ("1", 0.0), ("0", 0.0)])
def test_what_remains_of_the_grace_period_is_for_sigterm(gate: Path, tmp_path: Path, grace: str, waits: float) -> None:
    """Two seconds, or a tenth of it; the time that it does wait is not cut short."""
    save(tmp_path, ANSWERS)
    begin = time.monotonic()
    assert said(start(gate, tmp_path, grace)) == TOO_LATE
    assert time.monotonic() - begin >= waits
    assert (tmp_path / REQUEST).exists(), "a script that is deaf to SIGTERM may still answer"


@pytest.mark.parametrize("grace", ["", "soon", "-3", "nan", "12x"])
def test_a_grace_period_that_is_none_is_thirty_seconds(
    gate: Path, tmp_path: Path, until: Callable[..., None], grace: str
) -> None:
    save(tmp_path, ANSWERS)
    hook = start(gate, tmp_path, grace)
    until((tmp_path / REQUEST).exists, "the request")
    time.sleep(0.1)
    assert hook.poll() is None
    save(tmp_path, ANSWERS)
    assert said(hook) == "hook: saved"


@pytest.mark.parametrize("folder", ["", "relative", "/none/there"])
def test_without_a_folder(gate: Path, folder: str) -> None:
    assert said(start(gate, folder)) == "hook: no checkpoint folder; SIGTERM does the rest"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_request_that_cannot_be_made(gate: Path, tmp_path: Path, kind: str) -> None:
    """A full or read-only volume looks the same; a link is not followed out of the folder."""
    save(tmp_path, ANSWERS)
    if kind == "link":
        (tmp_path / REQUEST).symlink_to(tmp_path / "made-through-the-link")
    else:
        (tmp_path / REQUEST).mkdir()
    assert said(start(gate, tmp_path)) == "hook: the checkpoint folder takes no request; SIGTERM does the rest"
    assert not (tmp_path / "made-through-the-link").exists()


def test_a_request_that_is_there_already_is_no_trouble(gate: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    save(tmp_path, ANSWERS)
    (tmp_path / REQUEST).touch()
    hook = start(gate, tmp_path)

    def ended() -> bool:
        save(tmp_path, ANSWERS)  # again and again: whether it has looked already cannot be seen
        return hook.poll() is not None

    until(ended, "its end")
    assert said(hook) == "hook: saved"


def as_first_process(script: str, gate: Path, folder: Path, grace: str) -> list[str]:
    """What a shell prints that is the first process of a container (of a process namespace), with the hook in it."""
    environment = {"PODIUM_CHECKPOINT": str(folder), "PODIUM_GRACE_SECONDS": grace, "PATH": os.environ["PATH"]}
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script.replace("HOOK", f"'{gate}' hook")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_a_script_that_has_just_begun_gets_the_time_to_set_its_handler(gate: Path, tmp_path: Path) -> None:
    """A SIGTERM that the container's first process does not handle (yet) is lost."""
    script = "HOOK & hook=$!; sleep 0.3; kill -0 $hook && echo it waits; trap : TERM; wait $hook"
    assert as_first_process(script, gate, tmp_path, "300") == ["it waits", ASKED_NOTHING]


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")
def test_nobody_waits_for_ever_for_a_handler(gate: Path, tmp_path: Path) -> None:
    assert as_first_process("HOOK", gate, tmp_path, "1") == [ASKED_NOTHING]
