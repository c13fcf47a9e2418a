"""The API server's time: it advances steadily, whatever the clocks of this machine and of the server do."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_cluster.clock import FASTEST, RESOLUTION, ServerClock

NOW = 1.8e9
JUMPS = st.sampled_from([-1e9, -3600.0, -600.0, -60.0, -1.0, 0.0, 1.0, 60.0, 3600.0, 1e9])


class Machine:
    """A monotonic clock, and wall clocks of this machine and of the server, which may be set at any moment."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_here = self.set_there = 0.0
        self.clock = ServerClock(lambda: 1000.0 + self.passed, lambda: NOW + self.passed + self.set_here)

    def respond(self, seconds: float = 0.0) -> None:
        self.clock.observe(formatdate(NOW + self.passed + self.set_there, usegmt=True), seconds)


@given(st.lists(st.tuples(st.floats(0.0, 600.0), JUMPS, JUMPS, st.booleans()), max_size=30))
def test_no_clock_that_is_set_makes_the_time_jump(turns: list[tuple[float, float, float, bool]]) -> None:
    machine = Machine()
    machine.respond()
    begin = before = machine.clock.now()
    assert begin == pytest.approx(NOW, abs=RESOLUTION)
    for passed, here, there, responds in turns:
        machine.passed += passed
        machine.set_here += here
        machine.set_there += there
        if responds:
            machine.respond(0.1)
        now = machine.clock.now()
        assert (1 - FASTEST) * passed - 1e-3 <= now - before <= (1 + FASTEST) * passed + 1e-3
        before = now
    assert before - begin == pytest.approx(machine.passed, rel=FASTEST + 1e-6, abs=0.1)


@pytest.mark.parametrize("wrong", [-3600.0, 0.0, 3600.0])
def test_nodes_agree_whatever_their_wall_clocks_say(wrong: float) -> None:
    machine = Machine()
    machine.set_here = wrong
    machine.clock = ServerClock(lambda: machine.passed, lambda: NOW + wrong)
    machine.respond(0.2)
    assert machine.clock.now() == pytest.approx(NOW, abs=RESOLUTION + 0.21)


def test_a_server_whose_clock_was_set_is_followed_slowly() -> None:
    machine = Machine()
    machine.respond()
    machine.set_there = 60.0
    for _ in range(60 * 30):
        machine.passed += 1.0
        machine.respond()
    assert machine.clock.now() == pytest.approx(NOW + machine.passed + 60.0, abs=RESOLUTION + 0.1)


def test_dates_within_their_resolution_change_nothing() -> None:
    machine = Machine()
    machine.respond()
    begin = machine.clock.now()
    for _ in range(100):
        machine.passed += 0.37
        machine.respond()
    assert machine.clock.now() == pytest.approx(begin + machine.passed, abs=1e-3)


@pytest.mark.parametrize(
    "date", [None, "", "yesterday", "Thu, 99 Nov 2026 14:47:00 GMT", "Mon, 01 Jan 99999 0:0:0 GMT"]
)
def test_a_response_without_a_date_changes_nothing(date: str | None) -> None:
    machine = Machine()
    machine.clock.observe(date, 1.0)
    assert machine.clock.now() == NOW
