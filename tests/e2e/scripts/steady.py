"""A trial of the fault suite: one step after another, saved every 5th, when asked, and on SIGTERM.

`hog` takes more memory than its limit at step 10; `torn` dies half-way through writing a save; `hangs` never ends
a save that it was asked for; `full` writes saves that do not fit on the volume; `held` goes no further than step 53
until the file `go` is in its folder: however slow the machine is, what the test does meets trials at work. What is left
then is done without rests. `deaf` is held too, and its first attempt neither saves when asked nor ends when told: it
has to be killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import steps

mode, seconds = sys.argv[1], float(sys.argv[2])  # of a step
first_attempt = os.environ["PODIUM_ATTEMPT"] == "0"


def write(step: int, value: int) -> None:
    from podium import trial

    def body(folder: Path) -> None:
        text = str(value)
        if mode == "torn" and first_attempt and step == 20:
            (folder / "value").write_text(text[:1])
            os._exit(137)  # nothing is tidied up; as pid 1 it cannot kill itself
        if mode == "hangs" and trial.stopping():
            time.sleep(3600)
        if mode == "full" and step >= 10:
            (folder / "ballast").write_bytes(b"x" * (4 << 20))
        (folder / "value").write_text(text)

    trial.save(step, body)


def let_go() -> bool:
    return mode in ("held", "deaf") and Path(os.environ["PODIUM_CHECKPOINT"], "go").exists()


def rest(value: int) -> int:
    time.sleep(0 if let_go() else seconds)
    return value


def resting_place() -> Callable[[int], int]:
    """Where a value is for the length of a step: on the GPU, if the job declares memory of it."""
    if "PODIUM_GPU_MEMORY_BYTES" not in os.environ:
        return rest
    sys.path.append("/app")
    import numpy as np
    from gpu import open_block

    block, place = open_block(4), np.zeros(1, np.float32)  # holds each of the values exactly
    if block is None:
        sys.exit("no GPU")

    def rest_there(value: int) -> int:
        place[0] = value
        block.store([place])
        place[0] = rest(0)
        block.load([place])
        return int(place[0])

    return rest_there


def main() -> int:
    from podium import trial

    rested = resting_place()
    deaf = mode == "deaf" and first_attempt
    trial.stopping()
    saved = trial.load()
    step, value = (int(saved.step), int((saved.path / "value").read_text())) if saved else (0, 1)
    while step < steps.LAST:
        held = mode in ("held", "deaf") and step >= steps.HELD_AT and not let_go()
        value = rested(value)
        if not held:
            step += 1
            value = steps.following(step, value)
            print(json.dumps({"epoch": step, "loss": value}))
            steps.record(step, value)
        if mode == "hog" and first_attempt and step == 10:
            ballast = bytearray(1 << 30)
            ballast[:: 1 << 12] = b"x" * len(ballast[:: 1 << 12])
        if (trial.should_save() and not deaf) or step % steps.EVERY == 0:
            try:
                write(step, value)
            except OSError as error:
                print(f"step {step} is not saved: {error}", file=sys.stderr)
        if trial.stopping() and not deaf:
            return trial.STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
