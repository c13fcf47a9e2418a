"""Copy the checkpoint of another trial, from which a new trial continues: population-based training.

`python -m podium.inherit PARENT CHILD NAME [METRICS]` is the program of an init container. The parent may train and
write checkpoints meanwhile. So the copy counts only if the parent's completion marker is the same before and after it.

METRICS is the path in the folder where trials write their metrics. They are the parent's, so they are not copied.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from podium.trial import ASIDE, MARKER, MARKER_BYTES, REQUEST, checkpoint_in, sync_tree

__all__ = ["InheritError", "inherit"]

TRIES = 5
PAUSE_SECONDS = 0.2  # until the next try; it doubles
EVENTS = "tfevents"  # in the name of each event file, as the readers of metrics know it


class InheritError(Exception):
    """The parent has no checkpoint, or it changed during each copy."""


def inherit(parent: Path, child: Path, name: str, metrics: str | None = None) -> None:
    """Copy the newest checkpoint of folder `parent` to `child/name`, and mark it as complete there.

    A child that has a checkpoint already keeps it. `name` "." copies the folder itself, without the path `metrics`; if
    that is ".", without event files. Raises InheritError, or OSError if something cannot be read or written.
    """
    if checkpoint_in(child) is not None:
        return
    for number in range(TRIES):
        before, found = _marker(parent), checkpoint_in(parent)
        if before is None or found is None:
            raise InheritError(f"{parent} has no complete checkpoint to continue from")
        _clear(child)
        try:
            _copy_checkpoint(parent, found.path, child if name == "." else child / (name + ASIDE), metrics)
        except FileNotFoundError:  # the parent replaced its checkpoint during the copy
            complete = False
        else:
            complete = _marker(parent) == before
        if complete:
            _publish(child, name, found.step)
            return
        time.sleep(PAUSE_SECONDS * 2**number)
    raise InheritError(
        f"the checkpoint in {parent} changed during each of {TRIES} copies: write checkpoints less often"
    )


def _publish(child: Path, name: str, step: float) -> None:
    if name == ".":
        sync_tree(child)
    else:
        sync_tree(child / (name + ASIDE))
        (child / (name + ASIDE)).replace(child / name)
    marker = child / (MARKER + ASIDE)
    marker.write_text(json.dumps({"step": step, "path": name}), encoding="utf-8")
    _give(child, marker)
    sync_tree(marker)
    marker.replace(child / MARKER)
    sync_tree(child / MARKER)


def _marker(folder: Path) -> bytes | None:
    try:
        with open(folder / MARKER, "rb") as file:
            return file.read(MARKER_BYTES + 1)
    except FileNotFoundError:
        return None


def _copy_checkpoint(parent: Path, source: Path, target: Path, metrics: str | None) -> None:
    """Copy a checkpoint; of a trial's folder itself only what is neither part of the contract nor metrics."""
    whole = source.resolve() == parent.resolve()
    if not whole and not target.is_dir():
        _copy(source, target)
        return
    if not source.is_dir():
        raise InheritError(f"{source} is a file, but the trial expects a folder: let all trials write the same kind")
    target.mkdir(exist_ok=True)
    for entry in sorted(source.iterdir()):
        if not (whole and (entry.name in (MARKER, REQUEST) or entry.name.endswith(ASIDE))):
            _copy(entry, target / entry.name, source / metrics if whole and metrics is not None else None)


def _copy(source: Path, target: Path, metrics: Path | None = None) -> None:
    """Copy a file, folder or link with its mode and times, but not `metrics`; a link is copied, never followed."""
    if metrics is not None and (source == metrics or (source.parent == metrics and EVENTS in source.name)):
        return
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir()
        for entry in sorted(source.iterdir()):
            _copy(entry, target / entry.name, metrics)
        shutil.copystat(source, target)
    else:
        shutil.copy2(source, target)
    _give(source, target)


def _give(like: Path, path: Path) -> None:
    """Let root give a file to the owner of another one, so that the trial may change it."""
    if os.name != "nt" and os.geteuid() == 0:
        stat = like.lstat()
        os.chown(path, stat.st_uid, stat.st_gid, follow_symlinks=False)


def _clear(folder: Path) -> None:
    """Remove what an earlier try copied: a folder without a completion marker holds nothing else."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy the checkpoint that the arguments name; return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) not in (3, 4):
        print("usage: python -m podium.inherit PARENT CHILD NAME [METRICS]", file=sys.stderr)
        return 2
    try:
        inherit(Path(given[0]), Path(given[1]), given[2], given[3] if given[3:] else None)
    except (InheritError, OSError) as error:
        print(f"podium: CheckpointNotInherited: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
