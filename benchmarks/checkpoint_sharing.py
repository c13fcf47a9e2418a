"""Two programs that hold 60 % of one GPU's memory each take turns at the planner's quantum. Used by `bench_checkpoint`.

The quantum is what `podium.planning.quantum` makes of the hand-overs measured so far. What sharing costs is the steps
that both did in the shared time against the steps that the same programs do in as long when nobody takes turns.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from checkpoint_site import CudaNode, Program, container

from podium.planning.quantum import OVERHEAD, shortest_run
from podium_agent.cgroups import Freezer
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint

ALONE = 10.0  # seconds of each alone, before and after
FLOOR = 1.0  # seconds that a trial keeps its GPU anyway


@dataclass(frozen=True, slots=True)
class Shared:
    """`hand_over`: seconds from the last step of the one until the other may do its next; `overhead`: share of the
    steps that were not done; `seconds`: of the shared time.
    """

    seconds: float
    hand_overs: int
    hand_over: float
    quantum: float
    overhead: float

    @property
    def held(self) -> bool:
        return self.overhead <= OVERHEAD


def _count(program: Program) -> int:
    return len(program.steps())


async def _rate(program: Program) -> float:
    """Steps a second of one that has the GPU for itself."""
    before, begin = _count(program), time.perf_counter()
    await asyncio.sleep(ALONE)
    elapsed = time.perf_counter() - begin
    return (_count(program) - before) / elapsed


@dataclass(slots=True)
class Pair:
    """The two, of which `holder` works; `costs`: seconds of each hand-over so far."""

    method: CudaCheckpoint
    programs: tuple[Program, Program]
    freezers: tuple[Freezer, Freezer]
    costs: list[float]
    holder: int = 0

    async def hand_over(self) -> None:
        begin = time.perf_counter()
        out = await self.method.suspend((self.freezers[self.holder],))
        self.holder = 1 - self.holder
        back = await self.method.resume((self.freezers[self.holder],))
        assert out.ok, out
        assert back.ok, back
        self.costs.append(time.perf_counter() - begin)

    async def alone(self) -> list[float]:
        """The rate of each; the first has the GPU again."""
        rates = []
        for _ in range(2):
            rates.append(await _rate(self.programs[self.holder]))
            await self.hand_over()
        return rates


async def share(node: CudaNode, method: CudaCheckpoint, size: int, speed: int, seconds: float) -> Shared:
    """Both hold `size` bytes, copied at `speed` a second; the second starts when the first is off the GPU."""
    with ExitStack() as stack:
        first = node.start(size)
        node.fault(f"pid={first.pid}", f"speed={speed}")
        one = stack.enter_context(container(first.pid))
        assert (await method.suspend((one,))).ok
        second = node.start(size)
        node.fault(f"pid={second.pid}", f"speed={speed}")
        two = stack.enter_context(container(second.pid))
        pair = Pair(method, (first, second), (one, two), [], holder=1)
        await pair.hand_over()
        rates = await pair.alone()
        alone_until = len(pair.costs)
        before = sum(map(_count, pair.programs))
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds or (len(pair.costs) - alone_until) % 2:
            await asyncio.sleep(shortest_run(statistics.median(pair.costs), FLOOR))
            await pair.hand_over()
        elapsed = time.perf_counter() - begin
        done = sum(map(_count, pair.programs)) - before
        rates += await pair.alone()
    cost = statistics.median(pair.costs)
    expected = statistics.mean(rates) * elapsed
    return Shared(elapsed, len(pair.costs) - alone_until, cost, shortest_run(cost, FLOOR), 1 - done / expected)
