"""A trial of the fault tests. It writes a checkpoint every 5 steps, on request and on SIGTERM.

The first argument is the mode:
  hog    exceeds its memory limit at step 10
  torn   dies while it writes a checkpoint
  hangs  never completes a checkpoint that was requested
  full   writes checkpoints that do not fit on the volume
  held   stops at step 53 until its folder has the file `go`, so that the test has running trials on any machine;
         it makes the remaining steps without pauses
  deaf   is held too, and its first attempt ignores requests and SIGTERM, so it must be killed
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import steps

mode, seconds = sys.argv[1], float(sys.argv[2])  # seconds of a step
first_attempt = os.environ["PODIUM_ATTEMPT"] == "0"


def write(step: int, value: int) -> None:
    from podium import trial

    def body(folder: Path) -> None:
        text = str(value)
        if mode == "torn" and first_attempt and step == 20:
            (folder / "value").write_text(text[:1])
            os._exit(137)  # without any cleanup; as PID 1 the process cannot kill itself
        if mode == "hangs" and trial.stopping():
            time.sleep(3600)
        if mode == "full" and step >= 10:
            (folder / "ballast").write_bytes(b"x" * (4 << 20))
        (folder / "value").write_text(text)

    trial.save(step, body)


def released() -> bool:
    return mode in ("held", "deaf") and Path(os.environ["PODIUM_CHECKPOINT"], "go").exists()


def pause(value: int) -> int:
    time.sleep(0 if released() else seconds)
    return value


def make_pause() -> Callable[[int], int]:
    """Return the pause of a step.

    If the job declares GPU memory, the value is in GPU memory during the pause.
    """
    if "PODIUM_GPU_MEMORY_BYTES" not in os.environ:
        return pause
    sys.path.append("/app")
    import numpy as np
    from gpu import open_block

    block, buffer = open_block(4), np.zeros(1, np.float32)  # float32 represents each of the values exactly
    if block is None:
        sys.exit("no GPU")

    def pause_on_gpu(value: int) -> int:
        buffer[0] = value
        block.store([buffer])
        buffer[0] = pause(0)
        block.load([buffer])
        return int(buffer[0])

    return pause_on_gpu


def main() -> int:
    from podium import trial

    pause_step = make_pause()
    deaf = mode == "deaf" and first_attempt
    trial.stopping()
    saved = trial.load()
    step, value = (int(saved.step), int((saved.path / "value").read_text())) if saved else (0, 1)
    while step < steps.LAST:
        held = mode in ("held", "deaf") and step >= steps.HELD_AT and not released()
        value = pause_step(value)
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
                print(f"no checkpoint of step {step}: {error}", file=sys.stderr)
        if trial.stopping() and not deaf:
            return trial.STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
