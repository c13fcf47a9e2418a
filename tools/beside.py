"""Run one command on the CPU time that another one does not use.

`make test` runs lint and the fast tests in this way beside the tests on real clusters, which mostly wait.

python tools/beside.py QUIET ... -- MAIN ...

The output of MAIN appears at once, that of QUIET when it has ended. QUIET and its children have the scheduling class
SCHED_IDLE, so they run only on idle CPUs and hardly slow MAIN down. The kernel may first weigh sessions against each
other (autogroups), so QUIET has a session of its own with the lowest weight. The exit status is MAIN's, or QUIET's if
MAIN's is 0. Ctrl-C and SIGTERM end both.
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


def accept_interrupts() -> None:
    """Restore Ctrl-C in a child: the commands end by it, and this program waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def become_idle() -> None:
    """Give a child a session of its own and the lowest priority."""
    accept_interrupts()
    os.setsid()
    with suppress(OSError):  # the kernel has no autogroups
        Path("/proc/self/autogroup").write_text("19")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def beside(quiet: Sequence[str], main: Sequence[str]) -> int:
    """Run both commands and return the exit status."""
    with tempfile.TemporaryFile() as output:
        second = subprocess.Popen(quiet, stdout=output, stderr=subprocess.STDOUT, preexec_fn=become_idle)

        def end_quiet(number: int, _: object) -> None:
            if second.poll() is None:
                os.killpg(second.pid, number)

        # a terminal sends the signal to its own session only
        signal.signal(signal.SIGINT, end_quiet)
        started: list[subprocess.Popen[bytes]] = []
        received: list[int] = []

        def end(number: int, frame: object) -> None:
            received.append(number)
            end_quiet(number, frame)
            for process in started:
                process.send_signal(number)  # no effect after its end

        signal.signal(signal.SIGTERM, end)
        first = subprocess.Popen(main, preexec_fn=accept_interrupts)
        started.append(first)
        for number in received:  # before it was started
            first.send_signal(number)

        def print_output() -> None:
            second.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
            print(f"\n== {' '.join(quiet)}: exit status {second.returncode}\n{text}", end="", flush=True)

        printer = threading.Thread(target=print_output)
        printer.start()
        first.wait()
        printer.join()
    return first.returncode or second.returncode


if __name__ == "__main__":
    separator = sys.argv.index("--")
    sys.exit(beside(sys.argv[1:separator], sys.argv[separator + 1 :]))
