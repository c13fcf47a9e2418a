"""The steps of these scripts: each one needs the previous one; podium.trial saves checkpoints.

Beside the checkpoints it keeps a record of all steps with attempt, time and value, which the test reads on the node.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))

LAST = 60
SECONDS = 0.1
EVERY = 5  # steps between checkpoints without a request
HELD_AT = 53  # not a multiple of EVERY


def following(step: int, value: int) -> int:
    return (value * 31 + step) % 65521


def record(step: int, value: int) -> None:
    with Path(os.environ["PODIUM_CHECKPOINT"], "steps.txt").open("a") as file:
        clocks = f"{time.monotonic():.3f} {time.process_time():.3f}"
        file.write(f"{os.environ['PODIUM_ATTEMPT']} {step} {value} {clocks}\n")


def held(step: int) -> bool:
    """Return whether the first attempt stops here.

    On a slow machine it would end before the test deletes its pod.
    """
    return os.environ["PODIUM_ATTEMPT"] == "0" and step >= HELD_AT


def run() -> Iterator[tuple[int, int]]:
    """Yield each step and its value, from the checkpoint on. The work of the caller is a part of the step."""
    from podium import trial

    trial.stopping()
    saved = trial.load()
    step, value = (int(saved.step), int((saved.path / "value").read_text())) if saved else (0, 1)
    while step < LAST:
        time.sleep(SECONDS)
        if not held(step):
            step += 1
            value = following(step, value)
            yield step, value
            record(step, value)
        if trial.should_save() or step % EVERY == 0:
            text = str(value)
            trial.save(step, lambda folder, text=text: (folder / "value").write_text(text))
        if trial.stopping():
            sys.exit(trial.STOPPED)
