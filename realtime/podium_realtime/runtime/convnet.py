"""Small real convolutional networks in numpy, cut into stages. The CPU back-end's workers run them.

Residual networks in the manner of ResNet (He et al., CVPR 2016), without normalisation (folded, as in inference). A
convolution is im2col and one matrix product, so the time is the BLAS library's and the memory's, as on a real server.
Weights are drawn from a seed: every worker builds the same network without a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from podium_realtime.model.network import Network, Stage
from podium_realtime.model.refusal import RealtimeError, require_between

Array = NDArray[np.float32]
CLASSES = 10


@dataclass(frozen=True, slots=True)
class NetSpec:
    """`size`: height and width of the 3-channel input, a multiple of 8; `width`: channels of the first layer.
    `branched`: two towers of half the width after the stem, joined before the head (a graph that is no chain).
    """

    name: str
    size: int = 64
    width: int = 32
    branched: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_between(self.size, 8, 512, f"network {self.name}: size")
        if self.size % 8:
            told = f"{self.size} cannot be halved three times; give a multiple of 8"
            raise RealtimeError("InvalidValue", f"network {self.name}: size", told)
        require_between(self.width, 2, 512, f"network {self.name}: width")


def convolve(x: Array, weights: Array, stride: int = 1) -> Array:
    """x (C, H, W), weights (K, C, 3, 3), padding 1 -> (K, H/stride, W/stride)."""
    kernels, channels = weights.shape[:2]
    padded = np.zeros((channels, x.shape[1] + 2, x.shape[2] + 2), np.float32)
    padded[:, 1:-1, 1:-1] = x
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    height, width = windows.shape[1:3]
    columns = np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(channels * 9, height * width)
    product: Array = weights.reshape(kernels, channels * 9) @ columns
    return product.reshape(kernels, height, width)


def max_pool(x: Array) -> Array:
    """2x2, stride 2."""
    rows = np.maximum(x[:, ::2], x[:, 1::2])
    pooled: Array = np.maximum(rows[:, :, ::2], rows[:, :, 1::2])
    return pooled


class ConvNet:
    """`run(stage, inputs)` computes one stage; `shapes` are the outputs' shapes, `network` is what schedulers see."""

    def __init__(self, spec: NetSpec) -> None:
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
        self.network = Network(
            spec.name,
            tuple(
                Stage(name, amount / sum(work), 1.0 / len(names), before)
                for name, amount, before in zip(names, work, after, strict=True)
            ),
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (3, self.spec.size, self.spec.size)

    def run(self, stage: int, inputs: Sequence[Array]) -> Array:
        """Output of one stage from those of the stages it comes after (the network's input for the first)."""
        weights = self._weights[stage]
        if stage == 0:
            first: Array = np.maximum(convolve(inputs[0], weights[0]), 0.0)
            return max_pool(first)
        if stage == len(self._weights) - 1:
            pooled = np.concatenate([one.mean(axis=(1, 2)) for one in inputs])
            return np.asarray(weights[0] @ pooled, np.float32)
        x = inputs[0]
        stride = x.shape[1] // self.shapes[stage][1]
        inner = np.maximum(convolve(x, weights[0], stride), 0.0)
        shortcut = x
        if len(weights) == 3:
            thin = np.ascontiguousarray(x[:, ::stride, ::stride])
            flat = weights[2].reshape(weights[2].shape[:2]) @ thin.reshape(thin.shape[0], -1)
            shortcut = flat.reshape(self.shapes[stage])
        out: Array = np.maximum(convolve(inner, weights[1]) + shortcut, 0.0)
        return out

    def whole(self, x: Array) -> Array:
        """The whole inference in this process."""
        outputs: list[Array] = []
        for number, stage in enumerate(self.network.stages):
            outputs.append(self.run(number, [outputs[before] for before in stage.after] or [x]))
        return outputs[-1]

    def _draw(self, out: int, channels: int) -> Array:
        scale = np.sqrt(2.0 / (9 * channels))
        drawn: Array = (self._random.standard_normal((out, channels, 3, 3)) * scale).astype(np.float32)
        return drawn

    def _operations(self, stage: int) -> float:
        """Multiply-accumulates, which stand in for time until a profile is measured."""
        sites = float(np.prod(self.shapes[stage][1:])) * (4.0 if stage == 0 else 1.0)
        return sum(float(one.size) for one in self._weights[stage]) * sites
