"""Assumed pods count on their best node in requests over HTTP, while the watches lag behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import yaml
from live_caches import event

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, PODS, TRIALS, Resource, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.policies.registry import placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.assumptions import ASSUME_SECONDS, AssumedPods
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import Verbs

NOW = 1_800_000_000.0
FRESH = "2027-01-15T07:59:50Z"
GIB = 2**30
SLOTS = 4  # of a node
CHART = Path(__file__).parents[3] / "charts" / "podium" / "values.yaml"
Json = Mapping[str, Any]


class Server:
    """A fake API server that sends events when the test puts them."""

    def __init__(self, objects: Sequence[Json]) -> None:
        self._objects = objects
        self.events: asyncio.Queue[Json] = asyncio.Queue()

    async def list(self, *_: Any, **__: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": list(self._objects)}

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events.get()
            self.events.task_done()


def gpunode(name: str, gpus: int) -> Json:
    gpu = {"index": 0, "health": "Healthy", "slots": SLOTS, "memoryTotal": 80 * GIB}
    reports = [gpu | {"uuid": f"GPU-{name}-{number}"} for number in range(gpus)]
    return {"metadata": {"name": name}, "status": {"updatedAt": FRESH, "gpus": reports}}


def pod(name: str, node: str = "", uid: str = "", phase: str = "Pending", **annotations: str) -> Json:
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1"}}}
    keys = {f"podium.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "resourceVersion": "2"}
    return {
        "metadata": meta | {"annotations": keys},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


class Stage:
    """An extender over nodes `a` and `b`, and a scheduler that sends the requests of kube-scheduler."""

    def __init__(self, placement: str = "load_balance", gpus: int = 1) -> None:
        nodes = {GPUNODES: [gpunode("a", gpus), gpunode("b", gpus)]}
        self.servers = {kind: Server(nodes.get(kind, ())) for kind in (GPUNODES, PODS, LEASES, TRIALS)}
        self.now = NOW
        self.placed: dict[str, str] = {}
        self.point = 10 * int(yaml.safe_load(CHART.read_text())["scheduler"]["weight"])  # of the extender's
        self.image: dict[str, int] = {}  # what the scheduler's own ImageLocality gives, 0 to 100
        self.metrics = Metrics()
        assumed = AssumedPods(ASSUME_SECONDS, self.metrics.assumption_ended)
        self.metrics.assumed.set_function(lambda: len(assumed))
        self.node_cache = NodeCache(
            Watches(
                self._cache(GPUNODES, parse_gpunode),
                self._cache(PODS, parse_pod),
                self._cache(LEASES, Heartbeats(lambda: self.now).parse),
                self._cache(TRIALS, parse_trial),
            ),
            namespace="podium-system",
            clock=lambda: self.now,
            assumed=assumed,
        )
        evaluator = NodeEvaluator(placement_policy(placement), 3600.0)
        verbs = Verbs(self.node_cache, self.metrics, evaluator)
        self.app = create_app(verbs, self.metrics, ConcurrencyLimit(4), 2**20)

    def _cache(self, kind: Resource, parse: Callable[[Json], Any]) -> WatchCache[Any]:
        return WatchCache(cast(Api, self.servers[kind]), Selection(kind), parse)

    async def tell(self, kind: str, payload: Json) -> None:
        """Send one event of the watch of pods, and wait until the extender has processed it."""
        self.servers[PODS].events.put_nowait(event(kind, payload))
        await self.servers[PODS].events.join()

    async def ask(self, verb: str, asked: Json, *names: str) -> Any:
        return await self._post(verb, {"Pod": asked, "Nodes": None, "NodeNames": list(names)})

    async def preempt(self, asked: Json, node: str, *victims: str) -> Any:
        """Return the node and the victims (uids) that the extender agrees to."""
        proposed = {node: {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": 0}}
        answer = await self._post("preempt", {"Pod": asked, "NodeNameToMetaVictims": proposed})
        return {
            name: [one["UID"] for one in victims["Pods"]] for name, victims in answer["NodeNameToMetaVictims"].items()
        }

    async def _post(self, verb: str, body: Json) -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://extender") as client:
            answer = await client.post(f"/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def schedule(self, asked: Json) -> str:
        """Return the node with the highest score; it must be a single one.

        Like kube-scheduler, this counts the slots itself, calls filter, and calls prioritize only if several nodes
        remain.
        """
        uid = asked["metadata"]["uid"]
        others = Counter(node for other, node in self.placed.items() if other != uid)
        left = (await self.ask("filter", asked, *(name for name in "ba" if others[name] < SLOTS)))["NodeNames"]
        self.placed[uid] = left[0] if len(left) == 1 else await self._best(asked, left)
        return self.placed[uid]

    async def _best(self, asked: Json, left: Sequence[str]) -> str:
        rows = await self.ask("prioritize", asked, *left)
        scores = {row["Host"]: self.point * row["Score"] + self.image.get(row["Host"], 0) for row in rows}
        best = [name for name, score in scores.items() if score == max(scores.values())]
        assert len(best) == 1, scores
        return best[0]

    def ended(self, how: str) -> float:
        return self.metrics.registry.get_sample_value("podium_extender_assumptions_total", {"result": how}) or 0.0

    @property
    def open(self) -> float | None:
        return self.metrics.registry.get_sample_value("podium_extender_assumed_pods")


def play(part: Callable[[Stage], Any], **named: Any) -> None:
    async def main() -> None:
        stage = Stage(**named)
        runs = [asyncio.create_task(cache.run()) for cache in stage.node_cache.caches.values()]
        await asyncio.gather(*(cache.wait_synced() for cache in stage.node_cache.caches.values()))
        try:
            await part(stage)
        finally:
            for run in runs:
                run.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("placement", "places"),
    [("load_balance", "ababab"), ("spread", "ababab"), ("binpack", "aaaabb"), ("fragmentation", "aaaabb")],
)
def test_a_burst_is_placed_as_if_each_binding_were_observed(placement: str, places: str) -> None:
    async def part(stage: Stage) -> None:
        found = [await stage.schedule(pod(f"p{number}")) for number in range(6)]
        assert "".join(found) == places
        assert stage.open == 6
        for number, node in enumerate(found):
            await stage.tell("MODIFIED", pod(f"p{number}", node))
        assert (stage.open, stage.ended("confirmed")) == (0, 6)
        # nothing is counted twice or lost by it
        assert [await stage.schedule(pod(f"q{number}")) for number in range(2)] == (
            ["a", "b"] if placement in ("load_balance", "spread") else ["b", "b"]
        )

    play(part, placement=placement)


@pytest.mark.parametrize(("placement", "places"), [("auto", "ababab"), ("binpack", "aaaabb")])
def test_a_burst_follows_the_policy_although_one_node_has_the_image(placement: str, places: str) -> None:
    """If the image decided against the best node, it would do so for the whole burst."""

    async def part(stage: Stage) -> None:
        stage.image["b"] = 100
        trials = [pod(f"p{number}") for number in range(6)]
        for trial in trials:
            trial["metadata"]["labels"] = {"podium.dev/trial": trial["metadata"]["name"]}
        assert "".join([await stage.schedule(trial) for trial in trials]) == places

    play(part, placement=placement)


def test_only_relevant_events_of_a_pod_update_its_node() -> None:
    """Costs are not computed again while the GPUs are the same object."""

    async def part(stage: Stage) -> None:
        def gpus(node: str) -> object:
            return stage.node_cache.views().get(node).gpus

        node = await stage.schedule(pod("p"))
        before = gpus(node)
        await stage.tell("MODIFIED", pod("p", node))
        assert stage.ended("confirmed") == 1
        await stage.tell("MODIFIED", pod("p", node, phase="Running"))
        assert gpus(node) is before
        await stage.tell("MODIFIED", pod("p", node, gpu_memory=str(GIB)))
        assert gpus(node) is not before, "it is known to need more"
        before = gpus(node)
        await stage.tell("MODIFIED", pod("p", node, phase="Succeeded"))
        assert gpus(node) is not before

    play(part)


def test_an_expected_binding_changes_nothing() -> None:
    """The order of the bindings does not change the GPUs that pods are charged to."""

    async def part(stage: Stage) -> None:
        asked = {f"p{number}": str(size * GIB) for number, size in enumerate((50, 10, 30, 20, 60, 5))}
        places = {name: await stage.schedule(pod(name, gpu_memory=size)) for name, size in asked.items()}
        assert set(places.values()) == {"a", "b"}
        before = [stage.node_cache.views().get(name) for name in "ab"]
        for name in sorted(asked, reverse=True):
            await stage.tell("MODIFIED", pod(name, places[name], gpu_memory=asked[name]))
            assert [stage.node_cache.views().get(name) for name in "ab"] == before
        assert stage.open == 0

    play(part, gpus=3)


def test_declared_memory_of_an_assumed_pod_counts() -> None:
    async def part(stage: Stage) -> None:
        large = str(50 * GIB)
        assert await stage.schedule(pod("p", gpu_memory=large)) == "a"
        assert await stage.schedule(pod("q", gpu_memory=large)) == "b"  # filter leaves one node, which is not scored
        assert stage.open == 2
        refused = await stage.ask("filter", pod("r", gpu_memory=large), "a", "b")
        assert sorted(refused["FailedNodes"]) == ["a", "b"]

    play(part)


def test_an_assumed_trial_may_be_preempted() -> None:
    """kube-scheduler's own cache has the pod on its node, so it is proposed before the watch shows it."""

    async def part(stage: Stage) -> None:
        trial, urgent = pod("p"), pod("urgent")
        trial["metadata"]["labels"] = {"podium.dev/trial": "p"}
        urgent["spec"]["priority"] = 1000
        assert await stage.schedule(trial) == "a"
        assert stage.open == 1
        assert await stage.preempt(urgent, "a", "uid-p") == {"a": ["uid-p"]}

    play(part)


