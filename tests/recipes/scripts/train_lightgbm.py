"""Boosted trees by LightGBM, from samples of columns and, drawn in every second round, of rows."""

import sys
import time

import lightgbm
import numpy as np
from podium_lightgbm import train, trial


def pause(env):
    time.sleep(0.05)


data = np.random.default_rng(3)
x = data.standard_normal((600, 6))
y = x.sum(axis=1) ** 2 + data.standard_normal(600)
params = {
    "num_leaves": 8,
    "subsample": 0.7,
    "bagging_freq": 2,
    "feature_fraction": 0.8,
    "feature_fraction_bynode": 0.6,
    "extra_trees": True,
    "seed": 3,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
rows = lightgbm.Dataset(x[:400], y[:400])
valid = lightgbm.Dataset(x[400:], y[400:], reference=rows)
train(params, rows, 40, valid_sets=[valid], valid_names=["valid"], callbacks=[pause])
if trial.stopping():
    sys.exit(trial.STOPPED)
