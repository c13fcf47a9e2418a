"""What takes seconds: importance, explanation and replay on real objects, and the process that runs them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dashboard_scene import DEADLINE, write_objects

from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.background.importance import FEWEST, importances
from podium_dashboard.background.replay import Replay, replayed
from podium_dashboard.background.requests import Requests
from podium_dashboard.background.runner import BackgroundTasks
from podium_dashboard.background.tasks import (
    Explained,
    ExplanationTask,
    Importances,
    ImportanceTask,
    ReplayTask,
    UnknownError,
)
from podium_dashboard.hub import Hub
from podium_dashboard.sources.folder import FolderSource
from podium_dashboard.state import Search
from podium_dashboard.stored_trial import StoredTrial


def search_of(folder: Path, elapsed: float = 100.0, changes: Mapping[str, Any] | None = None) -> Search:
    write_objects(folder, elapsed, changes)
    return FolderSource(folder).state().searches[0]


def with_values(search: Search, count: int) -> list[HyperParamTrial]:
    """Return ended trials whose value depends on `lr` alone."""
    whole = search.trials[0].whole()
    made = []
    for number in range(count):
        rate = 10 ** (-4 + 3.6 * ((number * 37) % count) / count)
        value = 1.0 - abs(math.log10(rate) + 2.0)
        payload = json.loads(whole.model_dump_json(by_alias=True))
        payload["metadata"]["name"] = f"digits-{number}"
        payload["spec"] |= {
            "number": number,
            "parameters": {
                "lr": rate,
                "width": [32, 64, 128][number % 3],
                "batch": [16, 32, 64][number // 3 % 3],
                "activation": ["relu", "tanh"][number // 9 % 2],
            },
        }
        payload["status"] |= {"phase": "Succeeded", "best": {"step": 31, "value": value}}
        made.append(HyperParamTrial.model_validate(payload))
    return made


def test_a_packed_trial_is_the_whole_trial_in_a_fraction_of_the_memory(tmp_path: Path) -> None:
    objects = [one for one in write_objects(tmp_path) if one["kind"] == "HyperParamTrial"]
    for payload in json.loads(json.dumps(objects, default=str)):
        whole = HyperParamTrial.model_validate(payload)
        stored = StoredTrial.of(whole)
        assert stored.whole() == whole
        assert len(stored.packed) < 4000
        assert (stored.name, stored.job, stored.number) == (whole.metadata.name, "digits", whole.spec.number)
        assert stored.ended is (whole.status.finished_at is not None)
    with pytest.raises(ValueError, match="spec"):
        StoredTrial.parse({"metadata": {"name": "x"}})


def test_the_parameter_that_decides_is_the_most_important(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    found = importances(search.job.spec, with_values(search, 90))
    assert found.shares[0][0] == "lr"
    assert found.shares[0][1] > 0.5
    assert {name for name, _ in found.shares} == {"lr", "width", "batch", "activation"}
    assert sum(share for _, share in found.shares) == pytest.approx(1.0)
    assert found.trials == 90


def test_too_few_ended_trials_are_said_plainly(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    with pytest.raises(UnknownError, match="Not enough finished trials"):
        importances(search.job.spec, with_values(search, FEWEST - 1))
    assert importances(search.job.spec, with_values(search, FEWEST)).trials == FEWEST


def test_trials_outside_of_the_space_and_without_a_number_do_not_count(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    trials = with_values(search, FEWEST)
    outside = trials[0].model_copy(update={"spec": trials[0].spec.model_copy(update={"parameters": {"lr": "<b>"}})})
    with pytest.raises(UnknownError, match=f"{FEWEST - 1} have ended"):
        importances(search.job.spec, [outside, *trials[1:]])


def test_the_wait_of_a_search_is_explained_with_its_expected_end(tmp_path: Path) -> None:
    search = search_of(tmp_path, 40.0)
    newest = max(one.newest for one in search.trials)
    task = ExplanationTask(search.job, (search.job,), search.trials, search.nodes, newest, local=False)
    found = task.run()
    assert isinstance(found, Explained)
    assert found.explanation.state == "Running"
    assert found.explanation.queue
    assert found.times is not None
    assert found.times.end is not None
    assert 0.0 < found.times.end.low <= found.times.end.high


def test_the_curves_of_a_search_are_replayed_under_every_policy(tmp_path: Path) -> None:
    search = search_of(tmp_path, 600.0)
    found = ReplayTask(search.job, search.trials).run()
    assert isinstance(found, Replay)
    fifo, envelope = found.of("fifo"), found.of("envelope")
    assert fifo is not None
    assert fifo.ratio is not None
    assert fifo.ratio.mean == pytest.approx(1.0)
    assert envelope is not None
    assert envelope.ratio is not None
    assert envelope.ratio.low <= envelope.ratio.mean <= envelope.ratio.high
    assert (found.trials, found.gpus) == (12, 2)
    assert found.repetitions >= 1


def test_a_search_without_whole_curves_is_not_replayed(tmp_path: Path) -> None:
    search = search_of(tmp_path, 20.0)
    with pytest.raises(UnknownError, match="Not enough completed trials"):
        replayed(search.job, [one.whole() for one in search.trials])


@dataclass(frozen=True, slots=True)
class Endless:
    """A task that does not end by itself."""

    def run(self) -> object:
        """Compute for ever."""
        while True:
            math.sqrt(2.0)


async def until(hub: Hub, condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await hub.wait_newer(hub.version, 1.0)


def test_a_task_runs_in_a_process_of_its_own_and_its_result_is_kept(tmp_path: Path) -> None:
    search = search_of(tmp_path)
    trials = tuple(StoredTrial.of(one) for one in with_values(search, 40))

    async def work() -> None:
        hub = Hub()
        tasks = BackgroundTasks(hub.changed)

        def ask(stamp: int) -> Any:
            return tasks.refresh("a", stamp, 0.0, lambda: ImportanceTask(search.job, trials))

        assert ask(1) is None
        assert tasks.is_pending("a")
        ask(1)
        await until(hub, lambda: tasks.result("a"))
        assert not tasks.is_pending("a")
        first = ask(1)
        assert isinstance(first.value, Importances)
        assert first.value.trials == 40
        assert not tasks.is_pending("a"), "nothing has changed"
        tasks.start("few", 1, lambda: ImportanceTask(search.job, trials[:3]))
        await until(hub, lambda: tasks.result("few"))
        few = tasks.result("few")
        assert few is not None
        assert few.value is None
        assert "Not enough finished trials" in few.problem
        assert ask(2) is first, "a page gets the older result while a newer one is computed"
        assert tasks.is_pending("a")
        await tasks.close()

    asyncio.run(work())


def test_a_task_without_an_end_is_ended_by_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium_dashboard.background.runner.WALL_SECONDS", 3.0)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(Path(__file__).parent), *filter(None, __import__("sys").path)]))

    async def work() -> None:
        hub = Hub()
        tasks = BackgroundTasks(hub.changed)
        tasks.start("endless", 1, Endless)
        await until(hub, lambda: tasks.result("endless"))
        ended = tasks.result("endless")
        assert ended is not None
        assert "more than" in ended.problem

    asyncio.run(work())


def test_a_page_that_nobody_opens_costs_nothing_and_a_replay_starts_once(tmp_path: Path) -> None:
    write_objects(tmp_path, 20.0)
    key = ("default", "digits")

    async def work() -> None:
        hub = Hub()
        requests = Requests(FolderSource(tmp_path), hub, BackgroundTasks(hub.changed))
        assert requests.known(key) == (None, None)
        assert not requests.is_replaying(key)
        requests.start_replay(("default", "none"))
        requests.start_replay(key)
        requests.start_replay(key)
        assert requests.is_replaying(key)
        await until(hub, lambda: requests.replay(key))
        done = requests.replay(key)
        assert done is not None
        assert "Not enough completed trials" in done.problem
        requests.start_replay(key)
        assert not requests.is_replaying(key), "the trials are those of the last replay"

    asyncio.run(work())
