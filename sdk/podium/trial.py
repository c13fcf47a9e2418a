"""`podium.trial`: what a training script may use of Podium: parameters in, metrics out, saves that survive the pod.

Called by users' scripts, never by Podium; the one module of core that acts. It is this one file: standard library only,
Python 3.8 or newer, nothing else of Podium. The agent mounts it into every trial that has a GPU:

    sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
    from podium import trial

Without Podium every call is harmless: parameters are the defaults and the command line's, metrics are printed, and
saves go to $PODIUM_CHECKPOINT if that is set. docs/reference/checkpoint-contract.md has the contract of the files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["STOPPED", "Save", "load", "mark", "params", "report", "save", "should_save", "stopping"]

STOPPED = 143  # what a script that SIGTERM ended exits with: 128 + 15
MARKER = "podium-checkpoint.json"
REQUEST = "podium-checkpoint-request"
MARKER_BYTES = 4096
ASIDE = ".new"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SAVE_NAME = re.compile(r"step-\d[^/]*")


class Save(NamedTuple):
    """A whole save: `step` is done, `path` is a folder or file below $PODIUM_CHECKPOINT."""

    step: int | float
    path: Path


class _State:
    """Of this process. The lock is for saves from several threads, and for lines that must not mix."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listening = False
        self.stop_asked = False
        self.stop_answered = False  # a save was made after SIGTERM
        self.asks = False  # whether the script asks should_save(), so that a request is worth waiting for
        self.declined = False  # the last question was should_save(), its answer no, and nothing was saved since


_state = _State()


