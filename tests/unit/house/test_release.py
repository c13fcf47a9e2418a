"""What a release states (tools/releasing): one version everywhere, the image's digest, CRDs, notes and provenance."""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

chart = importlib.import_module("releasing.chart")
checks = importlib.import_module("releasing.checks")
provenance = importlib.import_module("releasing.provenance")
release = importlib.import_module("release")

DIGEST = f"sha256:{'ab' * 32}"
REPOSITORY = "registry.example:5000/team/podium"
STATED = ("sdk/podium/__init__.py", "charts/podium/Chart.yaml", "CHANGELOG.md", *checks.PAGES_WITH_VERSION)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the files that state the version."""
    for name in STATED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_version_is_the_same_everywhere() -> None:
    version = checks.check_version(ROOT)
    assert checks.check_version(ROOT, f"v{version}") == version
    for page in checks.PAGES_WITH_VERSION:
        assert f"VERSION={version}" in (ROOT / page).read_text()


@pytest.mark.parametrize("name", STATED)
def test_another_version_in_one_of_the_files_is_refused(checkout: Path, name: str) -> None:
    version = checks.check_version(checkout)
    replace(checkout / name, version, "9.8.7")
    # the version of the package decides, so the next file is wrong if that one changes
    wrong = STATED[1] if name == STATED[0] else name
    with pytest.raises(ValueError, match=re.escape(wrong)):
        checks.check_version(checkout)


@pytest.mark.parametrize("tag", ["v9.8.7", "release", "main"])
def test_a_tag_of_another_version_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match=f"the tag {tag} is not v"):
        checks.check_version(ROOT, tag)


def test_no_other_file_copies_the_version() -> None:
    """These kinds of files could state a version for people or programs, besides those that are checked."""
    version = checks.check_version(ROOT)
    stated = re.compile(rf"(?i)\bversion\b\W{{0,4}}v?{re.escape(version)}\b")
    pages = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.yaml")]
    copies = {str(path.relative_to(ROOT)) for path in pages if path.is_file() and stated.search(path.read_text())}
    # the benchmark page is about figures of that version
    assert copies - {*STATED, "docs/benchmarks/other-tools.md"} == set()


def test_the_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- next\n\n## 2.0.0 - 2026-01-02\n\n### Added\n\n- a\n\n"
    text += "## 1.0.0 - 2025-01-01\n\n"
    assert checks.release_notes(text, "2.0.0") == "### Added\n\n- a\n"
    for version in ("1.0.0", "3.0.0"):
        with pytest.raises(ValueError, match=f"has no entries for {re.escape(version)}"):
            checks.release_notes(text, version)
    assert checks.release_notes((ROOT / "CHANGELOG.md").read_text(), checks.check_version(ROOT))


def test_changes_that_are_in_no_commit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a git checkout"):
        checks.commit(tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, timeout=30)
    head = checks.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", head.sha)
    assert head.changed == 0
    (tmp_path / "file").write_text("2")
    with pytest.raises(ValueError, match=r"1 files differ from the commit: file\. Commit them, or set UNCOMMITTED=1"):
        checks.commit(tmp_path)
    assert checks.commit(tmp_path, uncommitted=True) == checks.Commit(head.sha, 1)


def test_the_staged_chart_has_the_image_and_nothing_else_has_changed(tmp_path: Path) -> None:
    copy = chart.stage(ROOT / "charts/podium", tmp_path, REPOSITORY, DIGEST)
    before, after = ((folder / "values.yaml").read_text() for folder in (ROOT / "charts/podium", copy))
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.partition("#")[0].rstrip() for line in changed] == [
        f"  repository: {REPOSITORY}",
        f"  digest: {DIGEST}",
    ]
    values = yaml.safe_load(before)
    values["image"] |= {"repository": REPOSITORY, "digest": DIGEST}
    assert yaml.safe_load(after) == values
    for path in (ROOT / "charts/podium").rglob("*"):
        if path.is_file() and path.name != "values.yaml":
            assert (copy / path.relative_to(ROOT / "charts/podium")).read_bytes() == path.read_bytes()


def test_values_without_the_keys_of_the_image_are_refused() -> None:
    with pytest.raises(ValueError, match=r"has no image\.digest"):
        chart.pin("\nimage:\n  repository: a\nother:\n  digest: b\n", REPOSITORY, DIGEST)


@pytest.mark.parametrize(
    "name", ["podium", "registry.example/Podium", "registry.example/podium:1", "a b/c", "", "x/y@z"]
)
def test_an_invalid_repository_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="REPOSITORY must be HOST"):
        chart.check_repository(name)
    for good in (REPOSITORY, release.LOCAL_REPOSITORY, "registry.example/a-b/c_d"):
        assert chart.check_repository(good) == good


def test_the_crd_bundle_has_every_crd_once() -> None:
    documents = list(yaml.safe_load_all(chart.crd_bundle(ROOT / "charts/podium/crds")))
    files = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "charts/podium/crds").glob("*.yaml"))]
    assert documents == files
    assert len(documents) == 4
    with pytest.raises(ValueError, match="has no CRD; run `make generate`"):
        chart.crd_bundle(ROOT / "docs")


def test_the_statement_names_every_file_the_image_and_the_commit(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tgz"):
        (tmp_path / name).write_text(name)
    source, parameters = "git+https://code.example/podium", {"platforms": ["linux/amd64"]}
    build = provenance.Build(checks.Commit("c" * 40, 0), source, parameters, {"helm": "v3"}, (ROOT / "Dockerfile",))
    document = provenance.statement([*tmp_path.iterdir()], ("registry.example/podium:1", DIGEST), build)
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://slsa.dev/provenance/v1"
    assert document["subject"] == [
        *(
            {"name": name, "digest": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}
            for name in ("a.tgz", "b.whl")
        ),
        {"name": "registry.example/podium:1", "digest": {"sha256": "ab" * 32}},
    ]
    definition = document["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == parameters
    assert definition["internalParameters"] == {"tools": {"helm": "v3"}}
    checkout, dockerfile = definition["resolvedDependencies"]
    assert checkout == {"name": "source", "uri": source, "digest": {"gitCommit": "c" * 40}}
    assert dockerfile["digest"]["sha256"] == hashlib.sha256((ROOT / "Dockerfile").read_bytes()).hexdigest()
    assert document["predicate"]["runDetails"]["builder"]["id"] == provenance.LOCAL_BUILDER
    trial = provenance.Build(checks.Commit("c" * 40, 2), "", parameters, {}, ())
    document = provenance.statement([], ("podium:1", DIGEST), trial)
    assert document["predicate"]["buildDefinition"]["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": "c" * 40}, "annotations": {"changedFiles": 2}}
    ]


def test_the_builder_is_the_workflow_if_there_is_one() -> None:
    environment = {"GITHUB_SERVER_URL": "https://code.example", "GITHUB_WORKFLOW_REF": "a/b/.github/workflows/r.yml@v1"}
    assert release.workflow(environment) == "https://code.example/a/b/.github/workflows/r.yml@v1"
    assert release.workflow({}) == ""


def test_a_wrong_tag_ends_the_command_with_one_line() -> None:
    command = [sys.executable, str(ROOT / "tools/release.py"), "--tag=v0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("release: the tag v0.0.0 is not v")
    assert done.stderr.count("\n") == 1
