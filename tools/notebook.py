"""Run examples/notebook.ipynb in a real kernel and store its outputs in it: `python tools/notebook.py`.

Readers on a code host see the stored outputs. `--picture FILE.png` draws the search and the figure of the stored
notebook instead, by nbconvert (`pip install nbconvert`; it is not among the pinned packages) and headless Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
START_SECONDS, CELL_SECONDS = 300, 600
SIZE = "900,1150"
# the picture shows two cells
STYLE = "<style>.jp-Cell:not([id='cell-id=search']):not([id='cell-id=plot']) {display: none}</style>"


def execute(notebook: Any, folder: Path) -> None:
    """Run all cells in `folder` with the present Python, and store their outputs.

    Raises CellExecutionError.
    """
    with tempfile.TemporaryDirectory() as sockets:
        NotebookClient(
            notebook,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            kernel_name="python3",
            timeout=CELL_SECONDS,
            startup_timeout=START_SECONDS,
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
        ).execute()


def draw(notebook: Path, picture: Path) -> None:
    """Draw the notebook as it looks in Jupyter."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is installed: apt-get install {BROWSERS[0]}")
    with tempfile.TemporaryDirectory() as name:
        convert = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", name, str(notebook)]
        subprocess.run(convert, check=True)
        page = Path(name) / f"{notebook.stem}.html"
        page.write_text(page.read_text().replace("</head>", f"{STYLE}</head>", 1))
        options = ["--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}", f"--screenshot={picture.absolute()}"]
        subprocess.run([browser, "--headless", *options, page.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Execute and store, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, metavar="FILE.png")
    options = parser.parse_args()
    if options.picture is not None:
        draw(NOTEBOOK, options.picture)
        return
    notebook = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
    notebook.metadata["language_info"] = {"name": "python"}  # nbclient adds the version of Python
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
