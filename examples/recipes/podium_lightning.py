"""PyTorch Lightning: saves after every epoch and on request, ends after SIGTERM, and reports metrics.

    from podium_lightning import PodiumCallback, trial
    saved = trial.load()
    trainer = Trainer(..., callbacks=[PodiumCallback()], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=saved and saved.path)
    if trial.stopping():
        sys.exit(trial.STOPPED)

A step is Lightning's global_step. A checkpoint in the middle of an epoch resumes at the number of that batch. Lightning
then takes the rest of the epoch from the start of the loader. The same batches follow only if the loader has a state of
its own (`state_dict` and `load_state_dict`), as torchdata's StatefulDataLoader has.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial


class PodiumCallback(Callback):
    """Connects a Trainer to `podium.trial`."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle SIGTERM, and remember the step of the last checkpoint."""
        trial.stopping()
        saved = trial.load()
        self._saved = saved.step if saved else None  # the same on every rank

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Save on request, and end after SIGTERM."""
        # all ranks have to save at the same step, or they deadlock
        if trainer.strategy.reduce_boolean_decision(trial.should_save(), all=False):
            self._save(trainer)
        if trainer.strategy.reduce_boolean_decision(trial.stopping(), all=False):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report and save."""
        trial.report(step=trainer.global_step, epoch=trainer.current_epoch, **trainer.callback_metrics)
        self._save(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Set the exit status after SIGTERM."""
        if isinstance(exception, SystemExit):  # Lightning's own end after SIGTERM, with status 0
            exception.code = trial.STOPPED

    def _save(self, trainer: Trainer) -> None:
        folder = os.environ.get("PODIUM_CHECKPOINT")
        # A request at the last batch of an epoch saved this step already; the marker's file must not be written again.
        if folder and trainer.global_step != self._saved:
            self._saved = trainer.global_step
            path = Path(folder, f"step-{trainer.global_step}.ckpt")
            trainer.save_checkpoint(path)  # on every rank: with some strategies each writes a part
            trial.mark(trainer.global_step, path)
