"""Objects of searches in files: each file is parsed again only if it has changed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import ManifestError, flattened, parse_manifests
from podium_dashboard.stored_trial import StoredTrial
from podium_local.store import MAX_OBJECT_BYTES

MAX_FILES = 20_000  # of one folder
SUFFIXES = frozenset({".json", ".yaml", ".yml"})
Parsed = HyperParamJob | StoredTrial | GPUNode
PARSERS: Mapping[str, Callable[[Any], Parsed]] = {
    "HyperParamJob": HyperParamJob.model_validate,
    "HyperParamTrial": StoredTrial.parse,
    "GPUNode": GPUNode.model_validate,
}


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it was read last."""

    stamp: tuple[int, int, int]  # time of the last change, size, inode
    objects: tuple[Parsed, ...] = ()
    problem: str = ""


class ObjectFiles:
    """The objects in the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, _File] = {}
        self.changed_at = 0.0  # time of the newest change of a file
        self._too_many = ""

    def refresh(self) -> bool:
        """Read the files that have changed; return whether there were any."""
        found = dict(self._found())
        changed = self._files.keys() - found.keys()
        for name in changed:
            del self._files[name]
        fresh = [name for name, stamp in found.items() if name not in self._files or self._files[name].stamp != stamp]
        for name in fresh:
            self._files[name] = _read(self.folder / name, found[name])
            self.changed_at = max(self.changed_at, found[name][0] / 1e9)
        return bool(changed or fresh)

    @property
    def objects(self) -> Iterator[Parsed]:
        """Yield all objects."""
        for name in sorted(self._files):
            yield from self._files[name].objects

    def holds(self, namespace: str, trial: str) -> bool:
        """Return whether a trial is among the objects."""
        stored = (one for one in self.objects if isinstance(one, StoredTrial))
        return any((one.namespace, one.name) == (namespace, trial) for one in stored)

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each file that could not be read."""
        found = [one.problem for _, one in sorted(self._files.items()) if one.problem]
        return [self._too_many, *found] if self._too_many else found

    def _found(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        self._too_many = ""
        count = 0
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if Path(entry.name).suffix not in SUFFIXES:
                        continue
                    count += 1
                    if count > MAX_FILES:
                        self._too_many = f"{self.folder} has more than {MAX_FILES} files; the others are not shown."
                        return
                    about = entry.stat()
                    if stat.S_ISREG(about.st_mode):
                        yield entry.name, (about.st_mtime_ns, about.st_size, about.st_ino)
        except FileNotFoundError:  # of the folder, or of a file that was replaced just now
            return


def _read(path: Path, stamp: tuple[int, int, int]) -> _File:
    if stamp[1] > MAX_OBJECT_BYTES:
        text = f"{path} has {stamp[1]} bytes, more than {MAX_OBJECT_BYTES}; it is not shown."
        return _File(stamp, problem=text)
    try:
        text = path.read_text(encoding="utf-8-sig")
        payloads = [json.loads(text)] if path.suffix == ".json" else parse_manifests(text, str(path))
        objects = (one for one in flattened(payloads) if isinstance(one, dict))
        return _File(stamp, tuple(_parse(one) for one in objects if one.get("kind") in PARSERS))
    except FileNotFoundError:  # replaced just now; the next look finds the new one
        return _File((0, 0, 0))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        return _File(stamp, problem=f"{path}: {field}: {first['msg']}; it is not shown.")
    except (OSError, ValueError, AttributeError, RecursionError, ManifestError) as error:
        return _File(stamp, problem=f"{path}: {' '.join(str(error).split())[:200]}; it is not shown.")


def _parse(payload: Mapping[str, Any]) -> Parsed:
    return PARSERS[payload["kind"]](payload)
