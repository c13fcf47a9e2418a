"""Runs one command on the CPU time that another leaves over. `make test` has lint and the fast tests done so, beside
the tests on real clusters, which mostly wait.

    python tools/beside.py QUIET ... -- MAIN ...

MAIN prints as it goes, QUIET all at once when it has ended. QUIET and its children are of the class SCHED_IDLE: they
run where nobody else wants to, so MAIN is nearly as fast as alone. The kernel may weigh sessions against each other
(autogroups) before it looks at their processes: QUIET has a session of its own, of the least weight. The exit status is
MAIN's, or where that is 0 QUIET's. Ctrl-C ends both, and so does SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def heed_interrupts() -> None:
    """In a child: it is for the commands to end by Ctrl-C, and for this program to wait for them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def be_idle() -> None:
    heed_interrupts()
    os.setsid()
    with suppress(OSError):  # a kernel without autogroups
        Path("/proc/self/autogroup").write_text("19")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def beside(quiet: Sequence[str], main: Sequence[str]) -> int:
    with tempfile.TemporaryFile() as told:
        second = subprocess.Popen(quiet, stdout=told, stderr=subprocess.STDOUT, preexec_fn=be_idle)
        # a terminal tells its own session only
        signal.signal(signal.SIGINT, lambda *_: second.poll() is None and os.killpg(second.pid, signal.SIGINT))
        started: list[subprocess.Popen[bytes]] = []
        came: list[int] = []

        def end(number: int, _: object) -> None:
            came.append(number)
            if second.poll() is None:
                os.killpg(second.pid, number)
            for one in started:
                one.send_signal(number)  # nothing, where it has ended

        signal.signal(signal.SIGTERM, end)
        first = subprocess.Popen(main, preexec_fn=heed_interrupts)
        started.append(first)
        for number in came:  # while it was started
            first.send_signal(number)

        def tell() -> None:
            second.wait()
            told.seek(0)
            text = told.read().decode(errors="replace")
            print(f"\n== {' '.join(quiet)}: exit status {second.returncode}\n{text}", end="", flush=True)

        teller = threading.Thread(target=tell)
        teller.start()
        first.wait()
        teller.join()
    return first.returncode or second.returncode


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(beside(sys.argv[1:at], sys.argv[at + 1 :]))
