"""What result pages state about a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from benchmarks.output import add_out, command


@pytest.mark.parametrize("words", [["--out", "FOLDER", "--seeds", "3"], ["--seeds", "3", "--out=FOLDER"]])
def test_the_command_of_a_page_names_no_folder_of_this_machine(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", *(word.replace("FOLDER", str(tmp_path)) for word in words)])
    assert command().endswith(" --seeds 3")
    assert str(tmp_path) not in command()


def test_a_folder_that_cannot_hold_results_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_out(parser)
    for folder in (tmp_path, tmp_path / "new" / "deep"):
        assert parser.parse_args(["--out", str(folder)]).out == folder
    assert parser.parse_args([]).out == Path("benchmarks", "results")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        parser.parse_args(["--out", str(tmp_path / "file" / "x")])
    assert "file is a file; name a folder (make: OUT=)" in capsys.readouterr().err
