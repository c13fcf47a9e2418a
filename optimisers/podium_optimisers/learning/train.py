"""Train a method from scratch and write its weights.

This command made the weights in `weights/`:

  python -m podium_optimisers.learning.train ppo --seed 0 --out ppo.npz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from podium_optimisers.learning.dqn import Dqn
from podium_optimisers.learning.policy import TRAINED_WEIGHTS
from podium_optimisers.learning.ppo import Ppo
from podium_optimisers.learning.reinforce import Reinforce

METHODS: dict[str, Callable[[], Reinforce | Ppo | Dqn]] = {"reinforce": Reinforce, "ppo": Ppo, "dqn": Dqn}


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=sorted(METHODS))
    parser.add_argument("--seed", type=int, default=0, help="random seed of weights, episodes and actions (default: 0)")
    parser.add_argument("--out", type=Path, help="file to write (default: the weights in the package)")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"InvalidSeed: --seed: {options.seed} is out of range; give 0 or more")
    method = METHODS[options.method]()

    def report(update: int, mean: float) -> None:
        if update % 10 == 0:
            print(f"update {update}: mean completion {mean:.0f} s", file=sys.stderr, flush=True)

    out = options.out or TRAINED_WEIGHTS / f"{options.method}.npz"
    try:  # fail before the training, which takes a minute
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("ab").close()
    except OSError as error:
        parser.error(f"WeightsNotWritten: --out: {out}: {error.strerror}; name another file")
    method.train(options.seed, report).save(out)
    print(f"{out}: {out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
