"""Two contenders of bench-rivals: Ray Tune's ASHA with its default settings, one trial a core.

Run in the rivals' environment: `python -m benchmarks.rivals.contender_ray SETUP.json`. Actors are reused, so that Ray
has as few starts as possible. With `search: random`, Ray's grid over the drawn points is a random search over the same
points as Podium's, in their order; with `search: optuna`, Ray's OptunaSearch (TPE) chooses the points.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.rivals.optuna_suggestions import suggest
from benchmarks.rivals.training import Setup, Training


class Search(tune.Trainable):
    """A trainable whose step is one epoch of the training; `setup_file` comes by `with_parameters`."""

    def setup(self, config: dict[str, Any], setup_file: str = "") -> None:
        self.training: Training | None = None
        self.settings = Setup.read(setup_file)
        self._begin(config)

    def _begin(self, config: dict[str, Any]) -> None:
        self.cleanup()
        self.training = Training(self.settings, self.trial_id, config.get("parameters", config))

    def step(self) -> dict[str, Any]:
        assert self.training is not None
        seen = self.training.next()
        if seen is None:
            raise RuntimeError(f"the training of {self.trial_id} ended before its last epoch")
        epoch, value = seen
        return {"epoch": epoch, "val_acc": value, "done": epoch >= self.settings.epochs}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        if self.training is not None:
            self.training.kill()
            self.training = None


def points(setup: Setup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameter space of the Tuner, and the settings by which it chooses points."""
    if setup.search == "random":
        return {"parameters": tune.grid_search(setup.drawn)}, {}
    searcher = OptunaSearch(space=partial(suggest, space=setup.space), metric="val_acc", mode="max", seed=setup.seed)
    return {}, {"search_alg": searcher, "num_samples": setup.trials}


def main(path: str) -> None:
    setup = Setup.read(path)
    ray.init(num_cpus=setup.cores, include_dashboard=False, log_to_driver=False, _temp_dir=setup.scratch)
    space, chosen_by = points(setup)
    scheduler = ASHAScheduler(max_t=setup.epochs, metric="val_acc", mode="max")
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(Search, setup_file=path), {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=True, **chosen_by),
        run_config=tune.RunConfig(storage_path=setup.scratch, verbose=0),
    )
    failed = tuner.fit().num_errors
    if failed:
        sys.exit(f"{failed} trials failed under Ray Tune")


if __name__ == "__main__":
    main(sys.argv[1])
