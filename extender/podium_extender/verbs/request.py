"""Parser of the requests of filter and prioritize.

kube-scheduler writes every request in the form `{"Pod":...,"Nodes":null,"NodeNames":["a","b"]}`. Its request to
prioritize contains the same pod and the names from the response of filter. Therefore a body of that form is cut in two:
the pod and the names. A part that equals the last one is not parsed again. With 5,000 names that saves most of the
work. Any other body is parsed as a whole, with the same result (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from podium_core.schema.pod import Pod
from podium_extender.verbs.wire import ExtenderArgs, NodeList, parse

_START = b'{"Pod":'
_BETWEEN = b',"Nodes":null,"NodeNames":["'
_END = b'"]}'
_COMMA = '","'
_QUOTE = ord('"')
_SPACE = 0x20  # a string of JSON must not contain characters below it


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request of filter or prioritize.

    `nodes` holds the node objects of a request in the full form; None: the request contains names. `names_json` is the
    list of names as JSON that may be sent back unchanged; None: it has to be written.
    """

    pod: Pod
    names: tuple[str, ...]
    nodes: NodeList | None = None
    names_json: bytes | None = None


class RequestParser:
    """A parser that remembers the last request and the names of the response to it."""

    def __init__(self) -> None:
        self._pod: tuple[bytes, Pod] | None = None
        self._names: list[tuple[bytes, tuple[str, ...]]] = []

    def parse(self, body: bytes) -> NodeRequest:
        """Return the request; raises RequestError.

        Text before the first `_BETWEEN` is a whole pod or invalid JSON, so it cannot end inside a string.
        """
        at = body.find(_BETWEEN)
        # the quote of `_END` must not be that of `_BETWEEN`
        if at >= 0 and body.startswith(_START) and body.endswith(_END, at + len(_BETWEEN)):
            names = self._parse_names(body[at + len(_BETWEEN) - 2 : -1])
            pod = self._parse_pod(body[len(_START) : at]) if names is not None else None
            if names is not None and pod is not None:
                return NodeRequest(pod, names[1], names_json=names[0])
        return parse_whole(body)

    def write_names(self, names: tuple[str, ...]) -> bytes:
        """Return the JSON of names of the last request, for its response.

        They are remembered: the next request contains them if it is about the same pod.
        """
        names_json = b'["%b"]' % _COMMA.join(names).encode() if names else b"[]"
        self._names = [*self._names[:1], (names_json, names)]
        return names_json

    def _parse_names(self, names_json: bytes) -> tuple[bytes, tuple[str, ...]] | None:
        """Parse `["a","b"]`; return None if it contains white space, escapes or non-ASCII characters.

        Valid names of nodes contain none of them.
        """
        for known in self._names:
            if known[0] == names_json:
                return known
        inner = names_json[2:-2]
        characters = np.frombuffer(inner, np.uint8)
        if not inner.isascii() or b"\\" in inner or (inner and characters.min() < _SPACE):
            return None
        names = tuple(inner.decode().split(_COMMA))
        if np.count_nonzero(characters == _QUOTE) != 2 * (len(names) - 1):
            return None
        self._names = [(names_json, names)]
        return self._names[0]

    def _parse_pod(self, text: bytes) -> Pod | None:
        if self._pod is None or self._pod[0] != text:
            try:
                self._pod = text, Pod.model_validate_json(text)
            except ValidationError:  # parsing the whole body reports the error
                return None
        return self._pod[1]


def parse_whole(body: bytes) -> NodeRequest:
    """Parse a request of any form; raises RequestError."""
    args = parse(body, ExtenderArgs)
    return NodeRequest(args.pod, tuple(args.names), args.nodes if args.node_names is None else None)
