"""The commands of a page of the documentation, for tests that do what the page says."""

from __future__ import annotations

import re
from pathlib import Path


def section(page: Path, title: str) -> list[str]:
    """Return the shell blocks of a section of the page."""
    text = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert text is not None, f"{page} has no section {title}"
    indented = re.findall(r"^( *)```sh\n(.*?)^ *```", text[1], re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in indented]