def params(defaults: Mapping[str, Any] | None = None, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The trial's hyper-parameters by name, with their types.

    Podium's come first, then `--name=value` and `--name value` of the command line (`argv`, default sys.argv), then
    `defaults`. A default gives the type of what the command line says, and is needed for `--name value`. Other
    arguments are left alone. ValueError: a value that has not its default's type.
    """
    known = dict(defaults or {})
    given = json.loads(os.environ.get("PODIUM_PARAMS") or "{}")
    if not isinstance(given, dict):
        raise ValueError(
            "InvalidParams: PODIUM_PARAMS is not a JSON object; Podium sets it: remove it from the template"
        )
    return {**known, **_from_command_line(known, sys.argv[1:] if argv is None else argv), **given}


def report(*, step: float, **metrics: Any) -> None:
    """Print one JSON line that Podium reads: the step under the job's `metrics.stepKey`, and these metrics.

    One rank prints. NaN and infinity are written as texts, which Podium reads as such; JSON has no other way.
    """
    if _rank() != 0:
        return
    key = os.environ.get("PODIUM_STEP_KEY") or "step"
    values = {name: _plain(value) for name, value in metrics.items() if name != key}
    line = json.dumps({key: _plain(step), **values})
    with _state.lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def should_save() -> bool:
    """Whether a save is wanted now: Podium asked for one, or SIGTERM came and nothing was saved since.

    Cheap enough for every step. Several processes may see a request one step apart: where all must agree, ask on
    rank 0 and broadcast the answer.
    """
    _state.asks = True
    folder = _folder()
    requested = folder is not None and (folder / REQUEST).exists()
    wanted = requested or (_state.stop_asked and not _state.stop_answered)
    _state.declined = folder is not None and not wanted
    return wanted


def stopping() -> bool:
    """Whether SIGTERM came: save, then end (`sys.exit(trial.STOPPED)`). The first call takes the signal over.

    Call it once before the slow imports: as a container's first process a script has no other answer to SIGTERM.
    A signal that comes just after should_save() said no is told a call later, so that the save is asked for first.
    """
    _listen()
    stop, declined = _state.stop_asked, _state.declined
    _state.declined = False
    return stop and not declined


def save(step: float, write: Callable[[Path], object]) -> Save | None:
    """Save the state after `step`: `write(folder)` fills an empty folder, which then becomes the save in one instant.

    Killed at any moment, the save before this one is still whole and counts. Afterwards only the newest
    $PODIUM_CHECKPOINT_KEEP (1) are left. Only rank 0 saves: for the others, and without a folder to save to, this
    does nothing and gives None. What `write` raises (a full disk, say) is raised, and nothing has changed.
    """
    folder = _folder()
    if folder is None or _rank() != 0:
        return None
    with _state.lock:
        folder.mkdir(parents=True, exist_ok=True)
        path = _unused(folder, f"step-{_number(step)}")
        aside = folder / (path.name + ASIDE)
        try:
            aside.mkdir()
            write(aside)
            _sync_tree(aside)
            aside.replace(path)
            return _publish(folder, Save(_number(step), path))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            newest = load()
            if newest is None or newest.path != path:  # else the marker was already written: it is a save
                shutil.rmtree(path, ignore_errors=True)
            raise


def mark(step: float, path: str | os.PathLike[str]) -> Save | None:
    """Make what some framework has written whole at `path` (below the folder) the save of `step`; see `save`.

    Of what is named step-... there, all but the newest $PODIUM_CHECKPOINT_KEEP are removed. ValueError: `path` is
    elsewhere, or not there.
    """
    folder = _folder()
    if folder is None or _rank() != 0:
        return None
    with _state.lock:
        place = Path(path)
        relative = os.path.relpath(place, folder)
        if relative.split(os.sep)[0] == os.pardir or not place.exists():
            raise ValueError(
                f"InvalidCheckpoint: {place} is no file or folder in {folder}; save there and mark it afterwards"
            )
        _sync_tree(place)
        return _publish(folder, Save(_number(step), folder / relative))


def load() -> Save | None:
    """The save to go on from, None to begin anew: what the marker names, never anything half-written."""
    folder = _folder()
    if folder is None:
        return None
    try:
        with open(folder / MARKER, "rb") as file:
            text = file.read(MARKER_BYTES + 1)
        marker = json.loads(text) if len(text) <= MARKER_BYTES else None
        marker = marker if isinstance(marker, dict) else {"step": marker}
        step, relative = _number(marker.get("step")), marker.get("path", ".")
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(relative, str) or Path(relative).is_absolute() or os.pardir in Path(relative).parts:
        return None
    path = folder / relative
    if not path.exists():
        print(f"podium.trial: {folder / MARKER} names {relative}, which is gone: beginning anew", file=sys.stderr)
        return None
    return Save(step, path)


def _folder() -> Path | None:
    given = os.environ.get("PODIUM_CHECKPOINT")
    return Path(given) if given else None


def _rank() -> int:
    """torchrun sets RANK; launchers that set only LOCAL_RANK (Lightning's) are of one pod, as every trial is."""
    given = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
    return int(given) if given.isdigit() else 0


def _listen() -> None:
    """Take SIGTERM over, once; whoever listened before is still told. Only the main thread may: others leave it."""
    if _state.listening or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    owner = os.getpid()

    def told(number: int, frame: Any) -> None:
        if os.getpid() != owner and not callable(before):  # it came to a worker that was being forked
            forked()
            os.kill(os.getpid(), number)
            return
        _state.stop_asked = True
        if callable(before):
            before(number, frame)

    def forked() -> None:
        """A worker (a data loader's) must end when its pool ends it. A handler of Python's would not do: a signal that
        comes just before a blocking read is kept until the read is through, which may be never.
        """
        if signal.getsignal(signal.SIGTERM) is told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    os.register_at_fork(after_in_child=forked)
    signal.signal(signal.SIGTERM, told)
    _state.listening = True


def _from_command_line(known: Mapping[str, Any], argv: Sequence[str]) -> dict[str, Any]:
    spelled = {name.replace("-", "_"): name for name in known}
    found: dict[str, Any] = {}
    for index, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        flag, equals, text = word[2:].partition("=")
        name = spelled.get(flag.replace("-", "_"))
        if equals and name is None and not known:
            found[flag.replace("-", "_")] = _guess(text)
        elif equals and name is not None:
            found[name] = _typed(name, text, known[name])
        elif name is not None:
            follows = argv[index + 1] if index + 1 < len(argv) else "--"
            bare = isinstance(known[name], bool) and follows.lower() not in _BOOLEANS
            found[name] = True if bare else _typed(name, follows, known[name])
    return found


def _typed(name: str, text: str, default: Any) -> Any:
    kind = type(default)
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        if kind in (int, float, str):
            return kind(text)
    except (KeyError, ValueError):
        raise ValueError(
            f"InvalidValue: --{name}={text} is no {kind.__name__}; write one, such as {default!r}"
        ) from None
    return _guess(text)


def _guess(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    """A number of any library as JSON has it; what is none is left as it is."""
    if hasattr(value, "item"):  # numpy, torch, jax: arrays of one element
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(step: Any) -> int | float:
    plain = _plain(step)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)) or not 0 <= plain < math.inf:
        raise ValueError(f"InvalidStep: step {step!r} is no number from 0 up; give the last step that is done")
    return int(plain) if plain == int(plain) else plain


def _unused(folder: Path, name: str) -> Path:
    """`name`, or name-2, name-3...: what the marker names now must stay whole until the new save is."""
    number, path = 1, folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    shutil.rmtree(folder / (path.name + ASIDE), ignore_errors=True)  # torn by a kill
    return path


def _publish(folder: Path, made: Save) -> Save:
    """The marker, last of all and by rename. The request goes just before: a later one asks for a later save."""
    marker = {"step": made.step, "path": os.path.relpath(made.path, folder), "onRequest": _state.asks}
    aside = folder / (MARKER + ASIDE)
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(marker, file)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        (folder / REQUEST).unlink()
    aside.replace(folder / MARKER)
    _sync(folder)
    _state.stop_answered = _state.stop_asked
    _state.declined = False
    _prune(folder, made.path)
    return made


def _prune(folder: Path, newest: Path) -> None:
    """Remove older saves and torn ones. By time, not by step: who began anew counts from 1 again."""
    mine = Path(os.path.relpath(newest, folder)).parts
    if not mine:
        return  # the folder itself is the save: who wrote it knows what in it is old
    given = os.environ.get("PODIUM_CHECKPOINT_KEEP", "")
    keep = max(1, int(given)) if given.isdigit() else 1
    saves = [entry for entry in folder.iterdir() if _SAVE_NAME.fullmatch(entry.name) and entry.name != mine[0]]
    whole = [entry for entry in saves if not entry.name.endswith(ASIDE)]
    whole.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    for entry in [entry for entry in saves if entry.name.endswith(ASIDE)] + whole[keep - 1 :]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()


def _sync_tree(path: Path) -> None:
    """To the disk: every file, every folder, and the folder that names it."""
    for here, _, names in os.walk(path):
        for name in names:
            if not Path(here, name).is_symlink():  # what it leads to is not ours
                _sync(Path(here, name))
        _sync(Path(here))
    if path.is_file():
        _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    if os.name == "nt":
        return  # a laptop, where no pod is lost: Windows syncs neither folders nor what is open to read
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
