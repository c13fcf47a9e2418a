"""A small network in numpy: dense layers with tanh, gradients by hand, Adam, weights as .npz. Called by the trainers
and by the learned policy.

One network scores one row at a time, so a state with any number of waiting jobs is as many rows, and the order of the
queue does not matter. Files hold arrays only: they are read with pickling forbidden, and shapes are checked.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from podium_optimisers.engine.workload import Floats


class WeightsError(ValueError):
    """A file that is no network of ours; the message names file, array and cure."""


class Network:
    """Rows of shape (n, inputs) to numbers of shape (n,)."""

    def __init__(self, layers: list[tuple[Floats, Floats]]) -> None:
        self.layers = layers  # (weights of shape (in, out), bias of shape (out,))
        self._kept: list[Floats] = []

    @classmethod
    def fresh(cls, inputs: int, hidden: tuple[int, ...], generator: np.random.Generator) -> Network:
        """Weights as Glorot and Bengio (2010); the last layer near 0, so that at first all rows score alike."""
        sizes = (inputs, *hidden, 1)
        layers = []
        for at, (before, after) in enumerate(pairwise(sizes)):
            spread = np.sqrt(2.0 / (before + after)) * (0.01 if at == len(hidden) else 1.0)
            layers.append((generator.normal(0.0, spread, (before, after)), np.zeros(after)))
        return cls(layers)

    def scores(self, rows: Floats) -> Floats:
        """Keeps what `gradients` needs until the next call. O(n x weights)."""
        self._kept = [rows]
        out = rows
        for weights, bias in self.layers[:-1]:
            out = np.tanh(out @ weights + bias)
            self._kept.append(out)
        weights, bias = self.layers[-1]
        scores: Floats = (out @ weights + bias)[:, 0]
        return scores

    def gradients(self, errors: Floats) -> list[tuple[Floats, Floats]]:
        """Of the sum over rows of errors x scores of the last `scores` call, for each layer; `errors` of shape (n,)."""
        found: list[tuple[Floats, Floats]] = []
        flow = errors[:, None]
        for at in range(len(self.layers) - 1, -1, -1):
            found.append((self._kept[at].T @ flow, flow.sum(axis=0)))
            if at:
                flow = (flow @ self.layers[at][0].T) * (1.0 - self._kept[at] ** 2)
        return found[::-1]

    def copy(self) -> Network:
        return Network([(weights.copy(), bias.copy()) for weights, bias in self.layers])

    def save(self, path: Path) -> None:
        """Arrays w0, b0, w1, ... in single precision: a few kilobytes."""
        arrays = {}
        for at, (weights, bias) in enumerate(self.layers):
            arrays[f"w{at}"], arrays[f"b{at}"] = weights.astype(np.float32), bias.astype(np.float32)
        np.savez_compressed(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path, inputs: int) -> Network:
        """Errors: WeightsError when the file is not readable, holds other arrays, or does not take `inputs` numbers."""
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = {name: found[name].astype(np.float64) for name in found.files}
        except (OSError, ValueError, EOFError) as error:
            raise WeightsError(f"InvalidWeights: {path.name} cannot be read ({error}); train again.") from None
        layers: list[tuple[Floats, Floats]] = []
        width = inputs
        for at in range(len(arrays) // 2):
            weights, bias = arrays.pop(f"w{at}", None), arrays.pop(f"b{at}", None)
            if weights is None or bias is None or weights.shape != (width, len(bias)) or bias.ndim != 1:
                text = f"w{at} and b{at} must be of shapes ({width}, n) and (n,)"
                raise WeightsError(f"InvalidWeights: {path.name}: {text}; train again.")
            if not (np.all(np.isfinite(weights)) and np.all(np.isfinite(bias))):
                raise WeightsError(f"InvalidWeights: {path.name}: w{at} or b{at} is not finite; train again.")
            layers.append((weights, bias))
            width = len(bias)
        if not layers or width != 1 or arrays:
            raise WeightsError(f"InvalidWeights: {path.name} is no network that gives one number; train again.")
        return cls(layers)


class Adam:
    """Kingma and Ba (2015), with the gradient's norm bounded by `clip`. Minimises."""

    def __init__(self, network: Network, rate: float, clip: float = 1.0) -> None:
        self.network, self.rate, self.clip = network, rate, clip
        self._means = [np.zeros_like(part) for layer in network.layers for part in layer]
        self._squares = [np.zeros_like(part) for layer in network.layers for part in layer]
        self._steps = 0

    def step(self, gradients: list[tuple[Floats, Floats]]) -> None:
        parts = [part for layer in gradients for part in layer]
        norm = float(np.sqrt(sum(float(np.sum(part * part)) for part in parts)))
        scale = min(1.0, self.clip / norm) if norm > 0.0 else 1.0
        self._steps += 1
        rate = self.rate * np.sqrt(1.0 - 0.999**self._steps) / (1.0 - 0.9**self._steps)
        targets = [part for layer in self.network.layers for part in layer]
        for target, part, mean, square in zip(targets, parts, self._means, self._squares, strict=True):
            part = part * scale
            mean += 0.1 * (part - mean)
            square += 0.001 * (part * part - square)
            target -= rate * mean / (np.sqrt(square) + 1e-8)
