"""Result files of benchmarks whose parts are run one by one: one section a part, so that a part can be repeated alone.

A section begins with a comment that holds its part's name and result; what ran is replaced, the other sections stay.
Used by `realtime_report.py` and `bench_gpu.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SECTION = re.compile(r"<!-- part (\w+) (\{[^\n]*\}) -->\n(.*?)(?=<!-- part |<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """`result`: of RESULT's json; `text`: markdown that begins with the command and the machine."""

    result: dict[str, Any]
    text: str


def read(path: Path) -> dict[str, Section]:
    """By part; empty where there is no file. ValueError where there is one without sections, written by hand or before
    there were any: it would be overwritten.
    """
    if not path.exists():
        return {}
    found = {
        name: Section(json.loads(result), text.strip()) for name, result, text in _SECTION.findall(path.read_text())
    }
    if not found:
        raise ValueError(f"{path}: no sections of parts; move it away, it would be overwritten")
    return found


def write(path: Path, head: Iterable[str], sections: Mapping[str, Section], order: Sequence[str]) -> str:
    """Writes `head` and the sections in that order; the RESULT line over all parts that have one."""
    results = {name: sections[name].result for name in order if name in sections}
    last = f"RESULT {json.dumps(results)}"
    parts = [f"<!-- part {name} {json.dumps(results[name])} -->\n\n{sections[name].text.strip()}\n" for name in results]
    path.write_text("\n".join([*head, *parts, "<!-- end -->", "```", last, "```", ""]))
    return last
