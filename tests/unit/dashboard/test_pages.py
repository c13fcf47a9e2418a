"""The pages as functions of the state: what they show, and that text of tenants is text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dashboard_scene import Elements, write_objects

from podium_cli.samples import BEGIN
from podium_core.schema.gpunode import GPUNode
from podium_dashboard.background.replay import PolicyResult, Replay
from podium_dashboard.background.runner import Result
from podium_dashboard.background.tasks import ExplanationTask, Importances
from podium_dashboard.pages import gpus, searches, trial
from podium_dashboard.pages.page import Extra, Kind, PageRef, parse_path
from podium_dashboard.pages.renderer import render
from podium_dashboard.pages.search import MAX_POINTS, thinned
from podium_dashboard.server.app import document
from podium_dashboard.sources.folder import FolderSource
from podium_dashboard.sources.source import EventLine, EventList, LogTail
from podium_dashboard.state import State
from podium_simulator.replay.statistics import Ratio
from podium_views.model import build

EVIL = "<script>alert(1)</script>\"'&\x00\x1b"
PAGES = ("/", "/gpus", "/searches/default/digits", "/trials/default/digits-3", "/what-if/default/digits")


def state_of(folder: Path, elapsed: float = 100.0, changes: Any = None) -> State:
    write_objects(folder, elapsed, changes)
    return FolderSource(folder).state()


def html_of(state: State, path: str, extra: Extra | None = None) -> str:
    ref = parse_path(path)
    assert ref is not None
    page = render(state, ref, extra or Extra(LogTail("step 1", "")), 1)
    assert page is not None, path
    return document(page, "a source")


def test_the_page_of_searches_shows_progress_and_best(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    text = Elements(html_of(state, "/")).text
    job = state.searches[0].job
    assert job.status.best is not None
    for shown in ("digits", "Running", f"{state.searches[0].done} / 12", job.status.best.trial):
        assert shown in text
    overview = searches.overview(state)
    assert (overview.active, overview.searches, overview.gpus, overview.held) == (1, 1, 2, 2)


def test_the_page_of_a_search_has_curves_bars_axes_and_a_row_for_each_trial(tmp_path: Path) -> None:
    elements = Elements(html_of(state_of(tmp_path), "/searches/default/digits"))
    labels = [attrs["aria-label"] or "" for name, attrs in elements.found if name == "svg"]
    assert [label.split(" ")[0] for label in labels] == ["Learning", "Holder", "Best", "Parameters"]
    assert elements.text.count("It is being computed ...") == 2, "the wait and the importance come later"
    rows = {attrs.get("href") for name, attrs in elements.found if name == "a"}
    assert {f"/trials/default/digits-{number}" for number in range(12)} <= rows


def test_the_page_of_a_trial_explains_it_and_shows_its_log(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    found = state.trial("default", "digits-3")
    assert found is not None
    text = Elements(html_of(state, "/trials/default/digits-3", Extra(LogTail("the last line", "Cut.")))).text
    for shown in ("digits-3", found[1].status.phase.value, found[1].status.reason, "the last line", "run queue"):
        assert shown in text
    snapshot = state.snapshot(("default", "digits"), BEGIN)
    assert snapshot is not None
    (place,) = trial.queue_places(snapshot, found[1])
    assert place.position.endswith("of 6") or place.position == "–"


def test_the_page_of_gpus_shows_holder_queue_and_health(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    node = state.nodes[0]
    gpu = node.status.gpus[0].model_copy(
        update={"health": "Unhealthy", "health_reason": "Xid 79", "temperature": 61.0, "throttle": ["SwThermal"]}
    )
    assert gpu.holder is not None
    card = gpus.card(node, gpu, gpu.holder.since + timedelta(seconds=90))
    assert (card.holder, card.held_for) == (("default", gpu.holder.trial), "1 m 30 s")
    assert (card.health_reason, card.temperature) == ("Xid 79", "61 °C")
    assert [one.trial for one in card.waiting] == [
        one.trial for one in node.spec.gpus[0].run_queue if one.uid != gpu.holder.uid
    ]
    assert any("SwThermal" in note for note in card.notes)
    assert card.waiting[0].trial in Elements(html_of(state, "/gpus")).text


def test_all_text_of_tenants_and_trials_is_escaped(tmp_path: Path) -> None:
    changes = {
        "digits": {
            "spec": {"objective": {"metric": EVIL}, "metrics": {"stepKey": EVIL}},
            "status": {"reason": EVIL, "message": EVIL},
        },
        "digits-3": {
            "metadata": {"name": EVIL},
            "spec": {"parameters": {EVIL: EVIL, "activation": EVIL}},
            "status": {"reason": EVIL, "message": EVIL, "pod": EVIL, "node": EVIL},
        },
        "node-a": {"status": {"gpus": None}},
    }
    state = state_of(tmp_path, 100.0, {**changes, "node-a": {}})
    hostile = PageRef(Kind.TRIAL, "default", EVIL).path
    search = state.searches[0]
    task = ExplanationTask(search.job, (search.job,), search.trials, search.nodes, search.trials[0].newest, local=False)
    extra = Extra(
        log=LogTail(EVIL + "\n</pre>", EVIL),
        events=EventList((EventLine(None, EVIL, EVIL, EVIL, EVIL, 2),)),
        importance=Result(Importances(((EVIL, 0.7), ("lr", 0.3)), 30)),
        explanation=Result(task.run()),
        replay=Result(problem=EVIL),
    )
    for path in ("/", "/gpus", "/searches/default/digits", hostile, "/what-if/default/digits"):
        html = html_of(state, path, extra)
        elements = Elements(html)
        scripts = [attrs for name, attrs in elements.found if name == "script"]
        assert scripts == [{"type": "module", "src": "/assets/live.js"}]
        assert "<script>alert" not in html
        assert "\x00" not in html
        assert "\x1b" not in html
        for name, attrs in elements.found:
            assert not any(key.startswith("on") for key in attrs), f"{path}: {name}"
            assert not (attrs.get("href") or "").startswith(("javascript:", "data:", "http", "//"))
        if path != "/gpus":
            assert "<script>alert(1)</script>" in elements.text  # shown as text


def test_the_page_of_a_search_shows_the_wait_and_the_importance(tmp_path: Path) -> None:
    state = state_of(tmp_path, 40.0)
    search = state.searches[0]
    newest = max(one.newest for one in search.trials)
    task = ExplanationTask(search.job, (search.job,), search.trials, search.nodes, newest, local=False)
    extra = Extra(importance=Result(Importances((("lr", 0.8), ("width", 0.2)), 30)), explanation=Result(task.run()))
    elements = Elements(html_of(state, "/searches/default/digits", extra))
    for shown in ("Why not now, and when?", "Position", "1 of", "UTC", "hold 80 % of", "simulated sample", "lr"):
        assert shown in elements.text
    labels = [attrs["aria-label"] or "" for name, attrs in elements.found if name == "svg"]
    assert "Importance of 2 parameters, the largest first" in labels
    few = Extra(importance=Result(problem="Not enough finished trials: 3 of 20."))
    assert "Not enough finished trials" in Elements(html_of(state, "/searches/default/digits", few)).text


def test_an_ended_search_has_no_card_for_its_wait(tmp_path: Path) -> None:
    state = state_of(tmp_path, 600.0)
    search = state.searches[0]
    task = ExplanationTask(search.job, (search.job,), search.trials, search.nodes, search.trials[0].newest, local=False)
    assert "Why not now" not in html_of(state, "/searches/default/digits", Extra(explanation=Result(task.run())))


def test_the_what_if_page_offers_a_replay_and_shows_what_the_default_saved(tmp_path: Path) -> None:
    state = state_of(tmp_path, 600.0)
    search, path = state.searches[0], "/what-if/default/digits"
    offered = Elements(html_of(state, path, Extra()))
    assert ("form", path, "post") in {(name, attrs.get("action"), attrs.get("method")) for name, attrs in offered.found}
    running = Elements(html_of(state, path, Extra(replaying=True)))
    assert "The replay runs" in running.text
    assert "form" not in {name for name, _ in running.found}

    def shown(default: tuple[float, float, float], repetitions: int = 8) -> str:
        mean, low, high = default
        results = (
            PolicyResult("envelope", 60.0, Ratio(mean, low, high, low, high, 0.0, 8)),
            PolicyResult("fifo", 100.0, Ratio(1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 8)),
        )
        replay = Replay(results, trials=12, left_out=3, gpus=2, suspend=0.1, resume=0.2, repetitions=repetitions)
        return Elements(html_of(state, path, Extra(replay=Result(replay, stamp=search.done)))).text

    certain = shown((1.7, 1.4, 2.0))
    assert "envelope saves 40 s against fifo" in certain
    assert "1.40 to 2.00" in certain
    assert "3 trials have no whole curve" in certain
    assert "Replay with the newest trials" not in certain
    assert "No difference is certain" in shown((1.1, 0.9, 1.3))
    assert "Only 2 repetitions fitted into the time" in shown((1.7, 1.4, 2.0), 2)


def test_the_page_of_a_trial_shows_its_events_and_its_last_decision(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    holder = state.nodes[0].status.gpus[0].holder
    assert holder is not None
    waiting = state.nodes[0].spec.gpus[0].run_queue[1]
    event = EventLine(BEGIN, "pod", "Warning", "BackOff", "the container restarts", 3)
    text = Elements(html_of(state, f"/trials/default/{waiting.trial}", Extra(events=EventList((event,))))).text
    for shown in ("Last decision", waiting.reason, "position 2 of", holder.trial, "BackOff (3 times)", "2026-01-15"):
        assert shown in text
    note = EventList(note="The Events cannot be read: forbidden")
    assert "forbidden" in Elements(html_of(state, "/trials/default/digits-3", Extra(events=note))).text
    assert "Events" not in Elements(html_of(state, "/trials/default/digits-3", Extra(events=EventList()))).text


def test_no_page_loads_anything_from_elsewhere_or_has_styles_that_the_policy_refuses(tmp_path: Path) -> None:
    state = state_of(tmp_path, 600.0)
    for path in PAGES:
        elements = Elements(html_of(state, path))
        assert elements.names().isdisjoint({"iframe", "object", "embed", "base", "img", "style"})
        assert {attrs["action"] for name, attrs in elements.found if name == "form"} <= {path}
        for _, attrs in elements.found:
            assert "style" not in attrs
            for key in ("src", "href"):
                assert (attrs.get(key) or "/").startswith(("/", "#"))


def test_unknown_pages_do_not_exist(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    for path in ("/searches/default/none", "/trials/other/digits-3"):
        ref = parse_path(path)
        assert ref is not None
        assert render(state, ref, Extra(), 1) is None
    for path in ("/searches", "/searches/a", "/searches/a/", "/searches/a/b/c", "/x", "/searches/a/" + "b" * 300):
        assert parse_path(path) is None


@pytest.mark.parametrize("name", ["digits-3", "a/b", "%2F", "é <b>", "..", "?token=x", "#"])
def test_any_name_survives_the_path(name: str) -> None:
    ref = PageRef(Kind.TRIAL, "default", name)
    assert parse_path(ref.path) == ref
    assert ref.path.count("/") == 3


def test_the_same_state_gives_the_same_digests_and_a_new_value_changes_only_its_parts(tmp_path: Path) -> None:
    def digests(elapsed: float) -> dict[str, str]:
        state = state_of(tmp_path, elapsed)
        ref = parse_path("/searches/default/digits")
        assert ref is not None
        page = render(state, ref, Extra(), 1)
        assert page is not None
        return {one.name: one.digest for one in page.fragments if one.name != "problems"}

    before, again, after = digests(100.0), digests(100.0), digests(130.0)
    assert again == before
    assert {name for name in before if before[name] != after[name]} >= {"head", "curves", "gpus", "trials"}
    assert after["front"] == before["front"]


def test_large_searches_are_drawn_with_a_bounded_number_of_points(tmp_path: Path) -> None:
    points = [{"step": step, "value": step / 1000, "time": BEGIN.timestamp() + step} for step in range(250)]
    state = state_of(tmp_path, 100.0, {"digits-3": {"status": {"curve": {"points": points}}}})
    snapshot = state.snapshot(("default", "digits"), BEGIN)
    assert snapshot is not None
    report = build(snapshot)
    (row,) = [one for one in thinned(report).trials if one.name == "digits-3"]
    assert len(row.curve) <= MAX_POINTS
    assert row.curve[-1] == (249.0, 0.249)
    assert row.curve[0] == (0.0, 0.0)


def test_a_node_without_gpus_and_a_search_without_trials_have_pages(tmp_path: Path) -> None:
    (job,) = [one for one in write_objects(tmp_path) if one["kind"] == "HyperParamJob"]
    (tmp_path / "all.json").write_text(json.dumps(job, default=str))
    state = FolderSource(tmp_path).state()
    assert "No trial has received a GPU yet." in html_of(state, "/searches/default/digits")
    assert "No GPU is known" in html_of(state, "/gpus")
    empty = State.of((), (GPUNode.model_validate({"metadata": {"name": "a"}}),))
    assert "There is no search yet." in html_of(empty, "/")


def test_durations_stand_still_when_nothing_runs(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    assert state.stopped is not None
    now = datetime.now(UTC) + timedelta(days=3)
    assert searches.row(state.searches[0], state.stopped).age == searches.row(state.searches[0], state.stopped).age
    first = searches.fragments(state, now)
    assert first == searches.fragments(state, now + timedelta(days=3))
