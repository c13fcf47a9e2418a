"""Prefetches batches in worker processes, as data loaders do.

The result depends on each batch and their order.
"""

import json
import multiprocessing
import os
from pathlib import Path

import steps


def batch(step: int) -> float:
    import numpy as np

    return float(np.random.default_rng(step).standard_normal(1000).sum())


if __name__ == "__main__":
    from podium import trial

    trial.stopping()  # before the fork: the workers inherit the handling of SIGTERM
    saved = trial.load()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        batches = pool.imap(batch, range(int(saved.step) + 1 if saved else 1, steps.LAST + 1))
        try:
            for step, _ in steps.run():
                print(json.dumps({"epoch": step, "loss": next(batches)}))
        finally:
            pool.terminate()
            pool.join()
            Path(os.environ["PODIUM_CHECKPOINT"], f"workers-ended-{os.environ['PODIUM_ATTEMPT']}").touch()
