"""A contender of bench-rivals: Ray Tune's ASHA with its default settings, one trial a core.

Run in the rivals' environment: `python -m benchmarks.rivals.contender_ray SETUP.json`. Actors are reused, so that Ray
has as few starts as possible. Ray's grid over the drawn points is a random search over the same points as Podium's, in
their order.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from benchmarks.rivals.training import Setup, Training


class Digits(tune.Trainable):
    """A trainable whose step is one epoch of the training process."""

    def setup(self, config: dict[str, Any]) -> None:
        self.training: Training | None = None
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        self.cleanup()
        setup = Setup.read(config["setup"])
        self.training = Training(setup, self.trial_id, config["parameters"])
        self.last = {"epoch": 0, "val_acc": 0.0}
        self.epochs = setup.epochs

    def step(self) -> dict[str, Any]:
        assert self.training is not None
        seen = self.training.next()
        if seen is None:
            raise RuntimeError(f"the training of {self.trial_id} ended before its last epoch")
        epoch, value = seen
        return {"epoch": epoch, "val_acc": value, "done": epoch >= self.epochs}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        if self.training is not None:
            self.training.kill()
            self.training = None


def main(path: str) -> None:
    setup = Setup.read(path)
    ray.init(num_cpus=setup.cores, include_dashboard=False, log_to_driver=False, _temp_dir=setup.scratch)
    tuner = tune.Tuner(
        tune.with_resources(Digits, {"cpu": 1}),
        param_space={"setup": path, "parameters": tune.grid_search(setup.drawn)},
        tune_config=tune.TuneConfig(
            metric="val_acc", mode="max", scheduler=ASHAScheduler(max_t=setup.epochs), reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=setup.scratch, verbose=0),
    )
    failed = tuner.fit().num_errors
    if failed:
        sys.exit(f"{failed} trials failed under Ray Tune")


if __name__ == "__main__":
    main(sys.argv[1])
