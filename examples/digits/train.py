"""Train a small network on scikit-learn's handwritten digits, without any library of Podium.

The script prints one JSON line per epoch, saves a checkpoint after each epoch, and resumes from it bit for bit. Only
common practice makes it suitable for a search: hyper-parameters are flags, the metric is printed, and SIGTERM ends the
script after a checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

STOPPED = 143  # exit status: 128 + SIGTERM
MARKER = "podium-checkpoint.json"
stop_requested = False


def request_stop(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM: the training ends after the present epoch."""
    global stop_requested
    stop_requested = True


signal.signal(signal.SIGTERM, request_stop)  # before the slow imports: pid 1 has no default action for it
# One thread, set before numpy starts its threads: sums then have one order, and runs are equal bit for bit.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from gpu import open_block  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

Array = NDArray[np.float32]
SIDE = 8
SHIFT = 2  # pixels by which views are moved at most
NOISE = 0.2
VALIDATION_SHARE = 0.2
VALIDATION_VIEWS = 8
MOMENTUM = 0.9

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    # the function, and its derivative written in terms of its value
    "relu": (lambda x: np.maximum(x, np.float32(0)), lambda y: (y > 0).astype(np.float32)),
    "tanh": (np.tanh, lambda y: np.float32(1) - y * y),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters and options of a training."""

    lr: float
    width: int
    batch_size: int
    activation: str
    seed: int
    work: int


@dataclass(slots=True)
class Model:
    """Two hidden layers and a softmax.

    `values` alternates weights and biases; `momenta` has the momentum of each.
    """

    values: list[Array]
    momenta: list[Array]

    def forward(self, inputs: Array, activation: Callable[[Array], Array]) -> tuple[list[Array], Array]:
        """Return the inputs of all layers, and the class probabilities (one row per image)."""
        layers = [inputs]
        for i in range(0, len(self.values) - 2, 2):
            layers.append(activation(layers[-1] @ self.values[i] + self.values[i + 1]))
        logits = layers[-1] @ self.values[-2] + self.values[-1]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return layers, exponentials / exponentials.sum(axis=1, keepdims=True)


def new_model(settings: Settings, random: np.random.Generator) -> Model:
    """Return a model with random weights."""
    sizes = [SIDE * SIDE, settings.width, settings.width, 10]
    values: list[Array] = []
    for inputs, outputs in itertools.pairwise(sizes):
        values.append(random.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(np.sqrt(1 / inputs)))
        values.append(np.zeros(outputs, dtype=np.float32))
    return Model(values, [np.zeros_like(value) for value in values])


class Digits:
    """The images with one split for all trials, and random views of them (moved and noisy)."""

    def __init__(self) -> None:
        from sklearn.datasets import load_digits  # imported here, so that --help is fast

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(images))  # the split does not depend on --seed
        images, labels = (images[order] / 16).astype(np.float32), labels[order]
        cut = int(len(images) * VALIDATION_SHARE)
        blank = np.zeros((len(images), 1), dtype=np.float32)  # pixel 64 stands for everything outside the image
        padded = np.hstack([images, blank])
        self._moves = self._all_moves()
        self.images, self.labels = padded[cut:], labels[cut:]
        held_out = np.repeat(np.arange(cut), VALIDATION_VIEWS)
        self.validation_labels = labels[held_out]
        self.validation = self._views(padded, held_out, np.random.default_rng(1))

    @staticmethod
    def _all_moves() -> NDArray[np.intp]:
        """Return, for each shift and each pixel of the view, the pixel of the image; 64 is outside the image."""
        row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
        moves = []
        for down in range(-SHIFT, SHIFT + 1):
            for right in range(-SHIFT, SHIFT + 1):
                y, x = row - down, column - right
                inside = (y >= 0) & (y < SIDE) & (x >= 0) & (x < SIDE)
                moves.append(np.where(inside, y * SIDE + x, SIDE * SIDE))
        return np.array(moves)

    def _views(self, images: Array, rows: NDArray[np.intp], random: np.random.Generator) -> Array:
        moves = self._moves[random.integers(len(self._moves), size=len(rows))]
        views: Array = images[rows[:, None], moves]
        return views + np.float32(NOISE) * random.standard_normal(views.shape, dtype=np.float32)

    def batch(self, rows: NDArray[np.intp], work: int, random: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Return `work` different views of each image, and their labels."""
        repeated = np.repeat(rows, work)
        return self._views(self.images, repeated, random), self.labels[repeated]


