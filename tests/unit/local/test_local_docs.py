"""The commands of the pages about local mode run, on the examples with fewer and shorter trials."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from podium_cli import main
from podium_cli.exit_codes import Exit

ROOT = Path(__file__).parents[3]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorials" / "search-on-your-machine.md",
    ROOT / "docs" / "how-to" / "run-without-a-cluster.md",
)
SHORTER = {"max: 12": "max: 2", "maxSteps: 40": "maxSteps: 1", "--epochs=40": "--epochs=1, --work=1"}
SCRIPT = """
import json, sys
words = dict(word[2:].split("=") for word in sys.argv[1:])
print(json.dumps({"epoch": 1, "val_acc": float(words.get("lr") or words["rate"])}))
"""


def commands(page: Path) -> list[str]:
    """Return the commands of a page that run a search or read its folder."""
    text = page.read_text()
    found = re.findall(r"^(podium (?:run|simulate|summary|report) .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    found += re.findall(r"`(podium run [^`]*?yaml[^`]*)`", text)
    local = [one for one in dict.fromkeys(found) if " run " in one or "podium-runs" in one]
    return [one for one in local if "JOB.yaml" not in one]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_the_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    job = tmp_path / "examples" / "digits" / "job.yaml"
    text = job.read_text()
    for long, short in SHORTER.items():
        assert long in text
        text = text.replace(long, short)
    job.write_text(text)
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "search.yaml").write_text(text.replace("name: digits", "name: vit", 1))
    lines = commands(page)
    assert lines
    for line in lines:
        if "search.yaml" in line:
            shutil.rmtree(tmp_path / "podium-runs", ignore_errors=True)  # each way to name a command is another search
        words = shlex.split(line)
        assert main.run(words[1:]) is Exit.OK, line
