"""What filter and prioritize were asked, read from the body of a request. Used by `verbs`.

kube-scheduler writes every question alike, `{"Pod":...,"Nodes":null,"NodeNames":["a","b"]}`, and asks prioritize with
the very pod and the very names that filter has just answered. So a body of that form is cut in two, the pod is parsed
by itself, and what is the same as the last time is not read again: of 5,000 names that is most of the work. Any other
body is parsed as a whole, and means the same (a test compares).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from podium_core.schema.pod import Pod
from podium_extender.server.limits import parse
from podium_extender.verbs.wire import ExtenderArgs, NodeList

_START = b'{"Pod":'
_BETWEEN = b',"Nodes":null,"NodeNames":["'
_END = b'"]}'
_COMMA = '","'
_SPACE = 0x20  # what is below it may not stand in a string of JSON


@dataclass(frozen=True, slots=True)
class Asked:
    """`nodes`: as they were sent in the full form; None: the question was by names. `listed`: the list of names as JSON
    that may be sent back as it is; None: it has to be written.
    """

    pod: Pod
    names: tuple[str, ...]
    nodes: NodeList | None = None
    listed: bytes | None = None


class Reader:
    """Remembers one question, and the names that were answered to it."""

    def __init__(self) -> None:
        self._pod: tuple[bytes, Pod] | None = None
        self._names: list[tuple[bytes, tuple[str, ...]]] = []

    def read(self, body: bytes) -> Asked:
        """Raises RequestError."""
        return self._cut(body) or _whole(body)

    def answered(self, listed: bytes, names: tuple[str, ...]) -> None:
        """The next question is about these, if it is the same scheduler's about the same pod."""
        self._names = [*self._names[:1], (listed, names)]

    def _cut(self, body: bytes) -> Asked | None:
        """None: it is not of the form that is known. What comes before the first `_BETWEEN` is a whole pod or no JSON,
        so it cannot be in the middle of a string.
        """
        at = body.find(_BETWEEN)
        # the quote of `_END` must not be that of `_BETWEEN`
        if at < 0 or not body.startswith(_START) or not body.endswith(_END, at + len(_BETWEEN)):
            return None
        names = self._known(body[at + len(_BETWEEN) - 2 : -1])
        pod = self._same(body[len(_START) : at]) if names is not None else None
        return None if names is None or pod is None else Asked(pod, names[1], listed=names[0])

    def _known(self, listed: bytes) -> tuple[bytes, tuple[str, ...]] | None:
        for one in self._names:
            if one[0] == listed:
                return one
        names = _names_in(listed)
        if names is None:
            return None
        self._names = [(listed, names)]
        return self._names[0]

    def _same(self, text: bytes) -> Pod | None:
        if self._pod is None or self._pod[0] != text:
            try:
                self._pod = text, Pod.model_validate_json(text)
            except ValidationError:  # it is said of the whole body what is wrong
                return None
        return self._pod[1]


def write_names(names: tuple[str, ...]) -> bytes:
    """The JSON of names that came out of such a list."""
    return b'["%b"]' % _COMMA.join(names).encode() if names else b"[]"


def _names_in(listed: bytes) -> tuple[str, ...] | None:
    """`["a","b"]` without white space, escapes and characters beyond ASCII, as all names of nodes are; else None."""
    inner = listed[2:-2]
    if not inner.isascii() or b"\\" in inner or (inner and np.frombuffer(inner, np.uint8).min() < _SPACE):
        return None
    names = inner.decode().split(_COMMA)
    return tuple(names) if inner.count(b'"') == 2 * (len(names) - 1) else None


def _whole(body: bytes) -> Asked:
    args = parse(body, ExtenderArgs)
    return Asked(args.pod, tuple(args.names), args.nodes if args.node_names is None else None)
