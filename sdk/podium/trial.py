"""Helper for training scripts: read hyper-parameters, report metrics, and save checkpoints.

Users' scripts call it; Podium itself never does. It needs only the standard library and Python 3.8 or newer. The agent
mounts it into every trial that has a GPU:

    sys.path.append(os.environ.get("PODIUM_PYTHON", "/podium/python"))
    from podium import trial

Without Podium every call works, too. Parameters come from the defaults and the command line, and metrics are printed.
Checkpoints are written to $PODIUM_CHECKPOINT if that is set. docs/reference/checkpoint-contract.md specifies the files.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
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

__all__ = ["STOPPED", "Checkpoint", "load", "mark", "params", "report", "save", "should_save", "stopping"]

STOPPED = 143  # exit status of a script that ends because of SIGTERM: 128 + 15
MARKER = "podium-checkpoint.json"
REQUEST = "podium-checkpoint-request"
MARKER_BYTES = 4096
ASIDE = ".new"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SAVE_NAME = re.compile(r"step-\d[^/]*")


class Checkpoint(NamedTuple):
    """A complete checkpoint of the state after `step`.

    `path` is a folder or file below $PODIUM_CHECKPOINT.
    """

    step: int | float
    path: Path


class _State:
    """State of this process; the lock protects checkpoints from several threads and the printed lines."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listening = False
        self.stop_asked = False
        self.stop_answered = False  # a checkpoint was written after SIGTERM
        self.asks = False  # the script calls should_save(), so Podium can wait for the answer to a request
        self.declined = False  # the last call was should_save() with the answer False, and nothing was saved since


_state = _State()


def params(defaults: Mapping[str, Any] | None = None, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the trial's hyper-parameters by name, with their types.

    Podium's values take precedence, then `--name=value` and `--name value` on the command line (`argv`, by default
    sys.argv), then `defaults`. A default determines the type of the value on the command line, and `--name value`
    requires one. Other arguments are ignored. Raises ValueError for a value that does not have the type of its default.
    """
    known = dict(defaults or {})
    given = json.loads(os.environ.get("PODIUM_PARAMS") or "{}")
    if not isinstance(given, dict):
        raise ValueError(
            "InvalidParams: PODIUM_PARAMS is not a JSON object; Podium sets it, so remove it from the template"
        )
    return {**known, **_from_command_line(known, sys.argv[1:] if argv is None else argv), **given}


def report(*, step: float, **metrics: Any) -> None:
    """Print one JSON line that Podium reads, with the step and these metrics.

    The step has the name of the job's `metrics.stepKey`. If the job's `metrics.source` is push, the line is sent to the
    agent instead. That takes no time, and the end of the script waits up to 5 s until all lines are stored.
    Only rank 0 reports. NaN and infinity are written as strings, because JSON has no such numbers; Podium reads them.
    """
    if _rank() != 0:
        return
    key = os.environ.get("PODIUM_STEP_KEY") or "step"
    values = {name: _plain(value) for name, value in metrics.items() if name != key}
    line = json.dumps({key: _plain(step), **values})
    target = os.environ.get("PODIUM_METRICS_SOCKET")
    if target:
        _push_module().push(target, line)
        return
    with _state.lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def should_save() -> bool:
    """Return whether to save now.

    The answer is True if Podium requested a checkpoint, or if SIGTERM came and none was written since. The call is
    cheap enough for every step. Several processes may see a request one step apart. If all must agree, call it on rank
    0 and broadcast the answer.
    """
    _state.asks = True
    folder = _folder()
    requested = folder is not None and (folder / REQUEST).exists()
    wanted = requested or (_state.stop_asked and not _state.stop_answered)
    _state.declined = folder is not None and not wanted
    return wanted


def stopping() -> bool:
    """Return whether SIGTERM came; then save and exit with `sys.exit(trial.STOPPED)`.

    The first call installs a signal handler. Call it once before the slow imports: the first process of a container
    ignores SIGTERM without a handler. If the signal comes just after should_save() returned False, this function
    returns True one call later, so that the script first saves.
    """
    _listen()
    stop, declined = _state.stop_asked, _state.declined
    _state.declined = False
    return stop and not declined


def save(step: float, write: Callable[[Path], object]) -> Checkpoint | None:
    """Save the state after `step` as a checkpoint, which becomes valid in one atomic step.

    `write(folder)` fills an empty folder. If the process is killed at any moment, the previous checkpoint remains
    complete and valid. Afterwards only the newest $PODIUM_CHECKPOINT_KEEP (default 1) checkpoints remain. Only rank 0
    saves; on other ranks, and without $PODIUM_CHECKPOINT, this does nothing and returns None. An exception of `write`
    (for example a full disk) is raised again, and nothing has changed.
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
            sync_tree(aside)
            aside.replace(path)
            return _publish(folder, Checkpoint(_number(step), path))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            newest = load()
            if newest is None or newest.path != path:  # otherwise the completion marker names it already
                shutil.rmtree(path, ignore_errors=True)
            raise


