"""Every job in examples/ is valid, and Podium warns of none."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium_cli.main import run

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path for path in (ROOT / "examples").rglob("*.yaml") if "kind: HyperParamJob" in path.read_text(encoding="utf-8")
)


def test_there_are_examples() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_an_example_has_no_warning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(path)]) == 0
    output = capsys.readouterr()
    assert "valid" in output.out
    assert "warning" not in output.out + output.err
