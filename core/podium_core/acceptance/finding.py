"""One thing that is wrong with a job, or that may not work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from podium_core.schema.rules import Refusal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about one field: a code for programs, the severity, and a sentence with the cure.

    A job with an error is refused. A job with warnings runs. `cluster_only`: it does not apply to a search on one
    machine, because it concerns pods, nodes or agents.
    """

    code: str
    severity: Severity
    field: str
    message: str
    cluster_only: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def error_of(refusal: Refusal) -> Finding:
    """Return a refusal as a finding."""
    return Finding(refusal.code, "error", refusal.field, refusal.message)


def warning(code: str, field: str, message: str, *, cluster_only: bool = False) -> Finding:
    """Return a warning."""
    return Finding(code, "warning", field, message, cluster_only)
