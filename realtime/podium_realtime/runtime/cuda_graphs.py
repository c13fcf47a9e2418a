"""CUDA graphs of the network's stages for one stream: a stage is one launch instead of a dozen kernels.

Launched kernel by kernel, a frame of batch 1 occupies the launching thread for milliseconds under Python's global
interpreter lock. The streams then wait for each other's Python code instead of SMs (measured on an H100: no more than
10 tasks at 30 fps).

A graph stays in the partition in which it was captured, so each stream has its own graphs. They work on buffers of the
stream; a task's activations are copied in and out, so that a task can continue on another stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class StageGraphs:
    """Captured graphs of all stages and of the whole network.

    They hold the activations of one frame twice.


    `torch`: the imported module.
    `stages`: the network's modules.
    """

    def __init__(self, torch: Any, stages: Sequence[Any], stream: Any, example: Any, warm_ups: int) -> None:
        self._torch = torch
        self.stream = stream
        self._stages: list[tuple[Any, Any, Any]] = []
        value = example
        with torch.inference_mode():
            for stage in stages:
                self._stages.append(self._capture([stage], value, warm_ups))
                value = self._stages[-1][2]
            self._network = self._capture(stages, example, warm_ups)

    def _capture(self, stages: Sequence[Any], example: Any, warm_ups: int) -> tuple[Any, Any, Any]:
        """Return (graph, its input, its output). cuDNN selects its kernels in the warm-up runs."""
        torch, graph_input = self._torch, example.clone()

        def run() -> Any:
            value = graph_input
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
            graph_output = run()
        self.stream.synchronize()
        return graph, graph_input, graph_output

    def empty_outputs(self) -> list[Any]:
        """Return tensors for the outputs of all stages of one task."""
        with self._torch.inference_mode():
            return [self._torch.empty_like(output) for _, _, output in self._stages]

    def launch(self, first: Any, outputs: Sequence[Any], stages: Sequence[int]) -> Any:
        """Launch these stages of a task with the network input `first`; return an event recorded after them."""
        torch = self._torch
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            if len(stages) == len(self._stages):
                self._replay(self._network, first, outputs[-1])
            else:
                for stage in stages:
                    self._replay(self._stages[stage], outputs[stage - 1] if stage else first, outputs[stage])
            event = torch.cuda.Event()
            event.record(self.stream)
        return event

    @staticmethod
    def _replay(captured: tuple[Any, Any, Any], source: Any, target: Any) -> None:
        graph, graph_input, graph_output = captured
        graph_input.copy_(source, non_blocking=True)
        graph.replay()
        target.copy_(graph_output, non_blocking=True)
