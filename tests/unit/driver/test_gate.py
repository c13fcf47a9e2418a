"""The gate helper against a real unix-socket server: it must outlive every way in which an agent can fail."""

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

Talk = Callable[[socket.socket, "Agent"], None]


class Agent:
    """A server that holds the given talks, one a connection, and tells when each has begun."""

    def __init__(self, path: Path, talks: list[Talk]) -> None:
        self.path = path
        self.begun = threading.Semaphore(0)
        self.questions: list[bytes] = []
        self._stop = threading.Event()
        self._talks = talks
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._listener.settimeout(300)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for talk in self._talks:
            connection, _ = self._listener.accept()
            with connection:
                self.questions.append(connection.recv(8192))
                self.begun.release()
                talk(connection, self)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=300)
        self._listener.close()

    def hold(self) -> None:
        """Keeps the connection open and silent until the test ends."""
        self._stop.wait(20)


def say(*parts: bytes) -> Talk:
    def talk(connection: socket.socket, _: Agent) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for part in parts:
            connection.sendall(part)

    return talk


def wait_silently(connection: socket.socket, agent: Agent) -> None:
    connection.sendall(b"wait trial digits-3 holds the GPU\n")
    agent.hold()


def silent_until_it_leaves(connection: socket.socket, _: Agent) -> None:
    connection.settimeout(300)
    connection.recv(1)  # ends when the helper has had enough and closes


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def start(*talks: Talk) -> Agent:
        agents.append(Agent(tmp_path / "agent.sock", list(talks)))
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


GO = "go: it is this trial's turn"


@pytest.mark.parametrize(
    ("talks", "printed"),
    [
        pytest.param([say(b"go\n")], [GO], id="at once"),
        pytest.param([say(b"wait a b\nwait a b\nwait c\ngo\n")], ["wait: a b", "wait: c", GO], id="reasons once"),
        pytest.param([say(b"wai", b"t a", b"\ng", b"o", b"\n")], ["wait: a", GO], id="lines in pieces"),
        pytest.param([say(b"wait a\ngo"), say(b"go\n")], ["wait: a", GO], id="dies in the middle of go"),
        pytest.param([say(b"wait a\nwait b"), say(b"wait a\ngo\n")], ["wait: a", GO], id="dies in mid-line"),
        pytest.param([say(), say(), say(b"go\n")], [GO], id="closes twice"),
        pytest.param([say(b"x" * 5000), say(b"go\n")], [GO], id="endless line"),
        pytest.param([say(b"going\ngo \n news\ngo\n")], [GO], id="unknown lines are passed over"),
        pytest.param([say(b"wait a\r\ngo\r\n")], ["wait: a", GO], id="carriage returns"),
    ],
)
def test_talks(gate: Path, serve: Callable[..., Agent], talks: list[Talk], printed: list[str]) -> None:
    agent = serve(*talks)
    assert finish(start_gate(gate, agent.path)) == (0, printed)
    assert agent.questions == [b"gate\n"] * len(talks)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, b"null", id="no save"),
        pytest.param(b'{"step": 12, "path": "step-12", "onRequest": true}', None, id="one line"),
        pytest.param(b'{\n\t"step": 3\r\n}\n', b'{  "step": 3  } ', id="several lines"),
        pytest.param(b"7", None, id="a number"),
        pytest.param(b"null", None, id="null"),
        pytest.param(b'{"step": 3', None, id="torn: the agent judges"),
        pytest.param(b"x" * 4096, None, id="as long as may be"),
        pytest.param(b"x" * 4097, b"null", id="too long"),
        pytest.param(b"", b"null", id="empty"),
        pytest.param(b"1\x002", b"null", id="binary"),
    ],
)
def test_it_says_which_save_is_there(
    gate: Path, serve: Callable[..., Agent], tmp_path: Path, content: bytes | None, said: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "podium-checkpoint.json").write_bytes(content)
    (tmp_path / "podium-checkpoint-request").touch()
    said = content if said is None else said
    assert said is not None
    agent = serve(say(), say(b"go\n"))
    ended = finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path)))
    assert agent.questions == [b'gate {"checkpoint": ' + said + b"}\n"] * 2, "said again to an agent that comes anew"
    assert ended == (0, ["saved: " + said.decode(), GO])
    assert not (tmp_path / "podium-checkpoint-request").exists(), "it was a request to the attempt before"


