"""Activations of one task in shared memory: its input and the output of every stage, readable by every worker.

One set per task is enough, because jobs of a task never overlap.
"""

from __future__ import annotations

from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from podium_realtime.runtime.convnet import Array, ConvNet


class Activations:
    """The arrays `input` and `outputs` (one for each stage), laid out one after another in one buffer."""

    def __init__(self, net: ConvNet, memory: SharedMemory | None) -> None:
        self._net = net
        self._memory = memory
        shapes = [net.input_shape, *net.shapes]
        buffer: Any = bytearray(activation_bytes(net)) if memory is None else memory.buf
        views: list[Array] = []
        offset = 0
        for shape in shapes:
            count = int(np.prod(shape))
            views.append(np.frombuffer(buffer, np.float32, count, offset).reshape(shape))
            offset += 4 * count
        self.input, self.outputs = views[0], views[1:]

    @classmethod
    def create(cls, net: ConvNet) -> Activations:
        """Create activations in new shared memory. The creator must call `close(unlink=True)` last."""
        return cls(net, SharedMemory(create=True, size=activation_bytes(net)))

    @classmethod
    def attach(cls, name: str, net: ConvNet) -> Activations:
        """Attach to the shared memory that another process created."""
        memory = SharedMemory(name)
        # Python before 3.13 makes every attached process remove the memory when it ends; only the creator may do that
        resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
        return cls(net, memory)

    @classmethod
    def private(cls, net: ConvNet) -> Activations:
        """Create activations in the memory of this process."""
        return cls(net, None)

    @property
    def name(self) -> str:
        """Name of the shared memory."""
        assert self._memory is not None
        return self._memory.name

    def run(self, stage: int) -> None:
        """Run one stage: read the outputs of its predecessors and write its own."""
        after = self._net.network.stages[stage].after
        self.outputs[stage][...] = self._net.run(stage, [self.outputs[before] for before in after] or [self.input])

    def run_network(self) -> None:
        """Run all stages."""
        for stage in range(len(self.outputs)):
            self.run(stage)

    def close(self, unlink: bool = False) -> None:
        """Release the arrays and the memory; remove the shared memory if `unlink` is set."""
        self.outputs.clear()
        del self.input
        if self._memory is not None:
            self._memory.close()
            if unlink:
                self._memory.unlink()


def activation_bytes(net: ConvNet) -> int:
    """Return the size of the activations in bytes."""
    return 4 * sum(int(np.prod(shape)) for shape in (net.input_shape, *net.shapes))