def test_a_binding_to_another_node_corrects_the_assumption() -> None:
    async def part(stage: Stage) -> None:
        assert await stage.schedule(pod("p")) == "a"
        await stage.tell("MODIFIED", pod("p", "b"))
        assert (stage.open, stage.ended("elsewhere")) == (0, 1)
        assert await stage.schedule(pod("q")) == "a"

    play(part)


def test_a_retried_pod_does_not_count_against_itself() -> None:
    async def part(stage: Stage) -> None:
        assert await stage.schedule(pod("p")) == "a"
        assert await stage.schedule(pod("p")) == "a"
        assert (stage.open, stage.ended("asked_again")) == (1, 1)

    play(part)


def test_old_events_of_a_pod_or_its_namesake_do_not_end_the_assumption() -> None:
    async def part(stage: Stage) -> None:
        await stage.tell("ADDED", pod("p", "b", uid="first"))
        assert await stage.schedule(pod("p", uid="second")) == "a"
        await stage.tell("DELETED", pod("p", "b", uid="first"))
        await stage.tell("ADDED", pod("p", uid="second"))
        assert stage.open == 1
        await stage.tell("DELETED", pod("p", uid="second"))
        assert (stage.open, stage.ended("gone")) == (0, 1)

    play(part)


def test_a_pod_that_finishes_before_its_binding_is_observed_is_gone() -> None:
    async def part(stage: Stage) -> None:
        await stage.schedule(pod("p"))
        await stage.tell("MODIFIED", pod("p", "a", phase="Succeeded"))
        assert (stage.open, stage.ended("gone")) == (0, 1)

    play(part)


def test_an_assumption_expires() -> None:
    async def part(stage: Stage) -> None:
        assert await stage.schedule(pod("p")) == "a"
        stage.now += ASSUME_SECONDS
        assert await stage.schedule(pod("q")) == "a"
        assert (stage.open, stage.ended("expired")) == (1, 1)

    play(part)


def test_nothing_is_assumed_on_unknown_nodes() -> None:
    async def part(stage: Stage) -> None:
        rows = await stage.ask("prioritize", pod("p"), "x", "y")
        assert [row["Score"] for row in rows] == [5, 5]
        assert stage.open == 0

    play(part)


def test_each_pod_counts_once_for_any_order_of_events() -> None:
    """Some bindings are observed before the next request, and in another order than they were made."""

    async def part(stage: Stage) -> None:
        places = Counter[str]()
        for number in range(8):
            node = await stage.schedule(pod(f"p{number}"))
            places[node] += 1
            if number % 3 == 2:
                await stage.tell("MODIFIED", pod(f"p{number}", node))
        assert places == {"a": 4, "b": 4}
        assert (stage.open, stage.ended("confirmed")) == (6, 2)

    play(part)
