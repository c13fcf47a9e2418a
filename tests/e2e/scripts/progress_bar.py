"""Draw a progress bar like tqdm on the stream of the metrics: carriage returns and few newlines."""

import json
import sys

import steps

for step, value in steps.run():
    done = step * 10 // steps.LAST
    sys.stdout.write(f"\r{step * 100 // steps.LAST:3d}%|{'█' * done:10s}| {step}/{steps.LAST} [00:01<00:07,  5.0it/s]")
    sys.stdout.write(f"\r{json.dumps({'epoch': step, 'loss': value})}" + ("\n" if step % 4 == 0 else ""))
