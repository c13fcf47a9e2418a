"""A hook of pytest-xdist that records tests whose worker crashed; conftest.py imports it.

The next worker runs the file again. If the test passes then, pytest's own cache no longer lists it as failed, although
the run has failed. tools/second_look.py reads this record to repeat such tests too.
"""

from __future__ import annotations

from typing import Any

import pytest

KEY = "podium/crashed"


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Append the test to the list of crashed ones in pytest's cache."""
    if (cache := getattr(sched.config, "cache", None)) is not None:
        cache.set(KEY, [*cache.get(KEY, []), crashitem])
