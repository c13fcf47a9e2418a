"""WatchCache and the client over a faulty transport, against a model, on virtual time.

Each seed is a sequence of faults while another client changes the objects. The cache never holds a state that did not
exist, never goes back to an older state, and asks at most once a second. After the faults it equals the store.
PODIUM_FUZZ_SEEDS sets the number of seeds (`make fuzz-watch` takes 10,000).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from faulty_server import FAILING, FAULTS, FaultyTransport, Store
from virtual_time import TICK, run

from podium_cluster import client
from podium_cluster.client import Api
from podium_cluster.resources import PODS, Selection
from podium_cluster.watch import RELIST_SECONDS, STALE_SECONDS, WATCH_SECONDS, Timing, WatchCache

SEEDS = int(os.environ.get("PODIUM_FUZZ_SEEDS", "200"))
BATCH = 50
PAGE = 5
NAMES = [f"p{number}" for number in range(14)]
State = tuple[str, str, int]
Story = list[tuple[str, float]]


@pytest.fixture(autouse=True)
def _small_limits_and_no_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 2**17)
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 2**17)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class World:
    """A store, its faulty transport, and a cache that is checked at every change."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store()
        self.transport = FaultyTransport(self.store, self.chance)
        timing = Timing(asyncio.get_running_loop().time, random.Random(seed))
        api = Api(cast(Any, self.transport), 10.0)
        self.cache = WatchCache(api, Selection(PODS, page=PAGE), self._parse, timing)
        self.cache.follow(self._check)
        self.may_go_back = False
        self.wrong = ""
        self._newest: dict[str, int] = {}

    def change(self) -> None:
        name = self.chance.choice(NAMES)
        if name in self.store.objects and self.chance.random() < 0.4:
            self.store.delete(name)
        else:
            self.store.put(name, self.chance.randrange(1000))
        if self.chance.random() < 0.02:
            self.store.compact()

    @staticmethod
    def _parse(payload: Mapping[str, Any]) -> State:
        about = payload["metadata"]
        return about["name"], about["resourceVersion"], payload["value"]

    def _check(self, key: tuple[str, str], _: State | None, after: State | None) -> None:
        if after is None:
            return
        # an assertion in a follower would only be logged
        if after not in self.store.existed:
            self.wrong = f"{after} never existed"
        if not self.may_go_back and int(after[1]) < self._newest.get(after[0], 0):
            self.wrong = f"{after} is older than version {self._newest[after[0]]}"
        self._newest[after[0]] = int(after[1])

    def equal(self) -> bool:
        return self.cache.values() == [self._parse(one) for one in self.store.at(self.store.version)]


async def play(world: World, story: Story, settle: float) -> None:
    """Run the faults, then a healthy server for `settle` seconds."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(world.cache.run())
    for fault, seconds in [*story, ("none", settle)]:
        if fault in ("old", "cached"):
            world.transport.old = max(world.store.compacted, world.store.version - world.chance.randrange(10))
        world.transport.fault, ends = fault, loop.time() + seconds
        if fault == "cached":  # a cache between both is believed when it stays behind
            world.may_go_back |= seconds > STALE_SECONDS or [name for name, _ in story].count("cached") > 1
        changing, every = fault != "none" or seconds < settle, world.chance.choice([0.2, 2.0])
        while (left := ends - loop.time()) > TICK:  # a shorter sleep may be lost in rounding
            await asyncio.sleep(min(left, world.chance.expovariate(every) if changing else left))
            if changing:
                world.change()
            assert not task.done(), "the cache has ended"
            assert not world.wrong, world.wrong
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def rate_is_bounded(requests: list[float]) -> bool:
    """Whether no minute has more than 60 requests and those of one more attempt."""
    pages = len(NAMES) // PAGE + 2
    return all(later - first >= 60.0 for first, later in zip(requests, requests[60 + pages :], strict=False))


@pytest.mark.parametrize("batch", range(0, SEEDS, BATCH))
def test_after_any_faults_the_cache_equals_the_server(batch: int) -> None:
    for seed in range(batch, min(batch + BATCH, SEEDS)):
        run(_one(seed))


async def _one(seed: int) -> None:
    world = World(seed)
    story = [(world.chance.choice(FAULTS), world.chance.uniform(2, 90)) for _ in range(world.chance.randrange(1, 9))]
    unseen = {"lossy", "reorder"} & {fault for fault, _ in story}  # an event may be lost without an error
    await play(world, story, STALE_SECONDS + 2 * WATCH_SECONDS + (RELIST_SECONDS if unseen else 0.0))
    assert world.equal(), (seed, story)
    assert rate_is_bounded(world.transport.requests), (seed, story)


@pytest.mark.parametrize("fault", [*FAILING, "expired pages"])
def test_steady_failure_takes_less_than_a_request_a_second_and_passes(fault: str) -> None:
    async def main() -> None:
        world = World(1)
        for number in range(12):
            world.store.put(NAMES[number], number)
        await play(world, [("none", 5.0), (fault, 600.0)], 60.0)
        steady = [at for at in world.transport.requests if 65 <= at < 605]
        assert len(steady) < 540 / 2
        assert world.equal(), "a minute after the fault"

    run(main())


@pytest.mark.parametrize(
    ("fault", "current"), [("none", True), ("gone", True), ("broken", False), ("refused", False), ("silent", False)]
)
def test_a_cache_is_current_until_the_last_answer_before_a_fault(fault: str, current: bool) -> None:
    async def main() -> None:
        world, loop = World(1), asyncio.get_running_loop()
        world.store.put(NAMES[0], 0)
        task = asyncio.create_task(world.cache.run())
        await asyncio.sleep(1.0)
        world.transport.fault = fault
        await asyncio.sleep(2 * WATCH_SECONDS)  # the watch that was open before the fault has ended
        assert (world.cache.current_at() > loop.time() - WATCH_SECONDS / 2) is current
        world.transport.fault = "none"
        await asyncio.sleep(2 * WATCH_SECONDS)
        assert world.cache.current_at() > loop.time() - WATCH_SECONDS / 2
        task.cancel()

    run(main())


def test_a_server_restored_from_a_backup_is_accepted() -> None:
    """The versions start again at an earlier one, and are used a second time for other states."""

    async def main() -> None:
        world = World(2)
        world.may_go_back = True
        for number in range(8):
            world.store.put(NAMES[number], number)
        backup = world.store.version
        task = asyncio.create_task(world.cache.run())
        await asyncio.sleep(1)
        for number in range(8):
            world.store.put(NAMES[number], 100 + number)
        await asyncio.sleep(5)
        assert world.equal()
        world.store.log = [entry for entry in world.store.log if entry[0] <= backup]
        world.store.objects = {one["metadata"]["name"]: one for one in world.store.at(backup)}
        world.store.version = backup
        world.store.put(NAMES[0], 7)
        await asyncio.sleep(RELIST_SECONDS + STALE_SECONDS + 2 * WATCH_SECONDS)
        assert world.equal()
        assert not world.wrong
        task.cancel()

    run(main())
