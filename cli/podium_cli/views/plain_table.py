"""Plain tables for terminals and pipes: a line of headings, then a line for each row, as kubectl prints them."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

WRAPPING = ("PARAMETERS", "WHY")  # columns whose cells may take several lines on a terminal


def plain_table(*heads: str) -> Table:
    """Return an empty table with these headings."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(Text(head), no_wrap=head not in WRAPPING)
    return table
