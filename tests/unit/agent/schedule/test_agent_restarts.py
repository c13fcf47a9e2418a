"""The agent killed between any two acts: two trials never run at once, none stays half frozen, SIGTERM is handled.

`PODIUM_MODEL_EXAMPLES=3000 pytest tests/unit/agent/test_faults.py` tries that many sequences of all of it, at random.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_world import NodeModel, Trial, run, simulated_node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def play(
    folder: Path, trials: list[Trial], script: Callable[[NodeModel, int], object], kills: set[int], turns: int
) -> NodeModel:
    """`kills`: numbers of acts, counted from the beginning, in place of which the agent dies."""
    world = NodeModel(folder, *trials)
    world.kill_at = kills

    def before_turn(number: int) -> None:
        script(world, number)

    with simulated_node(world):
        asyncio.run(run(world, turns, before_turn))
    return world


def finished_gpu_seconds(world: NodeModel, *order: str) -> None:
    """The first that is alive works, and every other that was let in is frozen, whole."""
    alive = [world.trials[name] for name in order if not world.trials[name].ended]
    assert alive[0].suspension_state() == {"THAWED"}, "the first does not work, whole"
    for one in alive[1:]:
        assert one.suspension_state() in (set(), {"FROZEN"}), f"{one.name} is half-frozen"


def hand_over(world: NodeModel, number: int) -> None:
    run_queues = {0: "abc", 8: "bac", 16: "cba", 24: "abc"}
    if number in run_queues:
        world.command(*run_queues[number])
    world.show()


def delete_the_frozen(grace: float) -> Callable[[NodeModel, int], object]:
    def script(world: NodeModel, number: int) -> None:
        if number == 0:
            world.command("a", "b", "c")
        elif number == 8:
            world.command("b", "a", "c")  # a is frozen then
        elif number == 16:
            world.delete("a", grace)
        world.show()

    return script


def trials() -> list[Trial]:
    return [Trial("a", containers=2), Trial("b"), Trial("c", containers=2)]


SWITCH_ACTS = 10  # let in a, freeze its two, let in b, freeze it, let in c, freeze its two, thaw the two of a
DELETION_ACTS = 8  # let in a, freeze its two, let in b, freeze it, thaw the two of a; it ends, and b is thawed
RELEASE_ACTS = 10  # let in a, freeze its two, let in b, thaw the two of a, freeze those and b, let in c


@pytest.mark.parametrize("first", range(1, SWITCH_ACTS + 1))
def test_an_agent_killed_at_each_act_of_three_switches(tmp_path: Path, first: int) -> None:
    """Every act is asked of the kernel or of a gate; the next agent finds it undone, or half done. And dies again."""
    for gap in (0, 1, 2, 5):
        folder = tmp_path / str(gap)
        folder.mkdir()
        world = play(folder, trials(), hand_over, {first, first + gap}, 45)
        assert world.deaths >= 1
        assert world.acts >= SWITCH_ACTS
        finished_gpu_seconds(world, *"abc")
        assert all(one.let_in for one in world.trials.values())


@pytest.mark.parametrize("grace", [30.0, 1.0])
@pytest.mark.parametrize("kill", range(1, DELETION_ACTS + 1))
def test_an_agent_killed_at_each_act_of_a_deletion(tmp_path: Path, kill: int, grace: float) -> None:
    """A frozen trial is deleted: the holder is suspended, the trial handles its SIGTERM, and the holder resumes."""
    world = play(tmp_path, trials(), delete_the_frozen(grace), {kill}, 40)
    assert world.deaths == 1
    assert world.trials["a"].heard, "it was left to SIGKILL, frozen"
    finished_gpu_seconds(world, *"bac")


@pytest.mark.parametrize("kill", [None, *range(6, RELEASE_ACTS + 1)])
def test_after_a_release_all_trials_are_frozen_before_one_is_admitted(tmp_path: Path, kill: int | None) -> None:
    """After a release a and b run at once. The next run queue names c, which waits until both are frozen."""
    at_work: list[set[str]] = []

    def script(world: NodeModel, number: int) -> None:
        run_queues = {0: "abc", 8: "bac", 16: "bac", 24: "cab"}
        if number in run_queues:
            world.released = number == 16
            world.command(*run_queues[number])
        if number == 23:
            at_work.append({one.name for one in world.trials.values() if one.works})
        world.show()

    world = play(tmp_path, trials(), script, set() if kill is None else {kill}, 45)
    assert at_work == [{"a", "b"}]
    assert world.trials["c"].let_in
    assert (world.acts, world.deaths) == (RELEASE_ACTS, 0) if kill is None else world.deaths == 1
    finished_gpu_seconds(world, *"cab")


@pytest.mark.parametrize("state", ["Gated", "Starting", "Suspending", "Resuming", "Running"])
@pytest.mark.parametrize("grace", [30.0, 1.0])
@pytest.mark.parametrize("stale", [0, 2])
def test_a_trial_deleted_in_each_state(tmp_path: Path, state: str, grace: float, stale: int) -> None:
    """At the very turn in which it is let in, suspended or resumed; the agent may hear of it two turns later."""
    run_queues = {"Gated": "bca", "Starting": "abc", "Suspending": "bac", "Resuming": "abc", "Running": "abc"}
    begin = {"Gated": 9, "Starting": 0, "Suspending": 9, "Resuming": 18, "Running": 5}[state]

    def script(world: NodeModel, number: int) -> None:
        if number == 0:
            world.command(*("bca" if state == "Gated" else "abc"))
        if number == 9 and state == "Resuming":
            world.command(*"bac")
        if number == begin:
            world.command(*run_queues[state])
            world.show()
            world.delete("a", grace)
        if not begin <= number < begin + stale:
            world.show()

    world = play(tmp_path, trials(), script, set(), 45)
    assert world.trials["a"].heard
    finished_gpu_seconds(world, *run_queues[state])


EXAMPLES = int(os.environ.get("PODIUM_MODEL_EXAMPLES", "60"))
EVENTS = st.one_of(
    st.tuples(st.just("order"), st.permutations("abcd")),
    st.tuples(st.just("delete"), st.sampled_from("abcd"), st.sampled_from([0.5, 1.0, 3.0, 30.0])),
    st.tuples(st.just("kill"), st.integers(1, 6)),
    st.tuples(st.just("release"), st.booleans()),
    st.tuples(st.just("show")),
    st.tuples(st.just("wait")),
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="PODIUM_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(EVENTS, min_size=5, max_size=40), st.booleans())
def test_random_sequences_of_events(events: list[tuple[object, ...]], released: bool) -> None:
    """Orders, deletions, stale caches and kills in any sequence; `check` in the world holds the agent to the rules."""
    cast = [Trial("a", containers=2), Trial("b", "GH"), Trial("c", "H"), Trial("d", containers=2)]

    def script(world: NodeModel, number: int) -> None:
        if number < len(events):
            kind, *words = events[number]
            if kind == "order":
                world.command(*words[0])  # type: ignore[misc]
            elif kind == "delete":
                world.delete(*words)  # type: ignore[arg-type]
            elif kind == "kill":
                world.kill_at.add(world.acts + words[0])  # type: ignore[operator]
            elif kind == "release":
                world.released = bool(words[0])
            elif kind == "show":
                world.show()
            return
        if number == len(events):
            world.kill_at.clear()
            world.released = released
            world.command(*"abcd")
        world.show()

    with tempfile.TemporaryDirectory() as folder:
        world = play(Path(folder), cast, script, set(), len(events) + 30)
        alive = [one for one in world.trials.values() if not one.ended]
        if released:
            assert not any(one.frozen for one in alive), "released, but a trial is frozen"
            return
        assert all(len(one.suspension_state()) <= 1 for one in alive), "something is half-frozen"
        for gpu in "GH":
            at_work = [one for one in alive if gpu in one.gpus and one.works]
            assert len(at_work) == 1 or not any(gpu in one.gpus for one in alive) or _blocked(alive, gpu)
        long = [one for one in world.trials.values() if one.deadline is not None and one.grace >= 30.0]
        assert all(not one.killed for one in long), "a frozen trial with time left was left to SIGKILL"


def _blocked(alive: list[Trial], gpu: str) -> bool:
    """Its only trial needs another GPU as well, which has a better one."""
    return all(len(one.gpus) > 1 for one in alive if gpu in one.gpus)
