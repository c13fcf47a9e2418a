"""The measurements of pauses in the e2e tests: they must detect a trial that stays frozen and a GPU that idles."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def pauses(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(Path(__file__).parents[2] / "e2e" / "pauses.py")


def test_the_longest_span_counts_whole_if_it_meets_the_time(pauses: ModuleType) -> None:
    spans = pauses.between([30.0, 1.0, 2.0, 9.0])
    assert [(span.start, span.end) for span in spans] == [(1, 2), (2, 9), (9, 30)]
    assert pauses.longest(spans, pauses.Span(1.5, 3.0)) == 7
    assert pauses.longest(spans, pauses.Span(8.0, 10.0)) == 21
    assert pauses.longest(spans, pauses.Span(40.0, 50.0)) == 0


@pytest.mark.parametrize(
    ("usual", "causes", "seconds"),
    [
        pytest.param(20.0, [], 5.0, id="a longer pause without a cause"),
        pytest.param(26.0, [], 0.0, id="shorter than usual"),
        pytest.param(20.0, [(24.0, 27.0)], 2.0, id="a cause counts whole if the pause meets it"),
        pytest.param(20.0, [(26.0, 40.0)], 5.0, id="a cause after the pause"),
        pytest.param(20.0, [(2.0, 5.0), (10.0, 12.0)], 0.0, id="causes together"),
    ],
)
def test_a_pause_is_excessive_beyond_the_usual_one_and_its_causes(
    pauses: ModuleType, usual: float, causes: list[tuple[float, float]], seconds: float
) -> None:
    spans = pauses.between([0.0, 25.0])
    assert pauses.excess(spans, usual, [pauses.Span(*cause) for cause in causes]) == seconds
    assert pauses.excess([], usual, []) == 0


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_frozen_trial_is_seen_until_it_is_thawed_or_ends(pauses: ModuleType, tmp_path: Path) -> None:
    first, second, thawed = tmp_path / "first", tmp_path / "second", tmp_path / "thawed"
    first.write_text("FROZEN\n")
    second.write_text("1\n")
    thawed.write_text("THAWED\n")
    with pauses.FreezeWatch({first: "THAWED", second: "0", thawed: "THAWED"}) as watch:
        wait(lambda: len(watch.spans) == 2)
        first.write_text("THAWED\n")
        second.unlink()  # its container has ended
        wait(lambda: len({(span.start, span.end) for _ in range(2) for span in watch.spans}) == 2)  # none is open
    assert len(watch.spans) == 2
    assert all(span.seconds > 0 for span in watch.spans)
