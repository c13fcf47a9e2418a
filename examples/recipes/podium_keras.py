"""Keras 3: saves after every epoch and on Podium's request, ends after SIGTERM, and reports the logs.

    from podium_keras import PodiumCallback, trial
    saved = trial.load()
    model = keras.models.load_model(saved.path / "model.keras") if saved else build()
    model.fit(..., initial_epoch=saved.step if saved else 0, callbacks=[PodiumCallback()])
    if trial.stopping():
        sys.exit(trial.STOPPED)

A step is an epoch, because `fit` can only resume at the start of one. Work after the last complete epoch is lost. If an
epoch takes longer than the grace period, shorten it with `steps_per_epoch`. `PodiumCallback(every=5)` saves after every
fifth epoch. The job sets `metrics: {stepKey: epoch}`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import keras

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial


class PodiumCallback(keras.callbacks.Callback):
    """Connects `fit` to `podium.trial`. `every`: number of epochs between two checkpoints."""

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self.every = every

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Handle SIGTERM from here on."""
        trial.stopping()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Report, save if it is time, and end after SIGTERM."""
        done = epoch + 1
        trial.report(step=done, **(logs or {}))
        if trial.should_save() or done % self.every == 0:
            trial.save(done, self._write)
        if trial.stopping():
            self.model.stop_training = True

    def _write(self, folder: Path) -> None:
        self.model.save(folder / "model.keras")  # with the optimizer's state
