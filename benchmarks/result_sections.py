"""Pages with one section for each part of a benchmark, so that a part can be repeated alone.

A section begins with a comment that holds its part's name and result. A part that ran replaces its section; the other
sections remain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.output import result_line, write_page

_SECTION = re.compile(r"<!-- part (\w+) (\{[^\n]*\}) -->\n(.*?)(?=<!-- part |<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """Section of one part on a page.

    `result`: for the RESULT line; `text`: Markdown that begins with command and machine.
    """

    result: dict[str, Any]
    text: str


def read(path: Path) -> dict[str, Section]:
    """Return the sections of a page by part; empty where the file does not exist.

    Raises ValueError for a file without sections, for example one that was written by hand: it would be overwritten.
    """
    if not path.exists():
        return {}
    sections = {
        name: Section(json.loads(result), text.strip()) for name, result, text in _SECTION.findall(path.read_text())
    }
    if not sections:
        raise ValueError(f"{path}: no sections of parts; move the file away, because it would be overwritten")
    return sections


def write(path: Path, head: Iterable[str], sections: Mapping[str, Section], order: Sequence[str]) -> str:
    """Write `head` and the sections in this order; return the RESULT line.

    The line covers all parts that have a section.
    """
    results = {name: sections[name].result for name in order if name in sections}
    last = result_line(results)
    parts = [f"<!-- part {name} {json.dumps(results[name])} -->\n\n{sections[name].text.strip()}\n" for name in results]
    write_page(path, "\n".join([*head, *parts, "<!-- end -->", "```", last, "```", ""]))
    return last
