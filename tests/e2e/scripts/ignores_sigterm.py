"""Writes a checkpoint every 5 steps and ignores both requests and SIGTERM."""

import json
import os
import signal
import time
from pathlib import Path

import steps

signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = Path(os.environ["PODIUM_CHECKPOINT"])
marker = folder / "podium-checkpoint.json"
step = json.loads(marker.read_text())["step"] if marker.exists() else 0
value = int((folder / f"value-{step}").read_text()) if step else 1
while step < steps.LAST:
    time.sleep(steps.SECONDS)
    if steps.held(step):
        continue
    step += 1
    value = steps.following(step, value)
    steps.record(step, value)
    print(json.dumps({"epoch": step, "loss": value}))
    if step % steps.EVERY == 0:
        (folder / f"value-{step}").write_text(str(value))
        aside = folder / "podium-checkpoint.json.new"
        aside.write_text(json.dumps({"step": step}))
        aside.replace(marker)
