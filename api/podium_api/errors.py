"""The error that every part of the Python API raises."""

from __future__ import annotations


class SearchError(Exception):
    """A search cannot start, cannot be read, or failed.

    `code`: for programs, in CamelCase. The text names the value that is wrong and the cure.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
