"""The gate helper with a real server on a unix socket: it must survive every failure of an agent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Conversation = Callable[[socket.socket, "Agent"], None]


class Agent:
    """A server that runs the given conversations, one for each connection."""

    def __init__(self, path: Path, conversations: list[Conversation]) -> None:
        self.path = path
        self.begun = threading.Semaphore(0)
        self.hellos: list[bytes] = []
        self._stop = threading.Event()
        self._conversations = conversations
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._listener.settimeout(300)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for converse in self._conversations:
            connection, _ = self._listener.accept()
            with connection:
                self.hellos.append(connection.recv(8192))
                self.begun.release()
                converse(connection, self)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=300)
        self._listener.close()

    def hold(self) -> None:
        """Keep the connection open and silent until the test ends."""
        self._stop.wait(20)


def send(*parts: bytes) -> Conversation:
    """Return a conversation in which the agent sends these parts and closes."""

    def converse(connection: socket.socket, _: Agent) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for part in parts:
            connection.sendall(part)

    return converse


def wait_silently(connection: socket.socket, agent: Agent) -> None:
    connection.sendall(b"wait trial digits-3 holds the GPU\n")
    agent.hold()


def silent_until_the_gate_closes(connection: socket.socket, _: Agent) -> None:
    connection.settimeout(300)
    connection.recv(1)  # returns when the helper closes the connection


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def start(*conversations: Conversation) -> Agent:
        agents.append(Agent(tmp_path / "agent.sock", list(conversations)))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


def start_gate(gate: Path, path: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    command = [str(gate), "gate", "--socket", str(path), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    out, err = process.communicate(timeout=300)
    assert err == ""
    return process.returncode, out.splitlines()


GO = "go: this trial's first time slice starts"


@pytest.mark.parametrize(
    ("conversations", "printed"),
    [
        pytest.param([send(b"go\n")], [GO], id="at once"),
        pytest.param([send(b"wait a b\nwait a b\nwait c\ngo\n")], ["wait: a b", "wait: c", GO], id="each reason once"),
        pytest.param([send(b"wai", b"t a", b"\ng", b"o", b"\n")], ["wait: a", GO], id="lines in pieces"),
        pytest.param([send(b"wait a\ngo"), send(b"go\n")], ["wait: a", GO], id="agent dies within go"),
        pytest.param([send(b"wait a\nwait b"), send(b"wait a\ngo\n")], ["wait: a", GO], id="agent dies within a line"),
        pytest.param([send(), send(), send(b"go\n")], [GO], id="closes twice"),
        pytest.param([send(b"x" * 5000), send(b"go\n")], [GO], id="endless line"),
        pytest.param([send(b"going\ngo \n news\ngo\n")], [GO], id="unknown lines are ignored"),
        pytest.param([send(b"wait a\r\ngo\r\n")], ["wait: a", GO], id="carriage returns"),
    ],
)
def test_conversations(
    gate: Path, serve: Callable[..., Agent], conversations: list[Conversation], printed: list[str]
) -> None:
    agent = serve(*conversations)
    assert finish(start_gate(gate, agent.path)) == (0, printed)
    assert agent.hellos == [b"gate\n"] * len(conversations)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        pytest.param(None, b"null", id="no checkpoint"),
        pytest.param(b'{"step": 12, "path": "step-12", "onRequest": true}', None, id="one line"),
        pytest.param(b'{\n\t"step": 3\r\n}\n', b'{  "step": 3  } ', id="several lines"),
        pytest.param(b"7", None, id="a number"),
        pytest.param(b"null", None, id="null"),
        pytest.param(b'{"step": 3', None, id="incomplete: the agent validates it"),
        pytest.param(b"x" * 4096, None, id="maximum length"),
        pytest.param(b"x" * 4097, b"null", id="too long"),
        pytest.param(b"", b"null", id="empty"),
        pytest.param(b"1\x002", b"null", id="binary"),
    ],
)
def test_the_gate_reports_the_marker(
    gate: Path, serve: Callable[..., Agent], tmp_path: Path, content: bytes | None, reported: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "podium-checkpoint.json").write_bytes(content)
    (tmp_path / "podium-checkpoint-request").touch()
    reported = content if reported is None else reported
    assert reported is not None
    agent = serve(send(), send(b"go\n"))
    ended = finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path)))
    assert agent.hellos == [b'gate {"checkpoint": ' + reported + b"}\n"] * 2, "also to the next agent"
    assert ended == (0, ["saved: " + reported.decode(), GO])
    assert not (tmp_path / "podium-checkpoint-request").exists(), "the request was for the previous attempt"


def test_a_checkpoint_that_completes_during_the_wait_is_reported_before_the_trial_starts(
    gate: Path, serve: Callable[..., Agent], tmp_path: Path
) -> None:
    """The pod of the previous attempt completes a checkpoint while it terminates."""

    def checkpoint_and_go(connection: socket.socket, _: Agent) -> None:
        (tmp_path / "aside").write_text("13")
        os.replace(tmp_path / "aside", tmp_path / "podium-checkpoint.json")
        connection.sendall(b"wait a\ngo\n")

    agent = serve(checkpoint_and_go, checkpoint_and_go, send(b"go\n"))
    ended = finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path)))
    assert agent.hellos == [b'gate {"checkpoint": ' + marker + b"}\n" for marker in (b"null", b"13", b"13")]
    assert ended == (0, ["wait: a", "saved: 13", GO])


@pytest.mark.parametrize("folder", ["", "relative", "/none/there", "/etc/hostname"])
def test_without_a_checkpoint_folder_the_gate_reports_none(
    gate: Path, serve: Callable[..., Agent], folder: str
) -> None:
    agent = serve(send(b"go\n"))
    assert finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=folder)) == (0, [GO])
    assert agent.hellos == [b"gate\n"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_a_marker(gate: Path, serve: Callable[..., Agent], tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "podium-checkpoint.json"
    (tmp_path / "elsewhere").write_text("1")
    if kind == "link":
        marker.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(marker)
    else:
        marker.mkdir()
    agent = serve(send(b"go\n"))
    assert finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path))) == (0, ["saved: null", GO])


def test_the_gate_waits_for_an_agent_that_starts_later(gate: Path, tmp_path: Path, serve: Callable[..., Agent]) -> None:
    process = start_gate(gate, tmp_path / "agent.sock")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("wait: the node's agent does not answer: No such file")
    serve(send(b"go\n"))
    assert finish(process) == (0, [GO])


def test_the_gate_survives_the_socket_file_of_a_dead_agent(
    gate: Path, tmp_path: Path, serve: Callable[..., Agent]
) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    process = start_gate(gate, path)
    assert process.stdout is not None
    assert "Connection refused" in process.stdout.readline()
    path.unlink()
    serve(send(b"go\n"))
    assert finish(process) == (0, [GO])


def test_the_gate_reconnects_after_silence(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(silent_until_the_gate_closes, send(b"go\n"))
    code, lines = finish(start_gate(gate, agent.path, "--silence", "300"))
    assert (code, lines) == (0, ["wait: the agent sends nothing; reconnecting", GO])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_wait_exits_with_143(
    gate: Path, serve: Callable[..., Agent], number: signal.Signals
) -> None:
    agent = serve(wait_silently)
    process = start_gate(gate, agent.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "wait: trial digits-3 holds the GPU\n"
    process.send_signal(number)
    assert finish(process) == (143, [])


def test_a_signal_between_two_connections_exits_with_143(gate: Path, tmp_path: Path) -> None:
    process = start_gate(gate, tmp_path / "none.sock")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert finish(process) == (143, [])


def test_the_environment_names_the_socket(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(send(b"go\n"))
    done = subprocess.run([str(gate), "gate"], env={"PODIUM_SOCKET": str(agent.path)}, timeout=300, check=False)
    assert done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_gate_runs_as_any_user(gate: Path) -> None:
    """The restricted Pod Security Standard runs it as a user that owns no file."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copy(gate, folder)
        agent = Agent(Path(folder) / "agent.sock", [send(b"go\n")])
        agent.path.chmod(0o666)
        process = subprocess.Popen([copy, "gate", "--socket", str(agent.path)], user=64321, group=64321, env={})
        assert process.wait(timeout=300) == 0
        agent.close()


