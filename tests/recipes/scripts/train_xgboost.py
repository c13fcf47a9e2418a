"""Boosted trees by XGBoost, each from a sample of rows and columns."""

import sys
import time

import numpy as np
import xgboost
from podium_xgboost import train, trial


class Pause(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.05)
        return False


data = np.random.default_rng(3)
x = data.standard_normal((600, 6))
y = x.sum(axis=1) ** 2 + data.standard_normal(600)
params = {
    "tree_method": "hist",
    "max_depth": 4,
    "subsample": 0.7,
    "colsample_bytree": 0.8,
    "colsample_bynode": 0.6,
    "seed": 3,
    "nthread": 1,
}
train(
    params,
    xgboost.DMatrix(x[:400], y[:400]),
    40,
    evals=[(xgboost.DMatrix(x[400:], y[400:]), "valid")],
    callbacks=[Pause()],
)
if trial.stopping():
    sys.exit(trial.STOPPED)
