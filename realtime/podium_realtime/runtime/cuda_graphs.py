"""One stream's copies of the network as CUDA graphs: a stage is one launch, not its dozen kernels one by one.

Called by `runtime.cuda`, one for each stream, with the imported torch module. Why: launched kernel by kernel,
batch 1, one frame costs a launching thread milliseconds under Python's lock, and streams then wait for each other's
Python, not for SMs (seen on an H100: 10 tasks of 30 fps and no more). A graph keeps the partition in which it was
captured, so each stream has graphs of its own; they work on buffers of the stream, and a task's activations are copied
in and out, so that a task may go on in another stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StageGraphs:
    """`stages`: the network's modules. Captures at once; memory: the activations of one frame, twice."""

    def __init__(self, torch: Any, stages: Sequence[Any], stream: Any, example: Any, warm_ups: int) -> None:
        self._torch = torch
        self.stream = stream
        self._stages: list[tuple[Any, Any, Any]] = []
        value = example
        with torch.inference_mode():
            for stage in stages:
                self._stages.append(self._capture([stage], value, warm_ups))
                value = self._stages[-1][2]
            self._whole = self._capture(stages, example, warm_ups)

    def _capture(self, stages: Sequence[Any], example: Any, warm_ups: int) -> tuple[Any, Any, Any]:
        """(graph, its input, its output). cuDNN chooses its kernels in the runs before."""
        torch, taken = self._torch, example.clone()

        def run() -> Any:
            value = taken
            for stage in stages:
                value = stage(value)
            return value

        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(warm_ups):
                run()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            given = run()
        self.stream.synchronize()
        return graph, taken, given

    def empty_outputs(self) -> list[Any]:
        """Where a task keeps what each stage gave."""
        with self._torch.inference_mode():
            return [self._torch.empty_like(given) for _, _, given in self._stages]

    def launch(self, first: Any, outputs: Sequence[Any], stages: Sequence[int]) -> Any:
        """Launches these stages of a task, whose input is `first`; returns the event behind them."""
        torch = self._torch
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            if len(stages) == len(self._stages):
                self._replay(self._whole, first, outputs[-1])
            else:
                for stage in stages:
                    self._replay(self._stages[stage], outputs[stage - 1] if stage else first, outputs[stage])
            event = torch.cuda.Event()
            event.record(self.stream)
        return event

    @staticmethod
    def _replay(captured: tuple[Any, Any, Any], source: Any, target: Any) -> None:
        graph, taken, given = captured
        taken.copy_(source, non_blocking=True)
        graph.replay()
        target.copy_(given, non_blocking=True)
