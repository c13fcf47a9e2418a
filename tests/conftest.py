"""Shared by all layers of tests: the golden option, scripts as modules, and the rule that CI skips no layer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))  # for the package `benchmarks`

from crashed_workers import pytest_handlecrashitem as pytest_handlecrashitem
from script_modules import load

if os.environ.get("CI") != "true":  # hypothesis has an equivalent profile of its own for CI
    # a busy machine must not cause failures
    settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the current results into tests/golden, then review the diff",
    )


@pytest.fixture(scope="session")
def load_script() -> Callable[[Path], ModuleType]:
    """Return a function that executes a file outside of any package, such as an example, as a new module."""

    return partial(load, again=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a skipped integration or e2e test as failed if CI=true, because CI must run every layer."""
    report = yield
    layer = item.get_closest_marker("integration") or item.get_closest_marker("e2e")
    if os.environ.get("CI") == "true" and layer and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped, but CI must run every layer: {call.excinfo and call.excinfo.value}"
        )
    return report
