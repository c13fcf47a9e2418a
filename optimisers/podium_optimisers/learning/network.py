"""A small network in numpy: dense layers with tanh, gradients by hand, Adam, weights as .npz.

The network scores one row at a time, so it handles any number of waiting jobs in any order. Files hold arrays only.
They are read with pickle forbidden, and their shapes are checked.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from podium_optimisers.arrays import Floats


class WeightsError(ValueError):
    """A file that does not hold a valid network. The message names the file, the array and the cure."""


class ScoreNetwork:
    """A network that maps rows of shape (n, inputs) to scores of shape (n,)."""

    def __init__(self, layers: list[tuple[Floats, Floats]]) -> None:
        self.layers = layers  # (weights of shape (in, out), bias of shape (out,))
        self._activations: list[Floats] = []

    @classmethod
    def random_init(cls, inputs: int, hidden: tuple[int, ...], generator: np.random.Generator) -> ScoreNetwork:
        """Return a network with random weights (Glorot and Bengio, 2010).

        The last layer is near 0, so that at first all rows have nearly equal scores.
        """
        sizes = (inputs, *hidden, 1)
        layers = []
        for at, (before, after) in enumerate(pairwise(sizes)):
            spread = np.sqrt(2.0 / (before + after)) * (0.01 if at == len(hidden) else 1.0)
            layers.append((generator.normal(0.0, spread, (before, after)), np.zeros(after)))
        return cls(layers)

    def scores(self, rows: Floats) -> Floats:
        """Return the scores and keep the activations for `gradients`. O(n x weights)."""
        self._activations = [rows]
        out = rows
        for weights, bias in self.layers[:-1]:
            out = np.tanh(out @ weights + bias)
            self._activations.append(out)
        weights, bias = self.layers[-1]
        scores: Floats = (out @ weights + bias)[:, 0]
        return scores

    def gradients(self, errors: Floats) -> list[tuple[Floats, Floats]]:
        """Return the gradients of sum(errors x scores) by each layer's weights and bias.

        The sum is over the rows of the last `scores` call; `errors` has shape (n,).
        """
        gradients: list[tuple[Floats, Floats]] = []
        flow = errors[:, None]
        for at in range(len(self.layers) - 1, -1, -1):
            gradients.append((self._activations[at].T @ flow, flow.sum(axis=0)))
            if at:
                flow = (flow @ self.layers[at][0].T) * (1.0 - self._activations[at] ** 2)
        return gradients[::-1]

    def copy(self) -> ScoreNetwork:
        """Return a copy with its own arrays."""
        return ScoreNetwork([(weights.copy(), bias.copy()) for weights, bias in self.layers])

    def save(self, path: Path) -> None:
        """Write the arrays w0, b0, w1, ... in single precision."""
        arrays = {}
        for at, (weights, bias) in enumerate(self.layers):
            arrays[f"w{at}"], arrays[f"b{at}"] = weights.astype(np.float32), bias.astype(np.float32)
        np.savez_compressed(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path, inputs: int) -> ScoreNetwork:
        """Read a network with this number of inputs.

        Raises WeightsError if the file is not readable, holds other arrays, or has another number of inputs.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name].astype(np.float64) for name in archive.files}
        except (OSError, ValueError, EOFError) as error:
            raise WeightsError(f"InvalidWeights: {path.name} cannot be read ({error}); train again.") from None
        layers: list[tuple[Floats, Floats]] = []
        width = inputs
        for at in range(len(arrays) // 2):
            weights, bias = arrays.pop(f"w{at}", None), arrays.pop(f"b{at}", None)
            if weights is None or bias is None or weights.shape != (width, len(bias)) or bias.ndim != 1:
                text = f"w{at} and b{at} must have the shapes ({width}, n) and (n,)"
                raise WeightsError(f"InvalidWeights: {path.name}: {text}; train again.")
            if not (np.all(np.isfinite(weights)) and np.all(np.isfinite(bias))):
                raise WeightsError(f"InvalidWeights: {path.name}: w{at} or b{at} is not finite; train again.")
            layers.append((weights, bias))
            width = len(bias)
        if not layers or width != 1 or arrays:
            raise WeightsError(f"InvalidWeights: {path.name} does not hold a network with one output; train again.")
        return cls(layers)


class Adam:
    """The Adam optimiser (Kingma and Ba, 2015), with the gradient norm limited to `clip`. It minimises."""

    def __init__(self, network: ScoreNetwork, learning_rate: float, clip: float = 1.0) -> None:
        self.network, self.learning_rate, self.clip = network, learning_rate, clip
        self._means = [np.zeros_like(part) for layer in network.layers for part in layer]
        self._squares = [np.zeros_like(part) for layer in network.layers for part in layer]
        self._steps = 0

    def step(self, gradients: list[tuple[Floats, Floats]]) -> None:
        """Update the network's weights in place."""
        parts = [part for layer in gradients for part in layer]
        norm = float(np.sqrt(sum(float(np.sum(part * part)) for part in parts)))
        scale = min(1.0, self.clip / norm) if norm > 0.0 else 1.0
        self._steps += 1
        learning_rate = self.learning_rate * np.sqrt(1.0 - 0.999**self._steps) / (1.0 - 0.9**self._steps)
        targets = [part for layer in self.network.layers for part in layer]
        for target, part, mean, square in zip(targets, parts, self._means, self._squares, strict=True):
            part = part * scale
            mean += 0.1 * (part - mean)
            square += 0.001 * (part * part - square)
            target -= learning_rate * mean / (np.sqrt(square) + 1e-8)
