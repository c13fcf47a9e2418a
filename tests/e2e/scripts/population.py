"""A trial of a population without a GPU, where no library of Podium is: its value is the sum of x over its steps.

It saves a checkpoint after each step, and continues from what it finds in its folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

STEPS = 200
SECONDS = 0.5
MARKER = "podium-checkpoint.json"


def replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.rename(path)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder, x = Path(os.environ["PODIUM_CHECKPOINT"]), json.loads(os.environ["PODIUM_PARAMS"])["x"]
    step, total, marker = 0, 0.0, folder / MARKER
    if marker.exists():
        step = json.loads(marker.read_text())["step"]
        total = json.loads((folder / f"state-{step}").read_text())
    while step < STEPS:
        time.sleep(SECONDS)
        step, total = step + 1, total + x
        print(json.dumps({"epoch": step, "score": total}), flush=True)
        replace(folder / f"state-{step}", json.dumps(total))
        replace(marker, json.dumps({"step": step}))
        (folder / f"state-{step - 1}").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
