"""Two programs that hold 60 % of one GPU's memory each take turns at the planner's quantum. Used by `bench_checkpoint`.

The quantum is what `podium_core.policies.min_time_slice` makes of the hand-overs measured so far. What sharing costs
is the steps
that both did in the shared time against those of as long a time at the rate of the second halves of their turns, which
no hand-over disturbs.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from checkpoint_site import CudaNode, Program, container

from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE, smallest_time_slice

FLOOR = 1.0  # seconds that a trial keeps its GPU anyway
KERNEL = 0.005  # seconds of a step, as of one that waits for its GPU: the rate of mere calls varies by a tenth


@dataclass(frozen=True, slots=True)
class Shared:
    """`hand_over`: seconds from the order until the other may do its next step; `overhead`: share of the steps that
    were not done; `seconds`: of the shared time.
    """

    seconds: float
    hand_overs: int
    hand_over: float
    quantum: float
    overhead: float

    @property
    def held(self) -> bool:
        return self.overhead <= MAX_SWITCH_SHARE


def _steps(program: Program) -> int:
    """By its last whole line."""
    with program.output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
        return int(file.read().rpartition(b"\n")[0].rpartition(b"\n")[2] or 0)


@dataclass(slots=True)
class Pair:
    """The two, of which `holder` works; `costs`: seconds of each hand-over so far, `rates`: steps a second in the
    second half of each turn.
    """

    method: CudaCheckpoint
    programs: tuple[Program, Program]
    freezers: tuple[Freezer, Freezer]
    costs: list[float]
    rates: list[float]
    holder: int = 0

    async def hand_over(self) -> None:
        begin = time.perf_counter()
        out = await self.method.suspend((self.freezers[self.holder],))
        self.holder = 1 - self.holder
        back = await self.method.resume((self.freezers[self.holder],))
        assert out.ok, out
        assert back.ok, back
        self.costs.append(time.perf_counter() - begin)

    async def turn(self) -> None:
        """One quantum and the hand-over. The rate beside which the steps are judged is of the same seconds: a machine
        that becomes slower or faster in the minutes of a run is no cost of sharing.
        """
        quantum = smallest_time_slice(statistics.median(self.costs), FLOOR)
        await asyncio.sleep(quantum / 2)
        before, begin = _steps(self.programs[self.holder]), time.perf_counter()
        await asyncio.sleep(quantum / 2)
        after, end = _steps(self.programs[self.holder]), time.perf_counter()
        self.rates.append((after - before) / (end - begin))
        await self.hand_over()


async def share(node: CudaNode, method: CudaCheckpoint, size: int, speed: int, seconds: float) -> Shared:
    """Both hold `size` bytes, copied at `speed` a second; the second starts when the first is off the GPU."""
    with ExitStack() as stack:
        first = node.start(size, kernel=KERNEL)
        node.fault(f"pid={first.pid}", f"speed={speed}")
        one = stack.enter_context(container(first.pid))
        assert (await method.suspend((one,))).ok
        second = node.start(size, kernel=KERNEL)
        node.fault(f"pid={second.pid}", f"speed={speed}")
        two = stack.enter_context(container(second.pid))
        pair = Pair(method, (first, second), (one, two), [], [], holder=1)
        for _ in range(3):  # what the planner begins with: some hand-overs that were measured
            await pair.hand_over()
        unmeasured = len(pair.costs)
        before, begin = sum(map(_steps, pair.programs)), time.perf_counter()
        while time.perf_counter() - begin < seconds or len(pair.rates) % 2:
            await pair.turn()
        elapsed = time.perf_counter() - begin
        done = sum(map(_steps, pair.programs)) - before
        for program in pair.programs:
            program.steps()  # none lost, none done twice
    cost, expected = statistics.median(pair.costs), statistics.mean(pair.rates) * elapsed
    return Shared(elapsed, len(pair.costs) - unmeasured, cost, smallest_time_slice(cost, FLOOR), 1 - done / expected)
