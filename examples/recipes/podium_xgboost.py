"""XGBoost: `train` is `xgboost.train` that saves on Podium's request, ends after SIGTERM, and resumes.

    from podium_xgboost import train, trial
    model = train(params, data, ROUNDS, evals=[(valid, "valid")], every=50)
    if trial.stopping():
        sys.exit(trial.STOPPED)

A step is a round. Each metric of `evals` is reported as valid_rmse: the name of the data, then that of the metric.
`every` is the number of rounds between two checkpoints. XGBoost does not save its random number generators, so each
round gets a seed of its own, from `seed` and its number. A resumed training then samples the rows and columns that it
would have sampled. Leave early stopping to Podium, because XGBoost's own counts from the start again. In a schedule of
learning rates, count by `model.num_boosted_rounds()`; the `epoch` of a callback starts at 0 again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xgboost

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

FILE = "model.ubj"

trial.stopping()  # handles SIGTERM from here on


def train(
    params: Mapping[str, Any],
    dtrain: xgboost.DMatrix,
    num_boost_round: int,
    *,
    every: int = 10,
    callbacks: Sequence[xgboost.callback.TrainingCallback] = (),
    **options: Any,
) -> xgboost.Booster:
    """Call `xgboost.train` for the rounds after the checkpoint; return the model of all rounds."""
    saved = trial.load()
    left = max(num_boost_round - int(saved.step), 0) if saved else num_boost_round
    return xgboost.train(
        dict(params),
        dtrain,
        left,
        xgb_model=saved and saved.path / FILE,
        callbacks=[PodiumCallback(params, every), *callbacks],  # the first one to stop hides a round from the others
        **{"verbose_eval": False, **options},
    )


class PodiumCallback(xgboost.callback.TrainingCallback):
    """Connects `xgboost.train` to `podium.trial`; `every`: number of rounds between two checkpoints."""

    def __init__(self, params: Mapping[str, Any], every: int = 10) -> None:
        super().__init__()
        self.every = every
        self.seed = int(params.get("seed", params.get("random_state", 0)))
        self.trees = params.get("booster", "gbtree") != "gblinear"
        self.method = params.get("tree_method", "auto")

    def before_training(self, model: xgboost.Booster) -> xgboost.Booster:
        """Remember the step of the last checkpoint."""
        self._saved = model.num_boosted_rounds()
        return model

    def before_iteration(self, model: xgboost.Booster, epoch: int, evals_log: Any) -> bool:
        """Seed the generators with the number of the round."""
        if self.trees:  # the sampler of columns is created, and seeded, only when the method changes
            model.set_param("tree_method", "hist" if self.method == "approx" else "approx")
            model.save_config()  # applies it
            model.set_param("tree_method", self.method)
        model.set_param("seed", self.seed * 10_007 + model.num_boosted_rounds())
        return False

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: Any) -> bool:
        """Report, save if it is time, and end after SIGTERM."""
        done = model.num_boosted_rounds()
        values = {f"{data}_{name}": row[-1] for data, rows in evals_log.items() for name, row in rows.items()}
        trial.report(step=done, **values)
        if trial.should_save() or done - self._saved >= self.every:
            trial.save(done, lambda folder: _write(model, folder))
            self._saved = done
        return trial.stopping()


def _write(model: xgboost.Booster, folder: Path) -> None:
    model.save_model(folder / FILE)
