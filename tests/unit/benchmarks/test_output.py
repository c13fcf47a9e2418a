"""What result pages state about a run."""

from __future__ import annotations

import sys

import pytest
from benchmarks.output import command


@pytest.mark.parametrize("words", [["--out", "/tmp/x", "--seeds", "3"], ["--seeds", "3", "--out=/tmp/x"]])
def test_the_command_of_a_page_names_no_folder_of_this_machine(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", *words])
    assert command().endswith(" --seeds 3")
    assert "/tmp" not in command()
