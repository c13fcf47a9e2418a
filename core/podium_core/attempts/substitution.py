"""Placeholders that carry values to a container.

`$(podium.args)` and `$(podium.params.lr)` stand for parameters, `$(podium.checkpoint)` for the checkpoint folder, and
`$(podium.metricsPort)` for the port at which the trial serves its page of metrics.

`pod_manifest` uses it. Kubernetes itself ignores `$(...)` with a dot, so the two never conflict.

A trial has no value of an inactive parameter (`when`). An argument that names one is left out, together with an option
before it (`--momentum`, then `$(podium.params.momentum)`). A variable that names one is not set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from podium_core.domain.snapshot import Scalar

ARGS = "$(podium.args)"
PORT = "$(podium.metricsPort)"
_PLACEHOLDER = re.compile(r"\$\(podium\.([A-Za-z0-9_.-]+)\)")
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_OPTION = re.compile(r"--?[A-Za-z][^\s=$]*")  # an option whose value is the next argument


def text(value: Scalar) -> str:
    """Return a value as a command line spells it: true, 3, 0.001, relu. Floats keep every digit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def arguments(parameters: Mapping[str, Scalar]) -> list[str]:
    """Return the parameters as command-line arguments."""
    return [f"--{name}={text(value)}" for name, value in parameters.items()]


def expanded(given: str, variables: Mapping[str, str]) -> str:
    """Return a text as Kubernetes expands it.

    `$(NAME)` becomes a variable's value and `$$` becomes `$`; other text remains.
    """
    return _VARIABLE.sub(lambda match: variables.get(match[1] or "", match[0]) if match[1] else "$", given)


class Substitution:
    """Values for the placeholders of one trial; an unknown placeholder raises KeyError.

    `conditional`: names of the parameters that a trial may lack. `port`: of metrics.source prometheus.
    """

    def __init__(
        self,
        parameters: Mapping[str, Scalar],
        checkpoint: str | None,
        conditional: Collection[str] = (),
        port: int | None = None,
    ) -> None:
        self._args = arguments(parameters)
        self._words = {f"params.{name}": text(value) for name, value in parameters.items()}
        self._words["args"] = " ".join(map(shlex.quote, self._args))
        self._missing = {f"params.{name}" for name in conditional if name not in parameters}
        if checkpoint is not None:
            self._words["checkpoint"] = checkpoint
        if port is not None:
            self._words["metricsPort"] = str(port)

    def string(self, given: str) -> str:
        """Return the string with its placeholders replaced."""
        return _PLACEHOLDER.sub(lambda match: self._words[match[1]], given)

    def command(self, given: Sequence[str]) -> list[str]:
        """Return the command line with its placeholders replaced.

        A word `$(podium.args)` becomes one word for each parameter; inside a word the parameters are quoted.
        """
        words: list[str] = []
        for before, word in pairwise(["", *given]):
            if self._names_inactive(word):
                if _PLACEHOLDER.fullmatch(word) and _OPTION.fullmatch(before):
                    words.pop()
                continue
            words += self._args if word == ARGS else [self.string(word)]
        return words

    def environment(self, given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the variables with the placeholders in their values replaced."""
        return [self._variable(dict(one)) for one in given if not self._names_inactive(one.get("value"))]

    def _variable(self, variable: dict[str, Any]) -> dict[str, Any]:
        if isinstance(variable.get("value"), str):
            variable["value"] = self.string(variable["value"])
        return variable

    def _names_inactive(self, given: Any) -> bool:
        if not self._missing or not isinstance(given, str):
            return False
        return any(match[1] in self._missing for match in _PLACEHOLDER.finditer(given))
