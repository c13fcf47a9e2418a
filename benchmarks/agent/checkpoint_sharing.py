"""Two programs that hold 60 % of one GPU's memory each, and alternate at the planner's minimum time slice.

The time slice is derived from the switches measured so far, as the planner does. The cost of sharing is the number of
steps that both programs did, against the steps of the same time at the undisturbed rate. That rate is measured in the
second half of each time slice, which no switch disturbs.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.agent.fake_driver import CudaNode, Program, container
from podium_agent.observe.cgroups import Freezer
from podium_core.policies.min_time_slice import MAX_SWITCH_SHARE, smallest_time_slice
from podium_suspension.cuda_checkpoint import CudaCheckpoint

SHORTEST = 1.0  # seconds that a trial keeps its GPU in any case
KERNEL = 0.005  # seconds of a step, as if it waited for its GPU: the rate of calls without a kernel varies by a tenth


@dataclass(frozen=True, slots=True)
class Shared:
    """Result of sharing.

    `seconds`: the shared time; `switch_seconds`: from the decision until the other program may do its next step;
    `overhead`: share of the steps that were not done.
    """

    seconds: float
    switches: int
    switch_seconds: float
    time_slice: float
    overhead: float

    @property
    def held(self) -> bool:
        return self.overhead <= MAX_SWITCH_SHARE


def _steps(program: Program) -> int:
    """Return the program's steps so far, by its last whole line."""
    with program.output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
        return int(file.read().rpartition(b"\n")[0].rpartition(b"\n")[2] or 0)


@dataclass(slots=True)
class Pair:
    """The two programs, of which `holder` runs.

    `costs`: seconds of each switch so far; `rates`: steps a second in the second half of each time slice.
    """

    method: CudaCheckpoint
    programs: tuple[Program, Program]
    freezers: tuple[Freezer, Freezer]
    costs: list[float]
    rates: list[float]
    holder: int = 0

    async def switch(self) -> None:
        """Suspend the holder and resume the other program."""
        begin = time.perf_counter()
        out = await self.method.suspend((self.freezers[self.holder],))
        self.holder = 1 - self.holder
        back = await self.method.resume((self.freezers[self.holder],))
        assert out.ok, out
        assert back.ok, back
        self.costs.append(time.perf_counter() - begin)

    async def time_slice(self) -> None:
        """Run one time slice and the switch after it.

        The rate is measured in the same seconds: a machine that becomes slower or faster during the run does not count
        as a cost of sharing.
        """
        seconds = smallest_time_slice(statistics.median(self.costs), SHORTEST)
        await asyncio.sleep(seconds / 2)
        before, begin = _steps(self.programs[self.holder]), time.perf_counter()
        await asyncio.sleep(seconds / 2)
        after, end = _steps(self.programs[self.holder]), time.perf_counter()
        self.rates.append((after - before) / (end - begin))
        await self.switch()


async def share(node: CudaNode, method: CudaCheckpoint, size: int, speed: int, seconds: float) -> Shared:
    """Share one GPU for this number of seconds.

    Both programs hold `size` bytes, copied at `speed` bytes a second. The second one starts when the first is
    suspended.
    """
    with ExitStack() as stack:
        first = node.start(size, kernel=KERNEL)
        node.fault(f"pid={first.pid}", f"speed={speed}")
        one = stack.enter_context(container(first.pid))
        assert (await method.suspend((one,))).ok
        second = node.start(size, kernel=KERNEL)
        node.fault(f"pid={second.pid}", f"speed={speed}")
        two = stack.enter_context(container(second.pid))
        pair = Pair(method, (first, second), (one, two), [], [], holder=1)
        for _ in range(3):  # the planner, too, starts with some measured switches
            await pair.switch()
        unmeasured = len(pair.costs)
        before, begin = sum(map(_steps, pair.programs)), time.perf_counter()
        while time.perf_counter() - begin < seconds or len(pair.rates) % 2:
            await pair.time_slice()
        elapsed = time.perf_counter() - begin
        done = sum(map(_steps, pair.programs)) - before
        for program in pair.programs:
            program.steps()  # checks that no step is missing or repeated
    cost, expected = statistics.median(pair.costs), statistics.mean(pair.rates) * elapsed
    return Shared(elapsed, len(pair.costs) - unmeasured, cost, smallest_time_slice(cost, SHORTEST), 1 - done / expected)
