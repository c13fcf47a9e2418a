"""Keras 3: saves each epoch (or each `every` epochs, and when Podium asks), ends after SIGTERM, reports the logs.

    from podium_keras import PodiumCallback, trial
    saved = trial.load()
    model = keras.models.load_model(saved.path / "model.keras") if saved else build()
    model.fit(..., initial_epoch=saved.step if saved else 0, callbacks=[PodiumCallback()])
    if trial.stopping():
        sys.exit(trial.STOPPED)

A step is an epoch, as `fit` can only go on at one. Where an epoch takes longer than the grace period, make it shorter
(`steps_per_epoch`): what comes after the last whole one is lost. The job says `metrics: {stepKey: epoch}`.
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
    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self.every = every

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        trial.stopping()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        done = epoch + 1
        trial.report(step=done, **(logs or {}))
        if trial.should_save() or done % self.every == 0:
            trial.save(done, self._write)
        if trial.stopping():
            self.model.stop_training = True

    def _write(self, folder: Path) -> None:
        self.model.save(folder / "model.keras")  # with the optimizer's state
