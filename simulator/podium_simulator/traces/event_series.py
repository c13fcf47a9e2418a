"""Which runs of a TensorBoard folder are trials, and which are series of one trial. Pure; `event_files` calls it.

Several writers give one trial more than one folder: PyTorch's `add_scalars` (`run/acc_train`, `run/acc_val`, beside
the files in `run`), Keras (`run/train`, `run/validation`) and TensorFlow's estimators (`run`, `run/eval`). Training
values and validation values of one trial must not compete, so each trial is read from one series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

TRAINING = frozenset({"train", "training", "tr", "fit"})
VALIDATION = frozenset({"validation", "valid", "val", "eval", "evaluation", "dev"})
TEST = frozenset({"test", "testing", "holdout"})
OWN = ""  # the series of the trial's own folder


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of the run of each trial. `trial_of`: trial by run, also of the series left out."""

    runs: tuple[str, ...]
    trial_of: Mapping[str, str]
    left_out: tuple[str, ...]


class AmbiguousSeriesError(ValueError):
    """A trial has several series, and none of them is the validation."""


def prefix_of(tag: str) -> str:
    """Return what the folders of a tag's series start with, as `add_scalars` names them."""
    return f"{tag.replace('/', '_')}_"


def series_of(run: str, tag: str, runs: Collection[str]) -> tuple[str, str]:
    """Return the trial and the series of a run. `runs`: all folders with event files, by their paths."""
    path = PurePath(run)
    parent, name, prefix = str(path.parent), path.name, prefix_of(tag)
    if path == PurePath(".") or path.name == "":
        return run, OWN
    if name.startswith(prefix):
        suffix = name.removeprefix(prefix)
        if suffix and (parent in runs or _role(suffix)):
            return parent, suffix
    if _role(name):
        return parent, name
    return run, OWN


def choose(having: Iterable[str], tag: str, asked: str | None, runs: Collection[str]) -> Choice:
    """Return which run of each trial to read, of those that have the tag.

    `asked`: the series that the user named; None: the validation, or the only one besides the training. Raises
    AmbiguousSeriesError.
    """
    by_trial: dict[str, dict[str, str]] = {}
    for run in having:
        trial, series = series_of(run, tag, runs)
        by_trial.setdefault(trial, {})[series] = run
    chosen: list[str] = []
    left_out: list[str] = []
    trial_of: dict[str, str] = {}
    for trial, series_runs in by_trial.items():
        picked = _pick(trial, list(series_runs), tag) if asked is None else asked
        if picked in series_runs:
            chosen.append(series_runs[picked])
        left_out += [run for series, run in series_runs.items() if series != picked]
        trial_of |= dict.fromkeys(series_runs.values(), trial)
    return Choice(tuple(chosen), trial_of, tuple(left_out))


def _pick(trial: str, series: Sequence[str], tag: str) -> str:
    """Return the series of a trial that counts."""
    if len(series) == 1:
        return series[0]
    for kind in (VALIDATION, TEST):
        of_kind = [one for one in series if one.lower() in kind]
        if len(of_kind) == 1:
            return of_kind[0]
        if of_kind:
            break
    else:
        others = [one for one in series if one.lower() not in TRAINING]
        if len(others) == 1:
            return others[0]
    names = ", ".join(sorted(one or "its own" for one in series)[:8])
    example = next((one for one in series if one.lower() not in TRAINING and one != OWN), series[-1])
    text = f"run {trial}: {len(series)} series of {tag} ({names})"
    raise AmbiguousSeriesError(f"{text}; name one with --metric {prefix_of(tag)}{example}")


def _role(name: str) -> bool:
    return name.lower() in TRAINING | VALIDATION | TEST