def train_epoch(model: Model, digits: Digits, settings: Settings, random: np.random.Generator) -> float:
    """Train for one pass over the images in random order and return the mean loss."""
    activation, derivative = ACTIVATIONS[settings.activation]
    order = random.permutation(len(digits.images))
    total = 0.0
    for start in range(0, len(order), settings.batch_size):
        rows = order[start : start + settings.batch_size]
        inputs, labels = digits.batch(rows, settings.work, random)
        layers, likelihoods = model.forward(inputs, activation)
        at_labels = likelihoods[np.arange(len(labels)), labels]
        total += float(-np.log(np.maximum(at_labels, np.float32(1e-12))).mean()) * len(rows)
        error = likelihoods
        error[np.arange(len(labels)), labels] -= np.float32(1)
        error /= np.float32(len(labels))
        gradients: list[Array] = []
        for i in range(len(model.values) - 2, -1, -2):
            below = layers[i // 2]
            gradients[:0] = [below.T @ error, error.sum(axis=0)]
            if i > 0:
                error = (error @ model.values[i].T) * derivative(below)
        for value, momentum, gradient in zip(model.values, model.momenta, gradients, strict=True):
            momentum *= np.float32(MOMENTUM)
            momentum += gradient
            value -= np.float32(settings.lr) * momentum
    return total / len(order)


def accuracy(model: Model, digits: Digits, settings: Settings) -> float:
    """Return the share of the validation views that the model classifies correctly."""
    _, likelihoods = model.forward(digits.validation, ACTIVATIONS[settings.activation][0])
    return float((likelihoods.argmax(axis=1) == digits.validation_labels).mean())


def save(folder: Path, settings: Settings, epoch: int, model: Model, random: np.random.Generator) -> None:
    """Write the state, then the completion marker. After a kill, the marker names a complete state."""
    about = {
        "settings": repr(settings),
        "shape": _shape(settings),
        "epoch": epoch,
        "random": random.bit_generator.state,
    }
    arrays = {f"value{i}": value for i, value in enumerate(model.values)}
    arrays |= {f"momentum{i}": momentum for i, momentum in enumerate(model.momenta)}
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / f"epoch-{epoch}.npz"
    replace(state, lambda file: np.savez(file, about=np.array(json.dumps(about)), **arrays))  # type: ignore[arg-type]
    # The marker's name is all that this script shares with Podium. Some file has to name the complete state. With this
    # name, Podium can read it and knows how much work a kill would lose. It works the same way without Podium.
    replace(folder / MARKER, lambda file: file.write(json.dumps({"step": epoch}).encode()))
    for old in folder.glob("epoch-*"):
        if old != state:
            old.unlink()


def _shape(settings: Settings) -> str:
    return f"{settings.activation} network of width {settings.width}"


def replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file, sync it to the disk, and rename it."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def load(folder: Path, settings: Settings, model: Model, random: np.random.Generator, *, inherited: bool) -> int:
    """Restore model and random generator from the marker's state; return its epoch, or 0 without a marker.

    `inherited`: it may be of a trial with another learning rate and batch size, which do not change the network.
    """
    marker = folder / MARKER
    if not marker.exists():
        return 0
    epoch = int(json.loads(marker.read_text())["step"])
    file = folder / f"epoch-{epoch}.npz"
    with np.load(file) as saved:
        about: dict[str, Any] = json.loads(str(saved["about"]))
        same = about["shape"] == _shape(settings) if inherited else about["settings"] == repr(settings)
        if not same:
            sys.exit(
                f"{file} belongs to another trial: {about['settings']}, not {settings!r}; use one folder per trial"
            )
        model.values = [saved[f"value{i}"] for i in range(len(model.values))]
        model.momenta = [saved[f"momentum{i}"] for i in range(len(model.momenta))]
    random.bit_generator.state = about["random"]
    return epoch


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--width", type=int, default=64, help="units in each of the two hidden layers")
    parser.add_argument("--batch-size", "--batch_size", type=int, default=64, help="images in one step")
    parser.add_argument(
        "--activation", choices=sorted(ACTIVATIONS), default="relu", help="activation of the hidden layers"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of weights, order and views (the split is always the same)"
    )
    parser.add_argument(
        "--inherited", action="store_true", help="continue a checkpoint of another --lr and --batch-size, too"
    )
    parser.add_argument("--epochs", type=int, default=40, help="passes over the images")
    parser.add_argument(
        "--work", type=int, default=200, help="views of each image per step; the time is proportional to it"
    )
    folder = os.environ.get("PODIUM_CHECKPOINT")
    parser.add_argument("--checkpoint", default=folder, help="folder to save checkpoints to and to resume from")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Train to the last epoch, or until SIGTERM; return the exit status."""
    args = parse(arguments)
    settings = Settings(args.lr, args.width, args.batch_size, args.activation, args.seed, args.work)
    folder = Path(args.checkpoint) if args.checkpoint else None
    digits = Digits()
    random = np.random.default_rng(settings.seed)
    model = new_model(settings, random)
    done = load(folder, settings, model, random, inherited=args.inherited) if folder else 0
    block = open_block(sum(array.nbytes for array in (*model.values, *model.momenta)))  # None without a GPU
    if block:
        block.store([*model.values, *model.momenta])
    np.seterr(all="ignore")  # a learning rate that is far too high overflows: a bad trial, but not a failed one
    for epoch in range(done + 1, args.epochs + 1):
        if stop_requested:
            return STOPPED
        if block:
            block.load([*model.values, *model.momenta])
        loss = train_epoch(model, digits, settings, random)
        if block:
            block.store([*model.values, *model.momenta])
        # Printed before it is saved: after a kill between the two, the next attempt prints the same line again. In the
        # other order, the line would be missing.
        shown = loss if math.isfinite(loss) else str(loss)  # JSON has no NaN
        print(json.dumps({"epoch": epoch, "val_acc": accuracy(model, digits, settings), "loss": shown}))
        if folder:
            save(folder, settings, epoch, model, random)
    return 0


if __name__ == "__main__":
    sys.exit(main())
