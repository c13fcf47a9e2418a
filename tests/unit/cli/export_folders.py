"""Searches for the tests of `podium export`: folders of objects, and trials with hostile texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podium_cli.samples import search_at

HOSTILE = "../../x\n\x1b[31m=cmd|' /C calc'!A0\u202e<script>"
Objects = list[dict[str, Any]]


def saved(folder: Path, objects: Objects) -> Path:
    """Write the objects of a search to a folder, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(objects):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return folder


def trials_of(objects: Objects) -> Objects:
    """Return the trials among the objects."""
    return [one for one in objects if one["kind"] == "HyperParamTrial"]


def job_of(objects: Objects) -> dict[str, Any]:
    """Return the job among the objects."""
    return next(one for one in objects if one["kind"] == "HyperParamJob")


def hostile_search() -> Objects:
    """Return a finished search whose names, texts and values are chosen by an adversary."""
    objects = search_at(600.0)
    job_of(objects)["spec"]["objective"]["metric"] = HOSTILE
    first, second, third, fourth, *_ = trials_of(objects)
    first["metadata"]["name"] = HOSTILE
    second["metadata"]["name"] = ".."
    third["metadata"]["name"] = "\ud800" + "a" * 5000
    fourth["metadata"]["name"] = "/etc/passwd"
    first["spec"]["parameters"] |= {"activation": HOSTILE, "width": int("9" * 400)}
    first["status"]["message"] = HOSTILE * 1000
    first["status"]["curve"]["points"][3] |= {"value": -1.7976931348623157e308}
    second["status"]["curve"]["points"][0] |= {"time": 1e300}
    second["status"]["curve"]["points"][-1] |= {"step": 1e300, "value": 1e200}
    second["spec"]["number"] = int("9" * 400)
    return objects


def files_below(folder: Path) -> set[Path]:
    """Return every file and folder below this one, relative to it."""
    return {path.relative_to(folder) for path in folder.rglob("*")}
