"""The error that every part of the Python API raises, and the warning of `podium.tune`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SearchError(Exception):
    """A search cannot start, cannot be read, or failed.

    `code`: for programs, in CamelCase. The text names the value that is wrong and the cure. `transient`: whether the
    same call may succeed later.
    """

    def __init__(self, code: str, message: str, *, transient: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.transient = transient


class SearchWarning(UserWarning):
    """Part of a search probably does not work as intended; the text names the field and the cure."""


@contextmanager
def needs_cluster(what: str) -> Iterator[None]:
    """Raise SearchError if an import inside fails because the packages of a cluster are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"{what} needs {error.name}, which is not installed: pip install 'kube-podium[cluster,cli]'"
        raise SearchError("ExtraMissing", text) from error
