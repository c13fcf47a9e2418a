"""bench-queues: GPU-seconds from the driver's record, the simulated parts, and the page."""

from __future__ import annotations

import json

import pytest
from benchmarks.queues.bench_queues import WEIGHTS, Measured, page, search
from benchmarks.queues.gpu_time import Work, first_work, gpu_seconds, shares, work_of
from benchmarks.queues.simulated import simulated_shares

LINE = "{} {} GPU-1 77 {} 5000 10.1 11.9 1764.0 1766.0 python3 -u"
RECORD = "\n".join(["# t_start t_end ...", LINE.format(10, 12, "aa"), LINE.format(12, 15, "bb"), ""])
OWNERS = {"aa": "one", "bb": "two", "cc": "three"}


def test_gpu_seconds_of_the_period_by_owner() -> None:
    work = list(work_of(RECORD))
    assert work == [Work(10.0, 12.0, "aa"), Work(12.0, 15.0, "bb")]
    assert gpu_seconds(work, OWNERS, 11.0, 14.0) == {"one": 1.0, "two": 2.0, "three": 0.0}
    assert gpu_seconds(work, {"aa": "one"}, 0.0, 99.0) == {"one": 2.0}, "other containers do not count"
    assert first_work(work, OWNERS, "two", after=9.0) == 12.0
    assert first_work(work, OWNERS, "three", after=9.0) is None
    assert shares({"one": 1.0, "two": 3.0}) == {"one": 0.25, "two": 0.75}
    assert shares({"one": 0.0}) == {"one": 0.0}


def test_the_simulated_parts_follow_the_weights() -> None:
    found = simulated_shares(WEIGHTS, search, gpus=2, seconds=900.0)
    assert found == {name: pytest.approx(weight / 6.0, rel=0.05) for name, weight in WEIGHTS.items()}


@pytest.mark.parametrize(
    ("used", "held"),
    [
        ({"one": 300.0, "two": 600.0, "three": 900.0}, [True, True, True, True]),
        ({"one": 324.0, "two": 600.0, "three": 876.0}, [False, True, True, True]),
    ],
)
def test_the_page_says_which_bars_hold(used: dict[str, float], held: list[bool]) -> None:
    text = page(Measured(used, busy=0.95, back=12.0), {name: one / 6.0 for name, one in WEIGHTS.items()}, 900.0)
    result = json.loads(text.strip().rpartition("RESULT ")[2])
    assert result["held"] == held
    assert f"All bars hold: {'yes' if all(held) else 'no'}." in text
