"""Check the documentation: commands exist, jobs are accepted, links lead somewhere, and marked blocks run."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.doctor.check_table import NEWEST, OLDEST
from podium_cli.exit_codes import Exit
from podium_core.policies.registry import _TABLE, NAMES
from podium_core.schema.manifests import parse_manifests
from podium_core.schema.validation import problems

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
PROJECT = [ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
RUNNABLE = [page for page in PAGES if re.search("^<!-- runnable -->$", page.read_text(), re.MULTILINE)]
GENERATED = {"hyperparamjob.md", "hyperparamtrial.md", "gpunode.md", "reasons.md", "doctor.md"}
# written as lists of pages, not as prose
CONCEPTS = sorted(path for path in (DOCS / "explanation").glob("*.md") if path.name != "index.md")
SIMULATION = [DOCS / "how-to" / "simulate-a-cluster.md", DOCS / "how-to" / "forecast-a-search.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return each distinct `podium ...` of all pages, up to its first placeholder or option."""
    distinct = set()
    for page in PAGES:
        for text in re.findall(r"(?:^|`)(podium(?: [a-z]+(?:-[a-z]+)*){1,2})\b", page.read_text(), re.MULTILINE):
            distinct.add(text)
    return sorted(distinct)


def heading_ids(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?)\s*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z0-9-]+)", page.read_text()))
    for block in blocks(page, "sh"):
        named |= set(re.findall(r"^ *make ([a-z0-9-]+)", block, re.MULTILINE))
    assert named <= TARGETS, f"no such target: {sorted(named - TARGETS)}"


@pytest.mark.parametrize("page", [*PAGES, *PROJECT], ids=ids)
def test_link_targets_exist(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`(?!\])", "", page.read_text())  # regular expressions in code look like links
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", prose):
        path = (page.parent / target) if target else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            assert anchor in heading_ids(path), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_jobs_in_yaml_blocks_are_accepted(page: Path) -> None:
    for block in blocks(page, "yaml"):
        for manifest in parse_manifests(block, page.name):
            if manifest.get("kind") == "HyperParamJob":
                assert problems(manifest) == ()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_python_blocks_can_be_parsed(page: Path) -> None:
    for block in blocks(page, "python"):
        try:
            ast.parse(block)
        except SyntaxError:  # an entry of a table
            assert any(parses(text) for text in (f"{{{block}}}", f"[{block}]")), block


def parses(text: str) -> bool:
    try:
        return bool(ast.parse(text))
    except SyntaxError:
        return False


@pytest.mark.parametrize("command", commands())
def test_podium_commands_have_help(command: str) -> None:
    words = shlex.split(command)[1:]
    # `podium watch vit`: the second word is a name
    assert any(has_help(words[:depth]) for depth in (len(words), 1)), f"`{command}` is not a command"


def has_help(words: list[str]) -> bool:
    """Return whether the command line accepts these words with --help."""
    return main.run([*words, "--help"]) is Exit.OK


def test_an_unknown_command_has_no_help() -> None:
    assert not has_help(["nonsense"])
    assert not has_help(["explain", "nonsense"])


@pytest.mark.parametrize("page", RUNNABLE, ids=ids)
def test_marked_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `podium` command of a block after `<!-- runnable -->` succeeds, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page, "yaml"):
        if "kind: HyperParamJob" in block:
            (tmp_path / "search.yaml").write_text(block)
    marked = re.findall(r"<!-- runnable -->\n+```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in marked for line in block.splitlines()]
    assert lines
    for words in lines:
        assert words[0] == "podium"
        assert main.run(words[1:]) is Exit.OK, shlex.join(words)


@pytest.mark.parametrize("page", SIMULATION, ids=ids)
def test_commands_of_the_simulation_pages_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [shlex.split(line) for block in blocks(page, "sh") for line in block.splitlines()]
    assert len(lines) >= 3
    for words in lines:
        assert words[0] == "podium"
        assert main.run(words[1:]) is Exit.OK, shlex.join(words)
    assert capsys.readouterr().out.strip()


