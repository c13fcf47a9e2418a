"""The memory of one task: its input and the output of every stage, where any worker can reach them.

One arena a task is enough: jobs of a task never overlap. Made by `runtime.cpu`, attached by the workers.
"""

from __future__ import annotations

from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from podium_realtime.runtime.convnet import Array, ConvNet


class Arena:
    """Views into one buffer: `input` and `outputs`, laid out one after another."""

    def __init__(self, net: ConvNet, memory: SharedMemory | None) -> None:
        self._net = net
        self._memory = memory
        shapes = [net.input_shape, *net.shapes]
        buffer: Any = bytearray(size_of(net)) if memory is None else memory.buf
        views: list[Array] = []
        place = 0
        for shape in shapes:
            count = int(np.prod(shape))
            views.append(np.frombuffer(buffer, np.float32, count, place).reshape(shape))
            place += 4 * count
        self.input, self.outputs = views[0], views[1:]

    @classmethod
    def create(cls, net: ConvNet) -> Arena:
        """A new one in shared memory; whoever makes it closes it last, with `unlink`."""
        return cls(net, SharedMemory(create=True, size=size_of(net)))

    @classmethod
    def attach(cls, name: str, net: ConvNet) -> Arena:
        memory = SharedMemory(name)
        # Python before 3.13 has every process that attaches remove the memory when it ends; the maker does that
        resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
        return cls(net, memory)

    @classmethod
    def private(cls, net: ConvNet) -> Arena:
        return cls(net, None)

    @property
    def name(self) -> str:
        assert self._memory is not None
        return self._memory.name

    def run(self, stage: int) -> None:
        """One stage, from the outputs before it to its own."""
        after = self._net.network.stages[stage].after
        self.outputs[stage][...] = self._net.run(stage, [self.outputs[before] for before in after] or [self.input])

    def run_whole(self) -> None:
        for stage in range(len(self.outputs)):
            self.run(stage)

    def close(self, unlink: bool = False) -> None:
        """Gives the memory back; views are gone after this."""
        self.outputs.clear()
        del self.input
        if self._memory is not None:
            self._memory.close()
            if unlink:
                self._memory.unlink()


def size_of(net: ConvNet) -> int:
    """Bytes of an arena."""
    return 4 * sum(int(np.prod(shape)) for shape in (net.input_shape, *net.shapes))
