"""The writing style, as far as a program can check it: `prose_rules` has the rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from prose_rules import Finding, is_imperative, marker_words, summaries

ROOT = Path(__file__).parents[3]
# folders whose text is checked for marker words; their Python also for the summaries of its docstrings
FOLDERS = (
    *(
        "core",
        "simulator",
        "searchers",
        "suspension",
        "local",
        "views",
        "dashboard",
        "operator",
        "extender",
        "agent",
        "cli",
        "api",
        "cluster",
        "optimisers",
        "realtime",
        "devcluster",
        "tools",
        "examples",
        "sdk",
        "benchmarks",
    ),
)
# the names of tests are sentences of their own, so only marker words are checked
TEXTS = ("tests", "charts", "crds", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile")
SUFFIXES = {".py", ".md", ".c", ".h", ".sh", ".yaml", ".tpl", ".txt", ".j2"}
OTHER = {"build", "results", "data", "snapshots", Path(__file__).name}  # generated, recorded, or this file's examples


def texts(*places: str) -> list[Path]:
    """Return the files of these folders that people read and write."""
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in SUFFIXES]
    return sorted(file for file in found if "_pb2" not in file.name and not OTHER.intersection(file.parts))


def shown(file: Path, findings: list[Finding]) -> list[str]:
    return [f"{file.relative_to(ROOT)}:{finding.line}: {finding.text}" for finding in findings]


@pytest.mark.parametrize("folder", [*FOLDERS, *TEXTS])
def test_no_marker_words(folder: str) -> None:
    files = texts(folder)
    assert files
    assert [line for file in files for line in shown(file, list(marker_words(file)))] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_public_docstrings_start_with_a_short_imperative_sentence(folder: str) -> None:
    files = [file for file in texts(folder) if file.suffix == ".py"]
    assert [line for file in files for line in shown(file, list(summaries(file)))] == []


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ("Return the GPUs that can run this trial.", True),
        ("Process one line.", True),
        ("Returns the GPUs.", False),
        ("The GPUs of a node.", False),
        ("Whether a trial fits.", False),
        ("", False),
    ],
)
def test_imperatives_are_recognised(summary: str, expected: bool) -> None:
    assert is_imperative(summary) is expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# somebody waits\nx = 1  # plain", 1),
        ("# users who create pods; there is no cluster; the cost is no larger", 0),
        ('f"{x} goes on"', 1),
        ("# names that are no files; there are no others; they are no longer there", 1),
        ("whom = 1", 0),  # names of variables are not prose
    ],
)
def test_markers_are_found_in_comments_and_strings_only(text: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)
    assert len(list(marker_words(file))) == count


def test_summaries_of_private_names_are_free(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('def _helper():\n    """the helper"""\n\n\ndef public():\n    """the public one"""\n')
    assert [finding.line for finding in summaries(file)] == [5]


@pytest.mark.parametrize(
    ("summary", "count"),
    [("Return its pod.", 1), ("Return whether it runs.", 1), ("Return the trial and its pod.", 0)],
)
def test_a_pronoun_needs_a_noun_before_it(summary: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f'def public():\n    """{summary}"""\n')
    assert len(list(summaries(file))) == count