def test_every_option_of_the_simulation_pages_exists(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [*SIMULATION, DOCS / "explanation" / "simulation.md", DOCS / "reference" / "curve-files.md"]
    named = {option for page in pages for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text())}
    known = ""
    for command in ("simulate", "plan", "export"):
        assert main.run([command, "--help"]) is Exit.OK
        known += capsys.readouterr().out
    assert {option for option in named if option not in known} == set()


@pytest.mark.parametrize("page", CONCEPTS, ids=ids)
def test_explanation_pages_have_a_picture(page: Path) -> None:
    assert "```mermaid\n" in page.read_text()


@pytest.mark.parametrize("page", [*PAGES, *PROJECT], ids=ids)
def test_table_cells_and_paragraphs_are_short(page: Path) -> None:
    if page.name in GENERATED:
        pytest.skip("generated from other files")
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [re.sub(r"\]\([^)]*\)", "]", cell) for cell in re.split(r"(?<!\\)\|", line)]
            assert max(map(len, cells)) <= 200, f"{page.name}: a table cell is too long: {line[:80]}"
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*|#]|\d+\. )", text):
        shown = re.sub(r"\]\([^)]*\)", "]", paragraph)
        assert len(shown) <= 5 * 140, f"{page.name}: a paragraph has more than five lines: {paragraph[:80]}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_changelog_has_no_duplicates() -> None:
    """A merge can bring back text that another branch replaced, as a second heading or an older wording of a line."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for version in text.split("\n## ")[1:]:
        headings = re.findall(r"^### .*", version, re.MULTILINE)
        lines = [line[:100] for line in re.findall(r"^- .*", version, re.MULTILINE)]
        assert sorted(headings) == sorted(set(headings))
        assert sorted(lines) == sorted(set(lines))


def test_the_reference_of_the_checks_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "doctor_checks.py"), "--check"], timeout=60, check=True)


def test_the_page_of_versions_names_those_that_the_doctor_accepts() -> None:
    text = (DOCS / "reference" / "kubernetes-versions.md").read_text()
    assert f"Podium supports Kubernetes {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}." in text


def test_the_reference_of_reasons_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "reasons.py"), "--check"], timeout=60, check=True)


def test_every_policy_and_its_settings_are_described() -> None:
    page = (DOCS / "reference" / "policies.md").read_text()
    for name in NAMES:
        assert f"| `{name}`" in page
        section = re.split(
            r"^\| `(?!" + name + r"`)", page.split("## Settings")[1].partition(f"| `{name}`")[2], flags=re.M
        )
        for setting in _TABLE[name].settings:
            assert f"`{setting}`" in section[0], f"{name}: {setting}"


def test_every_helm_value_is_described() -> None:
    page = (DOCS / "reference" / "helm-values.md").read_text()
    values = (ROOT / "charts" / "podium" / "values.yaml").read_text()
    section, missing = "", []
    for line in values.splitlines():
        if match := re.match(r"^(  )?([A-Za-z]+):", line):
            section = section if match[1] else match[2]
            if not re.search(rf"\b{match[2]}\b", page):
                missing.append(f"{section}.{match[2]}" if match[1] else match[2])
    assert missing == []


def test_the_shell_lines_of_the_operations_page_thaw_a_node(tmp_path: Path) -> None:
    """docs/how-to/operate.md's shell, on files that look like both cgroup versions."""
    script = blocks(DOCS / "how-to" / "operate.md", "sh")[0].replace("/sys/fs/cgroup", str(tmp_path))
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


def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    missing = [name for name in ("sphinx", "myst_parser", "furo", "latex2mathml") if not importlib.util.find_spec(name)]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}; run `make setup`")
    command = [sys.executable, str(ROOT / "tools" / "docs.py"), str(tmp_path / "site")]
    done = subprocess.run(command, timeout=600, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        html = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)\"", html)
        loaded += re.findall(
            r"<link\b[^>]*rel=\"(?:stylesheet|preload|icon|modulepreload)\"[^>]*href=\"([^\"]+)\"", html
        )
        assert not [address for address in loaded if re.match(r"(?:[a-z]+:)?//", address)], page
    for sheet in (tmp_path / "site" / "_static").rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text()), sheet
