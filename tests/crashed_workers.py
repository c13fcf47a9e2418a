"""A test whose worker crashed is not forgotten. A hook of pytest-xdist, taken in by conftest.

The next worker runs the file again, and what passes then is no failed test any more in pytest's own cache; the run has
failed all the same. tools/second_look.py, which looks at these as well, is to know them.
"""

from __future__ import annotations

from typing import Any

import pytest

KEY = "podium/crashed"


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    if (cache := getattr(sched.config, "cache", None)) is not None:
        cache.set(KEY, [*cache.get(KEY, []), crashitem])
