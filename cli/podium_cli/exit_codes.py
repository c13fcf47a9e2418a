"""Exit codes of `podium`, and the exception with which a command refuses. docs/reference/cli.md lists the codes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    FAILED = 1  # the job failed or was refused, or a file is invalid
    USAGE = 2  # Typer uses this code
    NOT_FOUND = 3
    CLUSTER = 4  # the API server cannot be reached, or it refused the request
    TIMEOUT = 5
    INTERRUPTED = 130  # 128 + SIGINT, as in shells; Typer uses this code


EXIT_CODES_HELP = (
    "Exit codes: 0 done | 1 the job failed or was refused, or a file is invalid |\n"
    "            2 usage error | 3 not found | 4 the cluster cannot be reached or\n"
    "            refused | 5 timed out | 130 interrupted"
)


class CliError(Exception):
    """Refusal with a CamelCase reason and a sentence; the command line prints it and exits with its code."""

    def __init__(self, code: Exit, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