def mark(step: float, path: str | os.PathLike[str]) -> Checkpoint | None:
    """Make a complete file or folder that a framework wrote the checkpoint of `step`; see `save`.

    `path` must be below $PODIUM_CHECKPOINT. Entries there named step-... are removed, except the newest
    $PODIUM_CHECKPOINT_KEEP. Raises ValueError if `path` is elsewhere or does not exist.
    """
    folder = _folder()
    if folder is None or _rank() != 0:
        return None
    with _state.lock:
        place = Path(path)
        relative = os.path.relpath(place, folder)
        if relative.split(os.sep)[0] == os.pardir or not place.exists():
            raise ValueError(
                f"InvalidCheckpoint: {place} is not a file or folder in {folder}; save there and mark it afterwards"
            )
        sync_tree(place)
        return _publish(folder, Checkpoint(_number(step), folder / relative))


def load() -> Checkpoint | None:
    """Return the checkpoint to continue from, which is always complete; None to start from the beginning."""
    folder = _folder()
    return None if folder is None else checkpoint_in(folder)


def checkpoint_in(folder: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint in a folder; None if it has none."""
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
        print(
            f"podium.trial: {folder / MARKER} names {relative}, which does not exist; starting from the beginning",
            file=sys.stderr,
        )
        return None
    return Checkpoint(step, path)


def _push_module() -> Any:
    """Return `podium.push`; beside a copy of this file it may be missing, and the agent's copy is used."""
    try:
        return importlib.import_module("podium.push")
    except ImportError:
        name = "podium_push"
    if name not in sys.modules:
        path = Path(os.environ.get("PODIUM_PYTHON", "/podium/python"), "podium", "push.py")
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"PushMissing: {path} is not a module; install podium, or mount the agent's folder")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def _folder() -> Path | None:
    given = os.environ.get("PODIUM_CHECKPOINT")
    return Path(given) if given else None


def _rank() -> int:
    """Return 0 in the one process that saves.

    RANK (torchrun) counts the processes of all pods, LOCAL_RANK (Lightning) those of one, PODIUM_RANK the pods.
    """
    given = (os.environ.get(name) or "0" for name in ("RANK", "LOCAL_RANK", "PODIUM_RANK"))
    return max(int(text) if text.isdigit() else 0 for text in given)


def _listen() -> None:
    """Install the SIGTERM handler once, in the main thread only; it also calls the previous handler."""
    if _state.listening or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    owner = os.getpid()

    def handle(number: int, frame: Any) -> None:
        if os.getpid() != owner and not callable(before):  # the signal came to a worker during its fork
            forked()
            os.kill(os.getpid(), number)
            return
        _state.stop_asked = True
        if callable(before):
            before(number, frame)

    def forked() -> None:
        """Restore the previous action in a forked worker, such as a data loader's, so that its pool can end it.

        A Python handler would not run before a blocking read returns, which may never happen.
        """
        if signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    os.register_at_fork(after_in_child=forked)
    signal.signal(signal.SIGTERM, handle)
    _state.listening = True


def _from_command_line(known: Mapping[str, Any], argv: Sequence[str]) -> dict[str, Any]:
    spelled = {name.replace("-", "_"): name for name in known}
    values: dict[str, Any] = {}
    for index, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        flag, equals, text = word[2:].partition("=")
        name = spelled.get(flag.replace("-", "_"))
        if equals and name is None and not known:
            values[flag.replace("-", "_")] = _guess(text)
        elif equals and name is not None:
            values[name] = _typed(name, text, known[name])
        elif name is not None:
            follows = argv[index + 1] if index + 1 < len(argv) else "--"
            bare = isinstance(known[name], bool) and follows.lower() not in _BOOLEANS
            values[name] = True if bare else _typed(name, follows, known[name])
    return values


def _typed(name: str, text: str, default: Any) -> Any:
    kind = type(default)
    try:
        if kind is bool:
            return _BOOLEANS[text.lower()]
        if kind in (int, float, str):
            return kind(text)
    except (KeyError, ValueError):
        raise ValueError(
            f"InvalidValue: --{name}={text} is not of type {kind.__name__}; use a value such as {default!r}"
        ) from None
    return _guess(text)


def _guess(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    """Convert a number of any library to a JSON value; return other values unchanged."""
    if hasattr(value, "item"):  # numpy, torch, jax: arrays of one element
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(step: Any) -> int | float:
    plain = _plain(step)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)) or not 0 <= plain < math.inf:
        raise ValueError(f"InvalidStep: step {step!r} is not a number of at least 0; pass the last completed step")
    return int(plain) if plain == int(plain) else plain


def _unused(folder: Path, name: str) -> Path:
    """Return an unused path: `name`, name-2, ...; the current checkpoint must remain until the new one is complete."""
    number, path = 1, folder / name
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    shutil.rmtree(folder / (path.name + ASIDE), ignore_errors=True)  # left by a killed process
    return path


def _publish(folder: Path, made: Checkpoint) -> Checkpoint:
    """Write the completion marker, as the last step and by a rename.

    Podium's request is removed just before: a request that comes later asks for another checkpoint.
    """
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
    """Remove older and incomplete checkpoints, by time, since a restarted training counts its steps from 1 again."""
    mine = Path(os.path.relpath(newest, folder)).parts
    if not mine:
        return  # the folder itself is the checkpoint, and its writer removes old files
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


def sync_tree(path: Path) -> None:
    """Flush a file or folder, everything below it, and its parent folder to the disk."""
    for here, _, names in os.walk(path):
        for name in names:
            if not Path(here, name).is_symlink():  # do not flush the target of a link
                _sync(Path(here, name))
        _sync(Path(here))
    if path.is_file():
        _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    if os.name == "nt":
        return  # no pods there; Windows can flush neither folders nor files that are open for reading
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
