"""Start the digits trainer: a container of every contender runs this script from a ConfigMap.

Katib's random search draws a range evenly, so both tools search the decimal logarithm of the learning rate. Six
decimals are used, so that a point is the same however a tool writes its numbers.
"""

import os
import sys

NAME = "--log_lr="


def arguments(given: list[str]) -> list[str]:
    """Return the trainer's arguments: the learning rate in place of its logarithm."""
    return [f"--lr={10 ** round(float(one[len(NAME) :]), 6)!r}" if one.startswith(NAME) else one for one in given]


if __name__ == "__main__":
    trainer = "/app/train.py"
    os.execv(sys.executable, [sys.executable, trainer, *arguments(sys.argv[1:])])
