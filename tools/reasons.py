"""Write docs/reference/reasons.md from tools/reasons.tsv: `python tools/reasons.py`; `--check` only compares.

The table has one line per reason, condition, event and error code: name, meaning, cure, separated by tabs.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tools" / "reasons.tsv"
PAGE = ROOT / "docs" / "reference" / "reasons.md"
HEAD = """<!-- Generated from tools/reasons.tsv by `make generate`: do not edit. -->
# Reasons

Every reason of a phase, condition or event, and every error code of `podium`, with its meaning and what to do. They
appear in `status.reason`, in conditions and events, in logs, and as `podium: Reason: a sentence` on the command line.
"""


def rows() -> list[tuple[str, str, str]]:
    """Return name, meaning and cure of each reason, sorted by name."""
    lines = [line.split("\t") for line in TABLE.read_text().splitlines() if line]
    return sorted(((name, meaning, cure) for name, meaning, cure in lines), key=lambda row: row[0].lower())


def page() -> str:
    """Return the text of the reference page."""
    parts = [HEAD]
    for letter, group in groupby(rows(), key=lambda row: row[0][0].upper()):
        parts.append(f"\n## {letter}\n\n| Reason | Meaning | Cure |\n| --- | --- | --- |\n")
        parts.extend(f"| `{name}` | {meaning} | {cure} |\n" for name, meaning, cure in group)
    return "".join(parts)


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return 0 if PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
