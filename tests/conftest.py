"""What all layers of tests share: the golden flag, scripts as modules, and the rule that CI skips no layer."""

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

from crashed_workers import pytest_handlecrashitem as pytest_handlecrashitem
from script_modules import load

if os.environ.get("CI") != "true":  # hypothesis has a profile of its own for CI, which says the same
    # a busy machine is no failure
    settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code gives now into tests/golden, then read the diff",
    )


@pytest.fixture(scope="session")
def load_script() -> Callable[[Path], ModuleType]:
    """A module by its path, executed anew: neither benchmarks nor examples are packages."""

    return partial(load, again=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI=true a skipped integration or e2e test is a failed one: a layer that did not run proves nothing."""
    report = yield
    layer = item.get_closest_marker("integration") or item.get_closest_marker("e2e")
    if os.environ.get("CI") == "true" and layer and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips no layer: {call.excinfo and call.excinfo.value}"
    return report
