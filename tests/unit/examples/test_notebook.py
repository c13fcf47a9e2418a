"""The example notebook runs in a real Jupyter kernel, and its stored outputs are those of its cells."""

from __future__ import annotations

import copy
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from notebook import NOTEBOOK, execute

ROOT = NOTEBOOK.parents[1]
MAX_BYTES = 300_000  # a reader's browser loads it, and each change of the outputs stays in the history
TERMINAL = re.compile(r"\x1b\[")


def cells(notebook: Any) -> dict[str, Any]:
    """Return the code cells by id."""
    return {cell["id"]: cell for cell in notebook.cells if cell.cell_type == "code"}


def kinds(cell: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Return the type of each output, and of which media it has data."""
    return [(one.output_type, tuple(sorted(one.get("data", {})))) for one in cell.outputs]


def data_of(cell: Any, media: str) -> str:
    """Return the data of the only output that has this medium."""
    (text,) = [one.data[media] for one in cell.outputs if media in one.get("data", {})]
    return str(text)


@pytest.fixture(scope="module")
def stored() -> Any:
    return nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)


@pytest.fixture(scope="module")
def executed(stored: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the notebook after a run of its cells from the first to the last."""
    notebook = copy.deepcopy(stored)
    for cell in cells(notebook).values():
        cell.outputs, cell.execution_count = [], None
    begin = time.monotonic()
    execute(notebook, tmp_path_factory.mktemp("notebook"))
    print(f"the notebook took {time.monotonic() - begin:.1f} s")
    return notebook


def test_every_cell_yields_what_is_stored(stored: Any, executed: Any) -> None:
    nbformat.validate(executed)
    wanted, got = cells(stored), cells(executed)
    assert {name: kinds(cell) for name, cell in got.items()} == {name: kinds(cell) for name, cell in wanted.items()}
    assert [cell.execution_count for cell in wanted.values()] == list(range(1, len(wanted) + 1))


def test_the_table_is_replaced_in_place_until_the_search_ends(executed: Any) -> None:
    html = data_of(cells(executed)["search"], "text/html")  # one output, though it was shown at every change
    assert re.search(r"digits: Succeeded, 8/8 trials done, best 0\.\d+", html)
    rows = re.findall(r"<tr><td>(digits-\d)</td><td>Succeeded</td><td></td><td>20</td><td>([\d.]+)</td>", html)
    assert len(rows) == 8
    assert [float(value) for _, value in rows] == sorted((float(value) for _, value in rows), reverse=True)


def test_the_results_agree(executed: Any) -> None:
    made = cells(executed)
    (printed,) = made["best"].outputs
    found = re.match(r"(digits-\d): accuracy (0\.\d+) with", printed.text)
    assert found is not None
    assert float(found[2]) > 0.9
    first = next(line for line in data_of(made["dataframe"], "text/plain").splitlines() if "digits-" in line)
    assert found[1] in first
    assert re.search(r"^20\.0 ", data_of(made["curves"], "text/plain"), re.MULTILINE)
    assert data_of(made["plot"], "image/png").startswith("iVBORw0KGgo")  # PNG in base64


def test_the_stored_outputs_suit_a_code_host(stored: Any) -> None:
    nbformat.validate(stored)
    text = NOTEBOOK.read_text()
    assert len(text) <= MAX_BYTES
    assert not TERMINAL.search(text)
    assert str(ROOT) not in text
    assert "/root/" not in text
    assert all(
        one.output_type != "stream" or one.name == "stdout" for cell in cells(stored).values() for one in cell.outputs
    )
