"""Placeholders that carry parameters to a container: `$(podium.args)`, `$(podium.params.lr)`, `$(podium.checkpoint)`.

`pod_manifest` uses it. Kubernetes itself ignores `$(...)` with a dot, so the two never conflict.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from podium_core.schema.job import Scalar

ARGS = "$(podium.args)"
_PLACEHOLDER = re.compile(r"\$\(podium\.([A-Za-z0-9_.-]+)\)")


def text(value: Scalar) -> str:
    """Return a value as a command line spells it: true, 3, 0.001, relu. Floats keep every digit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def arguments(parameters: Mapping[str, Scalar]) -> list[str]:
    """Return the parameters as command-line arguments."""
    return [f"--{name}={text(value)}" for name, value in parameters.items()]


class Substitution:
    """Values for the placeholders of one trial; an unknown placeholder raises KeyError."""

    def __init__(self, parameters: Mapping[str, Scalar], checkpoint: str | None) -> None:
        self._args = arguments(parameters)
        self._words = {f"params.{name}": text(value) for name, value in parameters.items()}
        self._words["args"] = " ".join(map(shlex.quote, self._args))
        if checkpoint is not None:
            self._words["checkpoint"] = checkpoint

    def string(self, given: str) -> str:
        """Return the string with its placeholders replaced."""
        return _PLACEHOLDER.sub(lambda match: self._words[match[1]], given)

    def command(self, given: Sequence[str]) -> list[str]:
        """Return the command line with its placeholders replaced.

        A word `$(podium.args)` becomes one word for each parameter; inside a word the parameters are quoted.
        """
        words: list[str] = []
        for word in given:
            words += self._args if word == ARGS else [self.string(word)]
        return words

    def environment(self, given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the variables with the placeholders in their values replaced."""
        return [self._variable(dict(variable)) for variable in given]

    def _variable(self, variable: dict[str, Any]) -> dict[str, Any]:
        if isinstance(variable.get("value"), str):
            variable["value"] = self.string(variable["value"])
        return variable
