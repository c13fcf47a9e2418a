"""Two limits of 6 seconds: one of wall-clock time, one of CPU time."""

import json
import time

import steps

LIMIT = 6.0
started = time.time()
for step, value in steps.run():
    by_wall, by_processor = time.time() - started > LIMIT, time.process_time() > LIMIT
    print(json.dumps({"epoch": step, "loss": value, "by_wall": by_wall, "by_processor": by_processor}))
