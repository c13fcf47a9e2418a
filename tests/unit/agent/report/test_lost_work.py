"""Lost work of a new attempt, from the checkpoint that it continues from and the GPU time spent since."""

from __future__ import annotations

import pytest

from podium_core.attempts.lost_work import (
    MAX_RECENT,
    AttemptStart,
    Checkpoint,
    CompletionMarker,
    GateReport,
    LostWorkTotals,
    add_repeated_work,
    count,
    resumed_checkpoint,
)
from podium_core.attempts.usage_ledger import GpuAllocation, UsageLedger, begin_attempt, saw_marker

SAVED = Checkpoint(10.0, at=50.0, path="step-10", node="far", gpu_seconds=40.0, attempt=0)
SAME, NEWER = CompletionMarker(10.0, "step-10"), CompletionMarker(14.0, "step-14")


@pytest.mark.parametrize(
    ("said", "known", "save"),
    [
        (None, None, None),
        (None, SAVED, SAVED),
        (GateReport(SAME), SAVED, SAVED),
        (GateReport(None), SAVED, None),
        (GateReport(None), None, None),
        # 14 is four fifths of the way from 10 to 15, so its GPU-seconds are from 40 to 100
        (GateReport(NEWER), SAVED, Checkpoint(14.0, 99.0, "step-14", "here", 88.0, 1)),
        (GateReport(NEWER), None, Checkpoint(14.0, 99.0, "step-14", "here", 100.0 * 14 / 15, 1)),
        # beyond what was printed, or before the save that was known: an older one was put back
        (GateReport(CompletionMarker(20.0)), SAVED, Checkpoint(20.0, 99.0, ".", "here", 100.0, 1)),
        (GateReport(CompletionMarker(5.0)), SAVED, Checkpoint(5.0, 99.0, ".", "here", 20.0, 1)),
    ],
)
def test_the_checkpoint_that_an_attempt_continues_from(
    said: GateReport | None, known: Checkpoint | None, save: Checkpoint | None
) -> None:
    start = AttemptStart(said, "here", attempt=2)
    assert resumed_checkpoint(start, known, reached=15.0, spent=100.0, now=99.0) == save


@pytest.mark.parametrize(
    ("save", "last_step", "spent", "steps", "gpu_seconds"),
    [
        (SAVED, 15.0, 100.0, 5.0, 60.0),
        (SAVED, 10.0, 42.0, 0.0, 2.0),
        (SAVED, None, 40.0, 0.0, 0.0),
        (None, 15.0, 100.0, 15.0, 100.0),
        (None, None, 3.0, 0.0, 3.0),
        (None, None, 0.0, 0.0, 0.0),
    ],
)
def test_the_lost_work(
    save: Checkpoint | None, last_step: float | None, spent: float, steps: float, gpu_seconds: float
) -> None:
    lost_work = count(LostWorkTotals(), save, 1, last_step, spent, now=99.0)
    assert (lost_work.steps, lost_work.gpu_seconds, lost_work.count) == (steps, gpu_seconds, int(steps > 0))
    assert [loss.steps for loss in lost_work.recent] == ([steps] if steps else []), (
        "an attempt without lost steps has no entry"
    )


def test_gpu_seconds_are_not_lost_twice() -> None:
    """The second attempt dies before it saves: what the first one had lost is not its loss."""
    lost_work = count(LostWorkTotals(), SAVED, 1, 15.0, 100.0, now=1.0)
    lost_work = count(lost_work, SAVED, 2, 15.0, 130.0, now=2.0)
    assert lost_work.gpu_seconds == 60.0 + 30.0
    assert [loss.gpu_seconds for loss in lost_work.recent] == [60.0, 30.0]


def test_only_the_latest_records_are_listed() -> None:
    lost_work = LostWorkTotals()
    for attempt in range(1, 21):
        lost_work = count(lost_work, None, attempt, 1.0, float(attempt), now=1.0)
    assert (lost_work.count, lost_work.steps, len(lost_work.recent)) == (20, 20.0, MAX_RECENT)
    assert lost_work.recent[-1].attempt == 20


def test_an_allocation_on_a_dead_node_lasted_as_long_as_reported() -> None:
    ledger = UsageLedger(
        allocations=(GpuAllocation(("A", "B"), "far", 0.0, 10.0), GpuAllocation(("A", "B"), "far", 100.0)),
        finished_gpu_seconds=20.0,
    )
    start = AttemptStart(None, "here", 1)
    after = begin_attempt(ledger, start, reached=4.0, spent=50.0, now=9000.0)
    continued = begin_attempt(ledger, start, reached=4.0, spent=50.0, now=9000.0, migrated=True)
    assert (continued.allocations, continued.lost_work) == (after.allocations, ledger.lost_work), (
        "its process continues: nothing is lost"
    )
    assert after.allocations[-1].end == 115.0
    assert (after.gpu_seconds(9000.0), after.lost_work.gpu_seconds, after.lost_work.steps) == (50.0, 50.0, 4.0)


def test_a_known_marker_changes_nothing() -> None:
    ledger = saw_marker(UsageLedger(finished_gpu_seconds=7.0), CompletionMarker(3.0), "n", 1, now=5.0)
    assert ledger.checkpoint == Checkpoint(3.0, 5.0, ".", "n", 7.0, 1)
    assert saw_marker(ledger, CompletionMarker(3.0), "m", 2, now=6.0) is ledger
    again = saw_marker(ledger, CompletionMarker(3.0, "other"), "m", 2, now=6.0).checkpoint
    assert again is not None
    assert (again.at, again.node) == (6.0, "m")


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        (15.0, (1, 10.0, 60.0 + 100.0 * 5 / 15, [(5.0, 10.0)])),  # 5 steps since the save, and 5 that it did not use
        (10.0, (1, 5.0, 60.0 + 100.0 * 5 / 10, [(5.0, 5.0)])),  # all was saved, and not used
    ],
)
def test_a_script_that_continues_from_an_older_checkpoint(
    reached: float, expected: tuple[int, float, float, list[tuple[float, float]]]
) -> None:
    lost_work = count(LostWorkTotals(), SAVED, 1, reached, 100.0, now=1.0)
    lost_work = add_repeated_work(lost_work, 1, SAVED.step, 5.0, now=2.0)
    recent = [(loss.resumed_from, loss.steps) for loss in lost_work.recent]
    assert (lost_work.count, lost_work.steps, pytest.approx(lost_work.gpu_seconds), recent) == expected