def test_a_save_that_is_made_while_it_waits_is_said_before_it_goes(
    gate: Path, serve: Callable[..., Agent], tmp_path: Path
) -> None:
    """The pod of the attempt before was on its way out, and saved."""

    def save_and_go(connection: socket.socket, _: Agent) -> None:
        (tmp_path / "aside").write_text("13")
        os.replace(tmp_path / "aside", tmp_path / "podium-checkpoint.json")
        connection.sendall(b"wait a\ngo\n")

    agent = serve(save_and_go, save_and_go, say(b"go\n"))
    ended = finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path)))
    assert agent.questions == [b'gate {"checkpoint": ' + said + b"}\n" for said in (b"null", b"13", b"13")]
    assert ended == (0, ["wait: a", "saved: 13", GO])


@pytest.mark.parametrize("folder", ["", "relative", "/none/there", "/etc/hostname"])
def test_no_checkpoint_folder(gate: Path, serve: Callable[..., Agent], folder: str) -> None:
    agent = serve(say(b"go\n"))
    assert finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=folder)) == (0, [GO])
    assert agent.questions == [b"gate\n"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_is_no_save(gate: Path, serve: Callable[..., Agent], tmp_path: Path, kind: str) -> None:
    place = tmp_path / "podium-checkpoint.json"
    (tmp_path / "elsewhere").write_text("1")
    if kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    agent = serve(say(b"go\n"))
    assert finish(start_gate(gate, agent.path, PODIUM_CHECKPOINT=str(tmp_path))) == (0, ["saved: null", GO])


def test_waits_for_an_agent_that_comes_later(gate: Path, tmp_path: Path, serve: Callable[..., Agent]) -> None:
    process = start_gate(gate, tmp_path / "agent.sock")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("wait: the node's agent does not answer: No such file")
    serve(say(b"go\n"))
    assert finish(process) == (0, [GO])


def test_a_stale_socket_file_of_a_dead_agent_is_no_end(gate: Path, tmp_path: Path, serve: Callable[..., Agent]) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    process = start_gate(gate, path)
    assert process.stdout is not None
    assert "Connection refused" in process.stdout.readline()
    path.unlink()
    serve(say(b"go\n"))
    assert finish(process) == (0, [GO])


def test_silence_is_a_break(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(silent_until_it_leaves, say(b"go\n"))
    code, lines = finish(start_gate(gate, agent.path, "--silence", "300"))
    assert (code, lines) == (0, ["wait: the agent is silent; asking again", GO])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_waiting_ends_it_with_143(
    gate: Path, serve: Callable[..., Agent], number: signal.Signals
) -> None:
    agent = serve(wait_silently)
    process = start_gate(gate, agent.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "wait: trial digits-3 holds the GPU\n"
    process.send_signal(number)
    assert finish(process) == (143, [])


def test_a_signal_between_two_connections_ends_it_with_143(gate: Path, tmp_path: Path) -> None:
    process = start_gate(gate, tmp_path / "none.sock")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert finish(process) == (143, [])


def test_the_environment_names_the_socket(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(say(b"go\n"))
    done = subprocess.run([str(gate), "gate"], env={"PODIUM_SOCKET": str(agent.path)}, timeout=300, check=False)
    assert done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_any_user(gate: Path) -> None:
    """Restricted Pod Security runs it as some uid that owns nothing."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copy(gate, folder)
        agent = Agent(Path(folder) / "agent.sock", [say(b"go\n")])
        agent.path.chmod(0o666)
        process = subprocess.Popen([copy, "gate", "--socket", str(agent.path)], user=64321, group=64321, env={})
        assert process.wait(timeout=300) == 0
        agent.close()


def test_nobody_reads_its_output(gate: Path, serve: Callable[..., Agent]) -> None:
    agent = serve(say(b"wait a\ngo\n"))
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
        (["gate", "--socket"], 2, "option without its value: --socket"),
        (["gate", "--sock", "x"], 2, "unknown option: --sock"),
        (["gate", "--silence", "0"], 2, "not a number of milliseconds above 0"),
        (["gate", "--socket", "/" + "x" * 120], 2, "too long for a unix socket"),
    ],
)
def test_arguments(gate: Path, arguments: list[str], code: int, text: str) -> None:
    done = subprocess.run([str(gate), *arguments], capture_output=True, text=True, timeout=300, check=False, env={})
    assert done.returncode == code
    assert text in done.stdout + done.stderr


def test_it_is_static(gate: Path) -> None:
    """No program header asks for an interpreter (PT_INTERP, 3): nothing of the image is needed."""
    image = gate.read_bytes()
    (offset,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    assert 3 not in [struct.unpack_from("<I", image, offset + i * size)[0] for i in range(count)]
