"""A linear classifier that learns by partial_fit, with rows in an order that a generator draws."""

import sys
import time

import numpy as np
from podium_sklearn import restore, save, trial
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

data = np.random.default_rng(3)
x = data.standard_normal((300, 6))
y = (x.sum(axis=1) + data.standard_normal(300) > 0).astype(int)
start = SGDClassifier(loss="log_loss", alpha=0.01, random_state=np.random.RandomState(3)), np.random.default_rng(4)
(model, rows), done = restore(start)
for epoch in range(done + 1, 41):
    order = rows.permutation(200)
    model.partial_fit(x[order], y[order], classes=[0, 1])
    trial.report(step=epoch, loss=log_loss(y[200:], model.predict_proba(x[200:])))
    time.sleep(0.05)
    if trial.should_save() or epoch % 10 == 0:
        save(epoch, (model, rows))
    if trial.stopping():
        sys.exit(trial.STOPPED)
