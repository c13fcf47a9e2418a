"""Keeps generated objects in files, as runs of `podium run` do: a folder for each search, a file for each object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.dashboard.objects import Manifest
from podium_local.store import JOB, MACHINE, OBJECTS, TRIAL


class ObjectFolder:
    """A folder of runs; each file is replaced in one step."""

    def __init__(self, folder: Path, objects: Mapping[str, Sequence[Manifest]]) -> None:
        """Write the objects. All GPU nodes belong to the first search, since a node's file has one name."""
        self._folder = folder
        for job in objects["hyperparamjobs"]:
            self._write(_name(job), JOB, job)
        self.change(objects["hyperparamtrials"])
        for number, node in enumerate(objects["gpunodes"]):
            self._write(_name(objects["hyperparamjobs"][0]), f"{number}-{MACHINE}", node)

    def change(self, changed: Sequence[Manifest]) -> None:
        """Write changed trials."""
        for one in changed:
            self._write(one["spec"]["job"], f"{TRIAL}{one['spec']['number']}.json", one)

    def _write(self, search: str, name: str, manifest: Manifest) -> None:
        place = self._folder / search / OBJECTS
        place.mkdir(parents=True, exist_ok=True)
        fresh = place / f"{name}.new"
        fresh.write_text(json.dumps(manifest))
        fresh.replace(place / name)


def _name(job: Manifest) -> str:
    name: str = job["metadata"]["name"]
    return name
