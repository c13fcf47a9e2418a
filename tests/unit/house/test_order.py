"""What ends a cluster is the last thing that is done to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_file_comes_after_those_that_end_their_cluster() -> None:
    """pytest sorts files by name, and workers of xdist take them in that order."""
    options = ("--collect-only", "--quiet", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/e2e"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    order = list(dict.fromkeys(files))
    assert order[-2:] == ["tests/e2e/test_the_end_of_a_node.py", "tests/e2e/test_uninstall.py"]
    assert set(order) == {str(path.relative_to(ROOT)) for path in (ROOT / "tests/e2e").glob("test_*.py")}
