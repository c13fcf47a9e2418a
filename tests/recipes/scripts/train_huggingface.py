"""A small regression by the Trainer, shuffled and with dropout, so it needs its complete state."""

import os
import sys
import time

import torch
from podium_huggingface import PodiumCallback, trial
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

    def forward(self, x, labels):
        time.sleep(0.02)
        return {"loss": torch.nn.functional.mse_loss(self.layers(x).squeeze(-1), labels)}


set_seed(3)
inputs = torch.randn(96, 4)
rows = [{"x": x, "labels": x.sum() ** 2} for x in inputs]
saved = trial.load()
arguments = TrainingArguments(
    output_dir=os.environ.get("PODIUM_CHECKPOINT", "out"),
    per_device_train_batch_size=8,
    num_train_epochs=5,
    logging_steps=1,
    save_strategy="steps",
    save_steps=10,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=Line(), args=arguments, train_dataset=rows, callbacks=[PodiumCallback()])
trainer.remove_callback(PrinterCallback)
trainer.train(resume_from_checkpoint=saved and str(saved.path))
if trial.stopping():
    sys.exit(trial.STOPPED)
