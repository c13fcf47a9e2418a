"""Hugging Face Trainer: saves on Podium's request, ends after SIGTERM, and reports what it logs.

    from podium_huggingface import PodiumCallback, trial
    saved = trial.load()
    arguments = TrainingArguments(output_dir=os.environ.get("PODIUM_CHECKPOINT", "out"), save_strategy="epoch", ...)
    Trainer(..., args=arguments, callbacks=[PodiumCallback()]).train(resume_from_checkpoint=saved and str(saved.path))
    if trial.stopping():
        sys.exit(trial.STOPPED)

The job sets `metrics: {format: json}`; a step is the Trainer's global_step. The newest checkpoint is kept, and the best
one if the Trainer keeps it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial


class PodiumCallback(TrainerCallback):
    """Connects a Trainer to `podium.trial`."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Handle SIGTERM, and keep old checkpoints until the marker is written."""
        trial.stopping()
        # The Trainer removes old checkpoints before it reports the new one. A kill between the two would lose the
        # checkpoint that the completion marker names. So this callback removes them, after the new marker is written.
        args.save_total_limit = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save on request, and end after SIGTERM."""
        requests = torch.tensor([trial.should_save(), trial.stopping()], dtype=torch.int32, device=args.device)
        if args.world_size > 1:  # all ranks have to save at the same step, or they deadlock
            torch.distributed.all_reduce(requests, torch.distributed.ReduceOp.MAX)
        save, stop = (bool(request) for request in requests.tolist())
        control.should_save |= save
        control.should_training_stop |= stop

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Write the completion marker and remove older checkpoints."""
        if args.world_size > 1:
            torch.distributed.barrier()  # the marker is written after every rank has saved its part
        newest = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if not os.environ.get("PODIUM_CHECKPOINT") or not state.is_world_process_zero:
            return
        trial.mark(state.global_step, newest)
        for old in newest.parent.glob("checkpoint-*"):
            if str(old) not in (str(newest), state.best_model_checkpoint):
                shutil.rmtree(old)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Report the metrics."""
        trial.report(step=state.global_step, **(logs or {}))
