"""Exit codes of `podium`, and the exception by which a command refuses. docs/reference/cli.md lists the codes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1  # the job failed or was refused, the file is not valid
    USAGE = 2  # argparse's own
    NOT_FOUND = 3
    CLUSTER = 4  # the API server cannot be reached, or it said no
    TIMEOUT = 5
    INTERRUPTED = 130  # 128 + SIGINT, as shells count


EXIT_CODES_HELP = (
    "exit codes: 0 done | 1 the job failed or was refused, the file is not valid |\n"
    "            2 usage | 3 not found | 4 the cluster cannot be reached or said no |\n"
    "            5 timed out | 130 interrupted"
)


class CliError(Exception):
    """A "no" with its CamelCase reason and a sentence; `main` prints it and exits with its code."""

    def __init__(self, code: Exit, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