def test_a_closed_output_does_not_block_the_gate(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(send(b"wait a\ngo\n"))
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([str(gate), "gate", "--socket", str(agent.path)], stdout=writer, env={})
    os.close(writer)
    assert process.wait(timeout=300) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 0, "usage: podium-gate gate"),
        (["--help"], 0, "usage: podium-gate gate"),
        (["gaet"], 2, "unknown command: gaet"),
        (["hook", "now"], 2, "hook takes no arguments"),
        (["gate", "--socket"], 2, "option without a value: --socket"),
        (["gate", "--sock", "x"], 2, "unknown option: --sock"),
        (["gate", "--silence", "0"], 2, "not a number of milliseconds greater than 0"),
        (["gate", "--socket", "/" + "x" * 120], 2, "too long for a unix socket"),
    ],
)
def test_arguments(gate: Path, arguments: list[str], code: int, text: str) -> None:
    done = subprocess.run([str(gate), *arguments], capture_output=True, text=True, timeout=300, check=False, env={})
    assert done.returncode == code
    assert text in done.stdout + done.stderr


def test_the_gate_is_static(gate: Path) -> None:
    """It has no PT_INTERP program header (3), so it needs no file of the image."""
    image = gate.read_bytes()
    (offset,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    assert 3 not in [struct.unpack_from("<I", image, offset + i * size)[0] for i in range(count)]
