"""Train a small network in PyTorch so that a stopped training resumes bit for bit.

A checkpoint holds the state_dicts of the model, the optimiser and the learning rate scheduler, and the states of all
random number generators. It is loaded with `weights_only=True`, so it cannot execute code.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
from podium import trial

trial.stopping()  # handles SIGTERM from here on; `import torch` takes seconds
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products on a GPU

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

CLASSES = 3
POINTS = 600  # per class
NOISE = 0.15
DEFAULTS = {"lr": 0.01, "width": 64, "dropout": 0.1, "epochs": 40, "save_every": 5, "seed": 0}


@dataclass(slots=True)
class Training:
    """Everything that changes from epoch to epoch, and therefore belongs into a checkpoint."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    shuffling: torch.Generator

    def save(self, folder: Path) -> None:
        """Write the state to an empty folder."""
        state = {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "shuffling": self.shuffling.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all(),  # empty without a GPU
            "python": random.getstate(),
        }
        torch.save(state, folder / "state.pt")

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote."""
        # generator states belong to the CPU; load_state_dict moves the rest to the device of the model
        state: dict[str, Any] = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.shuffling.set_state(state["shuffling"])
        torch.set_rng_state(state["torch"])
        torch.cuda.set_rng_state_all(state["cuda"])
        random.setstate(state["python"])


def spirals(seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy points on three spirals and their classes; equal seeds give equal points."""
    generator = torch.Generator().manual_seed(seed)
    radius = torch.linspace(0.05, 1.0, POINTS).repeat(CLASSES)
    labels = torch.arange(CLASSES).repeat_interleave(POINTS)
    angle = 4.0 * radius + labels * (2.0 * torch.pi / CLASSES)
    angle = angle + NOISE * torch.randn(angle.shape, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), labels


def train_epoch(training: Training, batches: DataLoader[tuple[Tensor, ...]], device: torch.device) -> float:
    """Train for one pass over the data and return the mean loss."""
    training.model.train()
    total = 0.0
    for inputs, labels in batches:
        training.optimiser.zero_grad()
        loss = nn.functional.cross_entropy(training.model(inputs.to(device)), labels.to(device))
        loss.backward()
        training.optimiser.step()
        total += loss.item()
    training.scheduler.step()
    return total / len(batches)


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the share of points that the model classifies correctly."""
    model.eval()
    return float((model(inputs).argmax(dim=1) == labels).double().mean())


def main() -> int:
    """Train to the last epoch, or until SIGTERM; return the exit status."""
    settings = trial.params(DEFAULTS)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # sums have one order
    torch.manual_seed(settings["seed"])
    random.seed(settings["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = settings["width"]
    model = nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Dropout(settings["dropout"]),
        nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CLASSES),
    ).to(device)  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=settings["epochs"])
    training = Training(model, optimiser, scheduler, torch.Generator().manual_seed(settings["seed"]))
    batches = DataLoader(TensorDataset(*spirals(seed=1)), batch_size=32, shuffle=True, generator=training.shuffling)
    inputs, labels = (tensor.to(device) for tensor in spirals(seed=2))

    saved = trial.load()
    if saved:
        training.load(saved.path)
    first = int(saved.step) + 1 if saved else 1
    for epoch in range(first, settings["epochs"] + 1):
        loss = train_epoch(training, batches, device)
        # Reported before it is saved: after a kill between the two, the next attempt reports the same epoch again.
        trial.report(step=epoch, loss=loss, val_acc=accuracy(model, inputs, labels))
        if trial.should_save() or epoch % settings["save_every"] == 0 or epoch == settings["epochs"]:
            trial.save(epoch, training.save)
        if trial.stopping():
            return trial.STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
