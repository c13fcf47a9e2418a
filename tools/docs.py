"""Build the documentation site: `python tools/docs.py [OUTPUT]`; used by `make docs` and a unit test.

The script stages the pages of docs/, the benchmark results and the READMEs of the examples in one folder, so that the
site contains every page that the documentation links to. Links to source files become plain text, unless
PODIUM_DOCS_REPOSITORY names the address at which the repository is published. The build is strict: a link to a page or
a heading that does not exist, and a page that no index page lists, end it with status 1.

`python tools/docs.py --mermaid` fetches Mermaid by npm; later builds then draw the diagrams. Without it the site shows
their source (code hosts draw them by themselves).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".venv" / "mermaid"
MERMAID = "mermaid@12.3.0"
MERMAID_FILE = "package/dist/mermaid.min.js"
MERMAID_SHA256 = "336df803d87a38b70a01e736e666c8f7601d2ce42f5e47c8fafe5d721074b9a3"
LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`])*)\]\(([^()\s]+)\)|`[^`]+`")  # or code, which holds no links
PICTURES = {".png", ".svg"}


def pages() -> dict[str, str]:
    """Return the place in the site of each page and picture, by its path in the repository."""
    staged = {}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in {".md", *PICTURES}:
            staged[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    for path in sorted((ROOT / "benchmarks" / "results").iterdir()):
        if path.suffix in {".md", *PICTURES}:
            staged[path.relative_to(ROOT).as_posix()] = f"benchmarks/results/{path.name}"
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        staged[path.relative_to(ROOT).as_posix()] = f"examples/{path.parent.name}.md"
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        if (ROOT / name).is_file():
            staged[name] = f"project/{name.removesuffix('.md').lower()}.md"
    return staged


def resolve(source: str, target: str) -> str:
    """Return the path in the repository to which a page's relative link leads."""
    return os.path.normpath(PurePosixPath(source).parent / target)


def rewrite(source: str, text: str, staged: dict[str, str]) -> str:
    """Return the page's text with each link changed to lead to its place in the site."""
    repository = os.environ.get("PODIUM_DOCS_REPOSITORY", "").rstrip("/")

    def replace(match: re.Match[str]) -> str:
        bang, label, target = match.groups()
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        file = resolve(source, path)
        anchor = f"#{anchor}" if anchor else ""
        if file in staged:
            place = os.path.relpath(staged[file], PurePosixPath(staged[source]).parent)
            return f"{bang}[{label}]({place}{anchor})"
        if not (ROOT / file).exists():
            return match[0]  # Sphinx reports it
        return f"[{label}]({repository}/blob/main/{file}{anchor})" if repository else label

    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.lstrip().startswith("```") else LINK.sub(replace, part) for part in parts)


def contents(place: str, text: str, staged: dict[str, str]) -> str:
    """Return the hidden table of contents of an index page: the pages it links to, in their order."""
    known = set(staged.values())
    entries: list[str] = []
    for _, _, target in LINK.findall(text):
        if not target:
            continue
        path = os.path.normpath(PurePosixPath(place).parent / target.partition("#")[0])
        if path in known and path.endswith(".md") and path != place and path not in entries and _is_below(place, path):
            entries.append(path)
    lines = "\n".join("/" + entry.removesuffix(".md") for entry in entries)
    return f"\n\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"


def _is_below(index: str, page: str) -> bool:
    """Return whether an index page lists this page: its own folder's pages, and the index pages one folder below."""
    folder, parent = PurePosixPath(index).parent, PurePosixPath(page).parent
    return parent == folder or (parent.parent == folder and page.endswith("/index.md")) or parent.name == "project"


def stage(folder: Path) -> None:
    """Write the site's sources into an empty folder."""
    staged = pages()
    for source, place in staged.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.endswith(".md"):
            shutil.copyfile(ROOT / source, target)
            continue
        text = rewrite(source, (ROOT / source).read_text(), staged)
        if target.name == "index.md":
            text += contents(place, text, staged)
        # pages from elsewhere need no place in the navigation; those of docs/ do
        target.write_text(text if source.startswith("docs/") else f"---\norphan: true\n---\n\n{text}")
    shutil.copyfile(ROOT / "docs" / "conf.py", folder / "conf.py")
    shutil.copytree(ROOT / "docs" / "_static", folder / "_static", dirs_exist_ok=True)
    if (CACHE / "mermaid.min.js").is_file():
        shutil.copyfile(CACHE / "mermaid.min.js", folder / "_static" / "mermaid.min.js")


def build(output: Path) -> int:
    """Build the site into `output`, and return the status of Sphinx."""
    sources = output.with_name(output.name + "-sources")
    for folder in (sources, output):
        shutil.rmtree(folder, ignore_errors=True)
    sources.mkdir(parents=True)
    stage(sources)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(sources), str(output)]
    return subprocess.run(command, env={**os.environ, "PODIUM_DOCS_STAGED": "1"}, check=False).returncode


def fetch_mermaid() -> int:
    """Fetch the pinned Mermaid by npm, and check it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "pack", "--silent", MERMAID, "--pack-destination", str(CACHE)], check=True)
    with tarfile.open(next(CACHE.glob("*.tgz"))) as archive:
        member = archive.extractfile(MERMAID_FILE)
        data = member.read() if member else b""
    if hashlib.sha256(data).hexdigest() != MERMAID_SHA256:
        print(f"{MERMAID}: {MERMAID_FILE} does not have the expected SHA-256; nothing was kept", file=sys.stderr)
        return 1
    (CACHE / "mermaid.min.js").write_bytes(data)
    return 0


def main(arguments: list[str]) -> int:
    if arguments == ["--mermaid"]:
        return fetch_mermaid()
    return build(Path(arguments[0] if arguments else ROOT / "build" / "docs").resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
