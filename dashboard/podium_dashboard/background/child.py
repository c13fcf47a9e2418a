"""The background process: it reads one task from its input, runs it, and writes the result to its output.

Only the dashboard starts it, and only the dashboard writes to its input. Its limits end a task that needs too much.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from contextlib import suppress

from podium_dashboard.background.tasks import Task, UnknownError

MAX_BYTES = 4 << 30  # of addresses
NICE = 10


def main() -> None:
    """Run one task. `argv`: the CPU seconds that it may take."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    with suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    with suppress(OSError):
        os.nice(NICE)
    task: Task = pickle.load(sys.stdin.buffer)
    output, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not spoil the result
    try:
        answer = (True, task.run())
    except UnknownError as error:
        answer = (False, str(error))
    output.buffer.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
