"""The order of the tests on real clusters."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]


def test_the_longest_tests_run_first_and_destructive_ones_last() -> None:
    """The workers of xdist run the files in the order in which pytest lists them."""
    options = ("--collect-only", "--quiet", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/integration", "tests/e2e"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    order = list(dict.fromkeys(files))
    on_e2e = [file for file in order if file.startswith("tests/e2e/")]
    assert order[: len(on_e2e)] == on_e2e, "tests on their own clusters run after those on the shared one"
    assert on_e2e[:3] == [f"tests/e2e/test_{name}.py" for name in ("faults", "live_migration", "digits")]
    assert on_e2e[-3:] == [f"tests/e2e/test_{name}.py" for name in ("node_loss", "uninstall", "offline_install")]
    for layer in ("integration", "e2e"):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / layer).glob("test_*.py")}
        assert files <= set(order)


def test_the_cluster_is_stopped_after_the_last_test_of_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("conftest_of_e2e", ROOT / "tests/e2e/conftest.py")
    assert spec is not None
    assert spec.loader is not None
    layer = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, layer)
    spec.loader.exec_module(layer)
    ended: list[str] = []
    layer.UP.append(SimpleNamespace(down=lambda: ended.append("down")))
    layer.pytest_runtest_teardown(SimpleNamespace(path=ROOT / "tests/e2e/test_exclusive_pods.py"))
    layer.pytest_runtest_teardown(None)  # at the end of the session the fixture stops the cluster
    assert ended == []
    for _ in range(2):
        layer.pytest_runtest_teardown(SimpleNamespace(path=ROOT / "tests/integration/test_agent.py"))
    assert ended == ["down"]
