"""A small regression by Lightning, with momentum.

The loader has a state, so an epoch can resume in its middle.
"""

import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from podium_lightning import PodiumCallback, trial


class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, index):
        time.sleep(0.02)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x).squeeze(-1), y)
        self.log("loss", loss)
        trial.report(step=self.global_step + 1, batch_loss=loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Rows:
    def __init__(self):
        x = torch.randn(96, 4)
        self.batches = list(zip(x.split(8), (x.sum(dim=1) ** 2).split(8), strict=True))
        self.done = 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for number in range(self.done, len(self)):
            self.done = (number + 1) % len(self)
            yield self.batches[number]

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


seed_everything(3, verbose=False)
saved = trial.load()
trainer = Trainer(
    max_epochs=5,
    callbacks=[PodiumCallback()],
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Line(), Rows(), ckpt_path=saved and saved.path)
if trial.stopping():
    sys.exit(trial.STOPPED)
