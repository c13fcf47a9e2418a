"""Programs in the guest, through qemu's guest agent: JSON lines over a socket, without network and without ssh."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_devcluster.shell import CommandError

ANSWER_SECONDS = 60.0  # an emulated guest under load answers slowly


class GuestError(RuntimeError):
    """The guest agent refused a request, or the connection ended."""


@dataclass(frozen=True, slots=True)
class Output:
    """The end of a program in the guest."""

    code: int
    stdout: str
    stderr: str


class Connection:
    """One connection to the guest agent, which serves one client at a time."""

    def __init__(self, path: Path, timeout: float = ANSWER_SECONDS) -> None:
        """Connect. Raises OSError if the agent does not answer within `timeout` seconds."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(str(path))
            self._file = self._socket.makefile("rb")
            token = int.from_bytes(os.urandom(3), "big")
            self._send("guest-sync", {"id": token})
            while self._answer().get("return") != token:  # answers to an earlier client that did not wait
                pass
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def call(self, command: str, **arguments: Any) -> Any:
        """Send a command of the agent and return its result. Raises GuestError."""
        self._send(command, arguments)
        answer = self._answer()
        if "error" in answer:
            raise GuestError(f"{command}: {answer['error'].get('desc', answer['error'])}")
        return answer["return"]

    def _send(self, command: str, arguments: dict[str, Any]) -> None:
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._socket.sendall((json.dumps(message) + "\n").encode())

    def _answer(self) -> dict[str, Any]:
        line = self._file.readline()
        if not line:
            raise ConnectionError("the guest agent's connection ended")
        return parse_answer(line)


def parse_answer(line: bytes) -> dict[str, Any]:
    """Return an answer of the guest agent. A byte 0xFF precedes the first one after a reset. Pure."""
    answer: dict[str, Any] = json.loads(line.lstrip(b"\xff"))
    return answer


def output_of(status: dict[str, Any]) -> Output:
    """Return the output from the answer to `guest-exec-status`. Pure."""
    out, err = (base64.b64decode(status.get(key, "")).decode(errors="replace") for key in ("out-data", "err-data"))
    return Output(status.get("exitcode", 128 + status.get("signal", 0)), out, err)


def answers(path: Path) -> bool:
    """Return whether the guest agent answers within two seconds."""
    try:
        connection = Connection(path, 2.0)
    except (OSError, ValueError):
        return False
    connection.close()
    return True


def execute(path: Path, argv: Sequence[str], timeout: float) -> Output:
    """Run a program in the guest and wait for its end. Raises CommandError when the time has passed."""
    deadline, pause = time.monotonic() + timeout, 0.02
    connection = Connection(path)
    try:
        pid = connection.call("guest-exec", path=argv[0], arg=list(argv[1:]), **{"capture-output": True})["pid"]
        while True:
            status = connection.call("guest-exec-status", pid=pid)
            if status["exited"]:
                return output_of(status)
            if time.monotonic() > deadline:
                raise CommandError(argv, f"did not end within {timeout:g} s in the virtual node", "")
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
    finally:
        connection.close()
