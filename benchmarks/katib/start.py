"""Start the digits trainer: a container of every contender runs this script from a ConfigMap.

Katib's random search draws a range evenly, so both tools search the decimal logarithm of the learning rate. Six
decimals are used, so that a point is the same however a tool writes its numbers.

Katib orders the values of a trial by the time at the beginning of a line. `--stamped` writes it: without times, "the
latest value" and "the first values" are not defined.
"""

import runpy
import sys
from datetime import UTC, datetime
from typing import TextIO

TRAINER = "/app/train.py"
LOGARITHM, STAMPED = "--log_lr=", "--stamped"


def arguments(given: list[str]) -> list[str]:
    """Return the trainer's arguments: the learning rate in place of its logarithm."""
    own = [one for one in given if one != STAMPED]
    return [
        f"--lr={10 ** round(float(one[len(LOGARITHM) :]), 6)!r}" if one.startswith(LOGARITHM) else one for one in own
    ]


class StampedLines:
    """A text stream that begins each line with the time in RFC 3339. A line is written as a whole."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._line = out, ""

    def write(self, text: str) -> int:
        """Write the lines that `text` completes."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            self._out.write(f"{now} {line}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the stream below."""
        self._out.flush()


if __name__ == "__main__":
    if STAMPED in sys.argv:
        sys.stdout = StampedLines(sys.stdout)
    sys.argv = [TRAINER, *arguments(sys.argv[1:])]
    sys.path.insert(0, TRAINER.rpartition("/")[0])
    runpy.run_path(TRAINER, run_name="__main__")
