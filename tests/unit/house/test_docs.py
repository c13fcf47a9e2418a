"""What the documentation says can be typed, can be typed: commands exist, jobs are accepted, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from podium_cli.main import parser
from podium_core.schema.manifests import parse_manifests
from podium_core.schema.validation import problems

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Each distinct `podium ...` of all pages, up to its first placeholder or option."""
    found = set()
    for page in PAGES:
        for text in re.findall(r"(?:^|`)(podium(?: [a-z]+){1,2})\b", page.read_text(), re.MULTILINE):
            found.add(text)
    return sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z0-9-]+)`", page.read_text()))
    for block in blocks(page, "sh"):
        named |= set(re.findall(r"^make ([a-z0-9-]+)", block, re.MULTILINE))
    assert named <= TARGETS, f"no such target: {sorted(named - TARGETS)}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`(?!\])", "", page.read_text())  # regular expressions in code look like links
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_jobs_in_yaml_blocks_are_accepted(page: Path) -> None:
    for block in blocks(page, "yaml"):
        for manifest in parse_manifests(block, page.name):
            if manifest.get("kind") == "HyperParamJob":
                assert problems(manifest) == ()


@pytest.mark.parametrize("command", commands())
def test_podium_commands_have_help(command: str) -> None:
    words = shlex.split(command)[1:]
    # `podium watch vit`: the second word is a name
    assert any(has_help(words[:depth]) for depth in (len(words), 1)), f"`{command}` is not a command"


def has_help(words: list[str]) -> bool:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*words, "--help"])
    return ended.value.code == 0


def test_a_word_that_is_no_command_has_no_help() -> None:
    assert not has_help(["nonsense"])
    assert not has_help(["explain", "nonsense"])


def test_the_changelog_says_nothing_twice() -> None:
    """Merges bring back what another branch replaced: a heading that stands twice, a line in an older wording."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in text.split("\n## ")[1:]:
        headings = re.findall(r"^### .*", version, re.MULTILINE)
        lines = [line[:100] for line in re.findall(r"^- .*", version, re.MULTILINE)]
        assert sorted(headings) == sorted(set(headings))
        assert sorted(lines) == sorted(set(lines))


def test_the_last_resort_thaws(tmp_path: Path) -> None:
    """docs/operate.md's lines of shell, on files that look like both cgroup versions."""
    script = blocks(ROOT / "docs" / "operate.md", "sh")[0].replace("/sys/fs/cgroup", str(tmp_path))
    states = {
        "freezer/kubepods/pod1/c/freezer.state": ("FROZEN", "THAWED"),
        "freezer/kubepods/pod1/d/freezer.state": ("THAWED", "THAWED"),
        "freezer/user/e/freezer.state": ("FROZEN", "FROZEN"),
        "kubepods/pod2/f/cgroup.freeze": ("1", "0"),
        "kubepods/pod2/g/cgroup.freeze": ("0", "0"),
    }
    for name, (before, _) in states.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(before + "\n")
    subprocess.run(["bash", "-ec", script], timeout=300, check=True)
    assert {name: (tmp_path / name).read_text().strip() for name in states} == {
        name: after for name, (_, after) in states.items()
    }
