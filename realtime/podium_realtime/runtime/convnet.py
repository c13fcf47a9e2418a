"""Small residual networks in numpy, divided into stages, for the CPU back-end.

The networks follow ResNet (He et al., CVPR 2016) without normalisation layers, which inference folds into the weights.
A convolution is im2col and one matrix product, so BLAS and memory determine the time, as on a real server. Weights are
drawn from a seed, so every worker builds the same network without a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from podium_realtime.model.errors import RealtimeError, require_between
from podium_realtime.model.network import InferenceNetwork, Stage

Array = NDArray[np.float32]
CLASSES = 10


@dataclass(frozen=True, slots=True)
class ConvNetSpec:
    """Shape of a network.

    `size`: height and width of the 3-channel input; a multiple of 8.
    `width`: channels of the first layer.
    `branched`: two towers of half the width between stem and head, instead of a chain.
    """

    name: str
    size: int = 64
    width: int = 32
    branched: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_between(self.size, 8, 512, f"network {self.name}: size")
        if self.size % 8:
            problem = f"must be a multiple of 8 (got {self.size}), because the network halves it three times"
            raise RealtimeError("InvalidValue", f"network {self.name}: size", problem)
        require_between(self.width, 2, 512, f"network {self.name}: width")


def convolve(x: Array, weights: Array, stride: int = 1) -> Array:
    """Return the 3x3 convolution with padding 1.

    x has the shape (C, H, W), weights (K, C, 3, 3), the result (K, H/stride, W/stride).
    """
    kernels, channels = weights.shape[:2]
    padded = np.zeros((channels, x.shape[1] + 2, x.shape[2] + 2), np.float32)
    padded[:, 1:-1, 1:-1] = x
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    height, width = windows.shape[1:3]
    columns = np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(channels * 9, height * width)
    product: Array = weights.reshape(kernels, channels * 9) @ columns
    return product.reshape(kernels, height, width)


def max_pool(x: Array) -> Array:
    """Return the maximum of each 2x2 window (stride 2)."""
    rows = np.maximum(x[:, ::2], x[:, 1::2])
    pooled: Array = np.maximum(rows[:, :, ::2], rows[:, :, 1::2])
    return pooled


class ConvNet:
    """A network with weights.

    shapes: shape of each stage's output.
    network: the graph of stages for the schedulers.
    """

    def __init__(self, spec: ConvNetSpec) -> None:
        self.spec = spec
        self._random = np.random.default_rng(spec.seed)
        half = spec.size // 2
        width = spec.width
        self._weights: list[list[Array]] = [[self._draw(width, 3)]]
        self.shapes: list[tuple[int, ...]] = [(width, half, half)]
        after: list[tuple[int, ...]] = [()]
        names = ["stem"]
        towers = 2 if spec.branched else 1
        for tower in range(towers):
            channels, side, before = width, half, 0
            for layer, factor in enumerate((1, 2, 4)):
                out = max(1, width * factor // towers)
                side //= 1 if layer == 0 else 2
                block = [self._draw(out, channels), self._draw(out, out)]
                if out != channels or layer:
                    block.append(self._draw(out, channels)[:, :, 1:2, 1:2])  # projection of the shortcut
                self._weights.append(block)
                self.shapes.append((out, side, side))
                after.append((before,))
                names.append(f"layer{layer + 1}{'ab'[tower] if spec.branched else ''}")
                channels, before = out, len(names) - 1
        ends = [number for number in range(1, len(names)) if number % 3 == 0]
        joined = sum(self.shapes[number][0] for number in ends)
        self._weights.append([self._random.standard_normal((CLASSES, joined)).astype(np.float32) / np.sqrt(joined)])
        self.shapes.append((CLASSES,))
        after.append(tuple(ends))
        names.append("head")
        work = [self._operations(number) for number in range(len(names))]
        self.network = InferenceNetwork(
            spec.name,
            tuple(
                Stage(name, amount / sum(work), 1.0 / len(names), before)
                for name, amount, before in zip(names, work, after, strict=True)
            ),
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the network's input: (3, size, size)."""
        return (3, self.spec.size, self.spec.size)

    def run(self, stage: int, inputs: Sequence[Array]) -> Array:
        """Return the output of one stage from its inputs: the outputs of its predecessors, or the frame."""
        weights = self._weights[stage]
        if stage == 0:
            first: Array = np.maximum(convolve(inputs[0], weights[0]), 0.0)
            return max_pool(first)
        if stage == len(self._weights) - 1:
            pooled = np.concatenate([branch.mean(axis=(1, 2)) for branch in inputs])
            return np.asarray(weights[0] @ pooled, np.float32)
        x = inputs[0]
        stride = x.shape[1] // self.shapes[stage][1]
        inner = np.maximum(convolve(x, weights[0], stride), 0.0)
        shortcut = x
        if len(weights) == 3:
            strided = np.ascontiguousarray(x[:, ::stride, ::stride])
            projected = weights[2].reshape(weights[2].shape[:2]) @ strided.reshape(strided.shape[0], -1)
            shortcut = projected.reshape(self.shapes[stage])
        out: Array = np.maximum(convolve(inner, weights[1]) + shortcut, 0.0)
        return out

    def infer(self, x: Array) -> Array:
        """Return the output of the whole network, computed in this process."""
        outputs: list[Array] = []
        for number, stage in enumerate(self.network.stages):
            outputs.append(self.run(number, [outputs[before] for before in stage.after] or [x]))
        return outputs[-1]

    def _draw(self, out: int, channels: int) -> Array:
        scale = np.sqrt(2.0 / (9 * channels))
        drawn: Array = (self._random.standard_normal((out, channels, 3, 3)) * scale).astype(np.float32)
        return drawn

    def _operations(self, stage: int) -> float:
        """Return the multiply-accumulates of a stage, an estimate of its work until a profile is measured."""
        positions = float(np.prod(self.shapes[stage][1:])) * (4.0 if stage == 0 else 1.0)
        return sum(float(weights.size) for weights in self._weights[stage]) * positions
