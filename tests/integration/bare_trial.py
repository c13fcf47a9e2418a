"""A trial of the fault tests: it prints a chain of values, and notes every moment at which it ran.

Usage: bare_trial.py STEPS SECONDS FOLDER. The notes are times of the monotonic clock, which all processes share. A
process that is frozen notes nothing, so they show from outside which trials ran at the same time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

PAUSE = 0.01


def main() -> int:
    steps, seconds, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    signal.signal(signal.SIGTERM, _stop)
    value = 1
    with (folder / os.environ["BARE_POD"]).open("a", buffering=1) as beats:
        for step in range(1, steps + 1):
            ran, last = 0.0, time.monotonic()
            while ran < seconds:
                time.sleep(PAUSE)
                at = time.monotonic()
                ran += min(at - last, 2 * PAUSE)  # a suspension does not count
                last = at
                beats.write(f"{at}\n")
            value = (value * 31 + step) % 65521
            print(json.dumps({"epoch": step, "loss": value}), flush=True)
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(143)


if __name__ == "__main__":
    sys.exit(main())
