"""Gradient boosting by scikit-learn that adds trees in each step, from a sample of rows and columns."""

import sys
import time

import numpy as np
from podium_sklearn import restore, save, trial
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import mean_squared_error

data = np.random.default_rng(3)
x = data.standard_normal((300, 6))
y = x.sum(axis=1) ** 2
start = GradientBoostingRegressor(warm_start=True, subsample=0.7, max_features=3, random_state=3)
model, done = restore(start)
for step in range(done + 1, 41):
    model.set_params(n_estimators=2 * step).fit(x[:200], y[:200])
    trial.report(step=step, loss=mean_squared_error(y[200:], model.predict(x[200:])))
    time.sleep(0.05)
    if trial.should_save() or step % 10 == 0:
        save(step, model)
    if trial.stopping():
        sys.exit(trial.STOPPED)
