"""Prints metrics without a flush, and again through a buffered stream of its own."""

import atexit
import json
import sys

import steps

late = open(sys.stdout.fileno(), "w", buffering=1 << 16, closefd=False)  # noqa: SIM115
atexit.register(late.flush)
for step, value in steps.run():
    print(json.dumps({"epoch": step, "loss": value}))
    late.write(json.dumps({"epoch": step, "late": value}) + "\n")
