"""Refusals of local mode; the command line turns them into its exit codes."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Kind of a refusal, by what its reader can change."""

    USAGE = "usage"  # an option or the command
    MISSING = "missing"  # a file or folder
    FAILED = "failed"  # the job, or the state on disk


class LocalError(Exception):
    """Refusal with a CamelCase reason and a sentence that names the cure."""

    def __init__(self, kind: Kind, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.kind = kind
        self.reason = reason
        self.message = message
