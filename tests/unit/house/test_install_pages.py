"""Each values file of the chart has a page with everything that an installation needs, and says what was tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "how-to"
FILES = sorted((ROOT / "charts" / "podium" / "values").glob("*.yaml"))
PARTS = ["Prerequisites", "Install", "Verify", "Uninstall", "What was tried", "Sources"]
COMMANDS = (
    "helm install podium charts/podium --namespace podium-system -f charts/podium/values/{}.yaml",
    "pod-security.kubernetes.io/enforce=privileged",
    "podium doctor\n",
    "helm test podium --namespace podium-system",
    "helm uninstall podium --namespace podium-system",
)


def page_of(file: Path) -> Path:
    """Return the page that the first comment of a values file names."""
    names: list[str] = re.findall(r"docs/how-to/(install-[a-z0-9-]+\.md)", file.read_text())
    assert len(names) == 1, f"{file.name} must name its page in docs/how-to once"
    return PAGES / names[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_values_file_has_a_complete_page(file: Path) -> None:
    text = page_of(file).read_text()
    assert re.findall("^## (.*)$", text, re.MULTILINE) == PARTS
    assert all(command.format(file.stem) in text for command in COMMANDS)
    tried = text.partition("## What was tried\n")[2].partition("\n## ")[0]
    assert "dry run" in tried, "the page says how far the platform was tried"
    sources = text.partition("## Sources\n")[2]
    numbers = {int(number) for number in re.findall(r"^(\d+)\. .*https://", sources, re.MULTILINE)}
    assert {int(number) for number in re.findall(r" \[(\d+)\]", text.partition("## Sources\n")[0])} <= numbers
    assert len(numbers) >= 2


def test_every_page_of_a_platform_has_values_and_is_listed() -> None:
    pages = {page_of(file) for file in FILES}
    assert {page for page in PAGES.glob("install-*.md") if "values/" in page.read_text()} == pages
    for list_of_pages in (PAGES / "install.md", PAGES / "index.md", ROOT / "docs/reference/supported-nodes.md"):
        assert all(page.name in list_of_pages.read_text() for page in pages), list_of_pages
