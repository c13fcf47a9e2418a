"""scikit-learn: saves and resumes estimators that learn step by step (`partial_fit` or `warm_start`).

    from podium_sklearn import restore, save, trial
    model, done = restore(SGDClassifier(random_state=0))
    for epoch in range(done + 1, EPOCHS + 1):
        model.partial_fit(x, y, classes=classes)
        trial.report(step=epoch, val_acc=model.score(x_val, y_val))
        if trial.should_save() or epoch % 5 == 0:
            save(epoch, model)
        if trial.stopping():
            sys.exit(trial.STOPPED)

What is saved may be a tuple, such as an estimator and the NumPy generator that orders the rows. With `warm_start=True`
a step is `model.set_params(n_estimators=10 * epoch).fit(x, y)`. After `restore`, set with `model.set_params` what
population-based training may have changed. A pickle can execute code: keep the checkpoints in a volume that only your
trials write.
"""

from __future__ import annotations

import os
import sys
from typing import TypeVar

import joblib

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

State = TypeVar("State")
FILE = "state.joblib"

trial.stopping()  # handles SIGTERM from here on


def restore(state: State) -> tuple[State, int]:
    """Return the saved state and its step; without a checkpoint, this state and 0."""
    saved = trial.load()
    return (joblib.load(saved.path / FILE), int(saved.step)) if saved else (state, 0)


def save(step: int, state: object) -> None:
    """Save the state after this step."""
    trial.save(step, lambda folder: joblib.dump(state, folder / FILE))
