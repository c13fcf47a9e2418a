"""The preStop hook with real folders: it requests a checkpoint, waits for the marker, and never fails."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ANSWERS = '{"step": 12, "path": "step-12", "onRequest": true}'
MARKER, REQUEST = "podium-checkpoint.json", "podium-checkpoint-request"
NO_REQUEST = "hook: this trial does not answer checkpoint requests; SIGTERM follows"
TIMEOUT = "hook: no checkpoint within the grace period; SIGTERM follows"
COMPLETE = "hook: checkpoint complete"


def start(gate: Path, folder: Path | str, grace: str = "60") -> subprocess.Popen[str]:
    environment = {"PODIUM_CHECKPOINT": str(folder), "PODIUM_GRACE_SECONDS": grace}
    return subprocess.Popen([str(gate), "hook"], env=environment, stdout=subprocess.PIPE, text=True)


def output(hook: subprocess.Popen[str]) -> str:
    out, _ = hook.communicate(timeout=300)
    assert hook.returncode == 0
    return out.strip()


def complete_checkpoint(folder: Path, content: str) -> None:
    """Write the marker as a script does: under another name, then renamed."""
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
def test_a_script_that_does_not_answer_gets_no_request(gate: Path, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / MARKER).write_text(content)
    assert output(start(gate, tmp_path, grace="0")) == NO_REQUEST
    assert not (tmp_path / REQUEST).exists()


@pytest.mark.parametrize("answers", [ANSWERS, '{"onRequest":true,"step":1}', '{\n "onRequest"\t:\r\n true, "step": 1}'])
def test_the_hook_waits_for_the_next_marker(
    gate: Path, tmp_path: Path, until: Callable[..., None], answers: str
) -> None:
    complete_checkpoint(tmp_path, answers)
    hook = start(gate, tmp_path)
    until((tmp_path / REQUEST).exists, "the request")
    (tmp_path / REQUEST).unlink()  # this alone completes no checkpoint
    time.sleep(0.3)
    assert hook.poll() is None
    complete_checkpoint(tmp_path, answers)  # the same content in another file
    assert output(hook) == COMPLETE


def test_a_removed_marker_completes_no_checkpoint(gate: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    complete_checkpoint(tmp_path, ANSWERS)
    hook = start(gate, tmp_path)
    until((tmp_path / REQUEST).exists, "the request")
    (tmp_path / MARKER).unlink()
    (tmp_path / MARKER).mkdir()
    time.sleep(0.3)
    assert hook.poll() is None
    (tmp_path / MARKER).rmdir()
    complete_checkpoint(tmp_path, "13")
    assert output(hook) == COMPLETE


@pytest.mark.parametrize(("grace", "waits"), [("2.5", 0.5), ("1", 0.0), ("0", 0.0)])
def test_a_part_of_the_grace_period_remains_for_sigterm(gate: Path, tmp_path: Path, grace: str, waits: float) -> None:
    """Two seconds or a tenth of the grace period remain. The hook waits all the rest of it."""
    complete_checkpoint(tmp_path, ANSWERS)
    begin = time.monotonic()
    assert output(start(gate, tmp_path, grace)) == TIMEOUT
    assert time.monotonic() - begin >= waits
    assert (tmp_path / REQUEST).exists(), "a script that ignores SIGTERM may still answer"


@pytest.mark.parametrize("grace", ["", "soon", "-3", "nan", "12x"])
def test_an_invalid_grace_period_counts_as_thirty_seconds(
    gate: Path, tmp_path: Path, until: Callable[..., None], grace: str
) -> None:
    complete_checkpoint(tmp_path, ANSWERS)
    hook = start(gate, tmp_path, grace)
    until((tmp_path / REQUEST).exists, "the request")
    time.sleep(0.1)
    assert hook.poll() is None
    complete_checkpoint(tmp_path, ANSWERS)
    assert output(hook) == COMPLETE


@pytest.mark.parametrize("folder", ["", "relative", "/none/there"])
def test_without_a_checkpoint_folder(gate: Path, folder: str) -> None:
    assert output(start(gate, folder)) == "hook: no checkpoint folder; SIGTERM follows"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_request_that_cannot_be_written(gate: Path, tmp_path: Path, kind: str) -> None:
    """A full or read-only volume has the same effect. The hook follows no link out of the folder."""
    complete_checkpoint(tmp_path, ANSWERS)
    if kind == "link":
        (tmp_path / REQUEST).symlink_to(tmp_path / "made-through-the-link")
    else:
        (tmp_path / REQUEST).mkdir()
    assert output(start(gate, tmp_path)) == "hook: cannot write a request to the checkpoint folder; SIGTERM follows"
    assert not (tmp_path / "made-through-the-link").exists()


def test_a_request_may_exist_already(gate: Path, tmp_path: Path, until: Callable[..., None]) -> None:
    complete_checkpoint(tmp_path, ANSWERS)
    (tmp_path / REQUEST).touch()
    hook = start(gate, tmp_path)

    def ended() -> bool:
        complete_checkpoint(
            tmp_path, ANSWERS
        )  # repeated, because the test cannot see when the hook reads the first marker
        return hook.poll() is not None

    until(ended, "the end of the hook")
    assert output(hook) == COMPLETE


def as_first_process(script: str, gate: Path, folder: Path, grace: str) -> list[str]:
    """Return the output of a shell that runs the hook as PID 1 of a namespace, as in a container."""
    environment = {"PODIUM_CHECKPOINT": str(folder), "PODIUM_GRACE_SECONDS": grace, "PATH": os.environ["PATH"]}
    command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script.replace("HOOK", f"'{gate}' hook")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a PID namespace")
def test_a_script_that_has_just_started_gets_time_to_set_its_handler(gate: Path, tmp_path: Path) -> None:
    """A SIGTERM that the first process of a container does not handle yet is lost."""
    script = "HOOK & hook=$!; sleep 0.3; kill -0 $hook && echo waiting; trap : TERM; wait $hook"
    assert as_first_process(script, gate, tmp_path, "300") == ["waiting", NO_REQUEST]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a PID namespace")
def test_the_wait_for_a_handler_is_limited(gate: Path, tmp_path: Path) -> None:
    assert as_first_process("HOOK", gate, tmp_path, "1") == [NO_REQUEST]
