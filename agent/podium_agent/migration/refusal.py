"""The one error of this folder: why a container was not moved. It goes on where it is, whatever the code says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)  # not frozen: contextlib assigns to an exception's traceback
class MoveError(Exception):
    """`code` is CamelCase for counters and conditions; `message` names what was asked, what was found, and the cure."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
