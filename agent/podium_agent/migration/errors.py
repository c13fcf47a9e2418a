"""The error of live migration: why a container was not migrated. The container continues on its node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)  # not frozen: contextlib assigns to an exception's traceback
class MigrationError(Exception):
    """A refused or failed migration.

    `code` is in CamelCase, for counters and conditions. `message` contains the problem, the value, and the cure.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
