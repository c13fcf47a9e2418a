"""Guardian of a run: a small process that kills the trials when the runner has ended in any way, SIGKILL included.

The runner holds the only other end of the guardian's standard input. Each trial's process reports itself there before
it executes its command, so no trial is unknown to the guardian. End of file means that the runner has gone.
"""

from __future__ import annotations

import os
import signal
import sys

from podium_local.processes import process_tree

MAX_TEXT = 1 << 16


def main() -> None:
    """Follow the reports until their end, and then kill what still runs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    running: set[int] = set()
    rest = b""
    while text := os.read(sys.stdin.fileno(), MAX_TEXT):
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            pid = int(line[1:])
            if line.startswith(b"+"):
                running.add(pid)
            else:
                running.discard(pid)
    for pid in running:
        process_tree.kill(pid)
    process_tree.kill_with_variable(process_tree.RUN_VARIABLE, sys.argv[1])


if __name__ == "__main__":
    main()
