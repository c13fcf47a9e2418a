"""Record learning curves of examples/digits/train.py for podium_simulator.traces.

python tools/record_example.py [OUT] [--trials 48] [--epochs 40] [--work 4] [--seed 0]

Configurations are drawn as examples/digits/job.yaml describes them. Wall time is not recorded, because it depends on
the machine, and because an epoch is short at --work=4. Instead `seconds` counts evaluations, so equal calls write
equal files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "digits" / "train.py"
OUT = ROOT / "simulator" / "podium_simulator" / "data" / "digits-example.jsonl.gz"

Settings = dict[str, float | int | str]


def settings(random: np.random.Generator) -> Settings:
    """Draw a configuration."""
    return {
        "lr": float(f"{np.exp(random.uniform(np.log(1e-3), np.log(0.5))):.6g}"),
        "width": int(random.integers(1, 7)) * 16,
        "batch_size": int(random.choice([16, 32, 64, 128])),
        "activation": str(random.choice(["relu", "tanh"])),
    }


def record(number: int, chosen: Settings, epochs: int, work: int) -> dict[str, object]:
    """Train with a configuration and return its curve."""
    flags = [f"--{name}={value}" for name, value in chosen.items()]
    call = [sys.executable, str(SCRIPT), f"--epochs={epochs}", f"--work={work}", f"--seed={number}", *flags]
    lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    points = [json.loads(line) for line in lines]
    # a diverged network still has an accuracy; its loss shows that it diverged
    values = [None if point["loss"] is None else round(point["val_acc"], 5) for point in points]
    steps = [point["epoch"] for point in points]
    seconds = [float(step) for step in steps]
    return {"trial": f"d{number}", "hparams": chosen, "seconds": seconds, "step": steps, "value": values}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--work", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    chosen = [settings(random) for _ in range(args.trials)]
    with ThreadPoolExecutor(2) as pool:
        trials = list(pool.map(lambda i: record(i, chosen[i], args.epochs, args.work), range(args.trials)))
    header = {
        "task": "digits_example",
        "source": "tools/record_example.py on examples/digits/train.py",
        "license": "Apache-2.0",
        "metric": "val_acc",
        "goal": "maximize",
        "target": None,
        "note": "no wall time recorded: seconds = evaluation index",
    }
    text = "".join(json.dumps(line) + "\n" for line in [header, *trials])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{args.out}: {len(trials)} trials, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
