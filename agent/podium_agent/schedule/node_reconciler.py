"""The agent's one loop from facts to acts: look, decide, carry out. Woken by every change, or by a short tick.

What it saw last is `view`, which the reporter writes to the API. It never waits for the API server or the kubelet: with
either away it goes on with the last order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from podium_agent.metrics import Metrics
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.trials import LocalTrial
from podium_agent.report.trial_record import Book
from podium_agent.schedule.executor import Carrier
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.local_scheduler import Entry, Orders, Step, Wait, decide, newer
from podium_agent.settings import AgentSettings
from podium_cluster.watch import WatchCache
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import GPUNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """How things stood after the last decision. `unsettled`: GPUs on which something is still to change; `taken`: those
    that an urgent pod has for itself, with its name; `leased`: those that a placeholder pod holds, with its name, None:
    all are Podium's own.
    """

    orders: Orders = field(default_factory=Orders)
    trials: tuple[LocalTrial, ...] = ()
    unsettled: frozenset[str] = frozenset()
    taken: Mapping[str, str] = field(default_factory=dict)
    leased: Mapping[str, str] | None = None


def orders_of(node: GPUNode) -> Orders:
    """The operator's order as the arbiter takes it."""
    gpus = {
        gpu.uuid: tuple(
            Entry(TrialKey(entry.namespace, entry.trial, entry.uid), entry.reason, entry.message)
            for entry in gpu.run_queue
        )
        for gpu in node.spec.gpus
    }
    return Orders(node.spec.epoch, gpus, node.spec.released)


class Conductor:
    """`listen` is called after every look; `open_book` makes the book of a pod that is seen for the first time.

    `taken` tells which GPUs urgent pods have for themselves, `leased` which are leased.
    """

    def __init__(
        self,
        settings: AgentSettings,
        pods: WatchCache[TrialPod],
        nodes: WatchCache[GPUNode],
        metrics: Metrics,
        open_book: Callable[[TrialPod], Book],
        taken: Callable[[], Mapping[str, str]] = dict,
        leased: Callable[[], Mapping[str, str] | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._nodes = nodes
        self._metrics = metrics
        self._open_book = open_book
        self._taken = taken
        self._leased = leased
        self._event = asyncio.Event()
        self._listeners: list[Callable[[View], None]] = []
        self._node_uid = ""
        self._heard: float | None = None
        self.books: dict[str, Book] = {}
        self.view = View()
        self.beat = time.monotonic()
        self.turns = False  # its loop has begun
        self.looked = asyncio.Event()  # once: `view` is what was seen, not the emptiness of a start
        pods.subscribe(self.wake)
        nodes.subscribe(self.wake)

    def wake(self) -> None:
        self._event.set()

    def subscribe(self, listener: Callable[[View], None]) -> None:
        self._listeners.append(listener)

    def book_of(self, pod_uid: str) -> Book | None:
        return self.books.get(pod_uid)

    async def run(self, observer: Observer, carrier: Carrier, gates: Gates) -> None:
        await self._pods.wait_synced()
        await self._nodes.wait_synced()
        self._hint(observer)
        self.beat, self.turns = time.monotonic(), True
        await self._settle(gates)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.tick_seconds):
                    await self._event.wait()
            self._event.clear()
            self._once(observer, carrier)
            self.beat = time.monotonic()

    def _hint(self, observer: Observer) -> None:
        """Which pods the last agent saw, and where."""
        node = self._nodes.get("", self._settings.node_name)
        seen: dict[str, Hint] = {}
        for gpu in () if node is None else node.status.gpus:
            for one in gpu.trials:
                key = TrialKey(one.namespace, one.trial, one.uid)
                known = seen.get(one.pod_uid, Hint(key, one.pod, ()))
                seen[one.pod_uid] = replace(known, gpus=tuple(sorted({*known.gpus, gpu.uuid})))
        observer.hint(seen)

    async def _settle(self, gates: Gates) -> None:
        """After a start, give waiting gates a moment to connect: until then they look as if let through."""
        end = time.monotonic() + self._settings.settle_seconds
        while time.monotonic() < end and any(
            pod.gate_running and not gates.waiting(pod.uid) for pod in self._pods.values()
        ):
            self.beat = time.monotonic()
            await asyncio.sleep(0.05)

    def _once(self, observer: Observer, carrier: Carrier) -> None:
        now = time.time()
        orders, taken, leased = self._orders(), self._taken(), self._leased()
        trials = observer.look(self._pods.values(), now)
        self._keep_books(observer, now)
        steps = decide(replace(orders, taken=taken, leased=leased), trials, now)
        acted = carrier.carry(steps)
        self.view = View(orders, trials, _unsettled(steps, observer), taken, leased)
        self.looked.set()
        if acted:
            self._event.set()  # what was begun has changed the facts
        elif not self.view.unsettled and self._heard is not None:
            seconds = time.monotonic() - self._heard
            self._heard = None
            self._metrics.effect.observe(seconds)
            log.info("epoch %d is in effect after %.1f ms", orders.epoch, seconds * 1000)
        for listener in self._listeners:
            listener(self.view)

    def _orders(self) -> Orders:
        before = self.view.orders
        node = self._nodes.get("", self._settings.node_name)
        if node is None:
            return before
        if node.metadata.uid != self._node_uid:
            # the object was made anew: its epochs begin anew as well
            self._node_uid = node.metadata.uid
            before = Orders()
        orders = newer(before, orders_of(node))
        if orders != self.view.orders:
            self._heard = time.monotonic()
            self._metrics.epoch.set(orders.epoch)
            log.info("following epoch %d%s", orders.epoch, " (released)" if orders.released else "")
        return orders

    def _keep_books(self, observer: Observer, now: float) -> None:
        present = set()
        for record in observer.records():
            uid = record.pod.uid
            present.add(uid)
            book = self.books.get(uid)
            if book is None:
                if record.absent:
                    continue  # its status cannot be written any more, or by whoever goes on with the trial
                book = self.books[uid] = self._open_book(record.pod)
            book.pod, book.ending = record.pod, record.kill_at(now) is not None
            if record.begun and not book.begun:
                book.begun, book.said = True, record.said
                book.urgent.set()
            if book.main is None and record.pod.main in record.containers:
                book.main = record.containers[record.pod.main]
                book.urgent.set()
            if book.short != record.short:
                book.short = record.short
                book.urgent.set()
            if record.pod.gated or record.ended:
                book.follow(record.state, record.gpus, now)
            if record.ended and record.over_since is not None and not book.closed:
                book.closed = True
                book.urgent.set()
        for record in observer.gone:
            if record.pod.uid not in self.books:
                # its agent died before it did: until its hold is closed, the next attempt is not begun
                book = self.books[record.pod.uid] = self._open_book(record.pod)
                book.begun = book.left = True
        for uid in self.books.keys() - present:
            book = self.books.pop(uid)
            book.follow(None, book.gpus, now)
            book.closed = True
            book.urgent.set()


def _unsettled(steps: tuple[Step, ...], observer: Observer) -> frozenset[str]:
    """GPUs on which a step was begun or an act is under way."""
    gpus = {uuid for step in steps if not isinstance(step, Wait) for uuid in step.trial.gpus}
    gpus |= {uuid for record in observer.records() if record.acting != "Nothing" for uuid in record.gpus}
    gpus |= {
        uuid
        for step in steps
        if isinstance(step, Wait) and step.reason == "SwitchInProgress"
        for uuid in step.trial.gpus
    }
    return frozenset(gpus)
