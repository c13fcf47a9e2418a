"""Live table as text at several times of a search."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import cast

import pytest
from rich.console import Console

from podium_cli import sample_watch
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.views.watch import changes, view
from podium_views.job_snapshot import JobSnapshot

Snapshot = Callable[..., JobSnapshot]


def screen(snapshot: JobSnapshot, width: int = 130, **options: float) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    with console.file:
        console.print(view(snapshot, **options))  # type: ignore[arg-type]
        return console.export_text().splitlines()


def test_a_running_search_shows_trials_by_rank_and_the_holders(snapshot: Snapshot) -> None:
    shown = screen(snapshot(100))
    table = [line.split() for line in shown if line.strip().startswith("digits-") and " on GPU " not in line]
    assert [row[3] for row in table] == [str(rank) for rank in range(1, 13)]
    assert {row[1] for row in table} == {"Running", "Suspended"}
    gpus = [line for line in shown if line.strip().startswith("node-")]
    assert len(gpus) >= 2
    assert "93 %" in gpus[0]
    text = "\n".join(shown)
    assert "default/digits" in text
    assert "best 0.9612 by digits-9" in text
    assert "0/12 trials" in text
    assert "TimeSliceEnded: another trial holds the GPU" in text


def test_a_trial_that_has_ended_has_no_rank_and_comes_after_the_others(snapshot: Snapshot) -> None:
    first = snapshot(100).by_rank[0]
    assert first.status.rank == 1
    ended = snapshot(100, {first.metadata.name: {"status": {"phase": "Succeeded"}}})
    assert ended.by_rank[-1].metadata.name == first.metadata.name
    (row,) = [line.split() for line in screen(ended) if line.split()[:2] == [first.metadata.name, "Succeeded"]]
    assert row[3] == "–"


@pytest.mark.parametrize(
    ("elapsed", "changes_", "text"),
    [
        (1, {}, "ETA"),
        (600, {}, "12/12 trials"),
        (1, {"digits": {"spec": {"trials": {"max": 1}}}}, "trials.max is 1 now"),
        (600, {}, "took 3 m"),
        (100, {"digits": {"status": {"eta": None}}}, "ETA unknown"),
        (100, {"digits": {"status": {"eta": "2026-01-15T09:30:00Z"}}}, "any moment now"),
        (
            100,
            {"digits": {"status": {"phase": "Refused", "reason": "BadTemplate", "message": "no"}}},
            "no trial was started",
        ),
        (100, {"node-a": {"spec": {"released": True}}}, "thawed by `podium thaw`"),
        (0, {"digits": {"status": {"best": None}}}, "no value yet"),
        (100, {"digits-9": {"status": {"lastValue": -1.7976931348623157e308}}}, "diverged"),
        (100, {"digits-9": {"status": {"message": "[bold]x[/bold]\x1b[31m"}}}, "[bold]x[/bold] [31m"),
    ],
)
def test_the_screen_contains(snapshot: Snapshot, elapsed: float, changes_: dict[str, object], text: str) -> None:
    assert text in "\n".join(screen(snapshot(elapsed, changes_)))


def test_a_silent_api_server_is_reported_after_a_while(snapshot: Snapshot) -> None:
    assert "no event from the API server" not in "\n".join(screen(snapshot(50), silent_for=60))
    assert "no event from the API server for 2 m 00 s" in "\n".join(screen(snapshot(50), silent_for=120))


@pytest.mark.parametrize("width", [60, 84, 200])
def test_no_line_is_wider_than_the_terminal_and_the_height_is_known(snapshot: Snapshot, width: int) -> None:
    shown = screen(snapshot(100), width=width, rows=5)
    assert max(len(line) for line in shown) <= width
    assert "and 7 more" in shown[-1]
    assert len(shown) == 5 + 1 + 1 + 3 + 1 + 5 + 1  # panel, bar, decision, GPUs, head, trials, "and 7 more"


def test_lines_report_each_change_once(snapshot: Snapshot) -> None:
    first = changes(None, snapshot(0))
    assert first[0].split(" ", 1)[1].startswith("job digits Running (TrialsRunning")
    assert sum("Gated" in line for line in first) == 12
    before, after = snapshot(30), snapshot(36)
    lines = changes(before, after)
    assert any("Running -> Suspended" in line for line in lines)
    assert not changes(after, after)
    end = changes(snapshot(100), snapshot(600))
    assert any("job digits Succeeded (AllTrialsEnded" in line for line in end)


def test_a_new_best_value_has_its_own_line(snapshot: Snapshot) -> None:
    (line,) = [line for line in changes(snapshot(7), snapshot(40)) if "new best" in line]
    assert "new best val_acc" in line
    assert "lr=" in line


def test_the_sample_is_shown_from_its_start_to_its_end_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sample_watch, "SPEED", 200.0)
    assert run(["watch", "--sample"]) is Exit.OK
    printed = capsys.readouterr().out
    assert "job digits Running" in printed
    assert "new best val_acc" in printed
    assert "job digits Succeeded (AllTrialsEnded: 12 of 12 trials have ended)" in printed
    assert run(["watch", "--sample", "--timeout", "0"]) is Exit.TIMEOUT
    assert run(["watch", "--sample", "digits"]) is Exit.USAGE


def test_the_sample_on_a_terminal_ends_with_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_watch, "SPEED", 200.0)
    terminal = Console(force_terminal=True, width=120, height=40, file=io.StringIO())
    sample_watch.show_sample(terminal, lines=False, timeout=None)
    last = cast(io.StringIO, terminal.file).getvalue().rpartition("\x1b[2K")[2]
    assert all(f"digits-{number}" in last for number in range(12))
