"""A progress bar as tqdm draws it, on the same stream as the metrics: carriage returns, and seldom a new line."""

import json
import sys

import steps

for step, value in steps.run():
    done = step * 10 // steps.LAST
    sys.stdout.write(f"\r{step * 100 // steps.LAST:3d}%|{'█' * done:10s}| {step}/{steps.LAST} [00:01<00:07,  5.0it/s]")
    sys.stdout.write(f"\r{json.dumps({'epoch': step, 'loss': value})}" + ("\n" if step % 4 == 0 else ""))
