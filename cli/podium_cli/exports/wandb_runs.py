"""A search as offline runs of W&B, which `wandb sync` uploads. It needs the package wandb (extra `wandb`).

The package itself writes the runs, in its offline mode: nothing leaves the machine. A trial that has changed since the
last export gets a new folder with the same run id, and the old folder is removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.names import clean, digest_of, file_name
from podium_cli.exports.search import ExportedSearch, ExportedTrial, Point, whole_steps
from podium_cli.exports.target import Target, claim_folder, replace, writing
from podium_core.domain.phase import TrialPhase

DIGEST = "podium-trial.json"  # in the folder of a run: what it was written from
RESERVED = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})


class WandbRuns(Target):
    """A folder with one offline run for each trial."""

    def __init__(self, path: Path, search: ExportedSearch, *, force: bool) -> None:
        super().__init__()
        self._wandb = _library()
        claim_folder(path, force, "wandb", search)
        self._search = search
        self._path = path.absolute()
        self._runs = self._path / "wandb"
        with writing(path):
            self._runs.mkdir(exist_ok=True)  # without it wandb chooses a folder of its own

    def add(self, trial: ExportedTrial) -> None:
        """Write one run, unless the folder has it already."""
        points = whole_steps(trial.points)
        self.omitted_values += len(trial.points) - len(points)
        run = digest_of(f"{self._search.identity}/{trial.name}").hex()[:16]
        digest = hashlib.sha256(repr((self._search, trial)).encode("utf-8", "backslashreplace")).hexdigest()
        before = sorted(self._runs.glob(f"offline-run-*-{run}"))
        if not (before and _digest_of(before[-1]) == digest):
            for folder in before:
                shutil.rmtree(folder)
            self._write(run, trial, points, digest)
        self.trials += 1
        self.values += len(points)

    def _write(self, run_id: str, trial: ExportedTrial, points: tuple[Point, ...], digest: str) -> None:
        try:
            run = self._wandb.init(
                project=file_name(self._search.name),
                group=clean(self._search.name)[:120],
                id=run_id,
                name=clean(trial.name)[:120],
                config={clean(name): value for name, value in trial.parameters.items()} | {"podium": _notes(trial)},
                dir=str(self._path),
                settings=self._settings(trial),
            )
            for point in points:
                values = {_key(self._search.metric): point.value, "_timestamp": trial.time_of(point)}
                run.log(values, step=int(point.step))
            for one in trial.latest:
                run.summary[_key(one.metric)] = one.value
            run.finish(exit_code=int(trial.phase is TrialPhase.FAILED))
        except (self._wandb.Error, OSError, ValueError) as error:
            text = f"trial {clean(trial.name)}: wandb could not write its run: {error}"
            raise CliError(Exit.FAILED, "FileNotWritten", f"{text}; see {self._runs}/debug.log") from error
        written = sorted(self._runs.glob(f"offline-run-*-{run_id}"))
        with writing(self._runs):
            replace(written[-1] / DIGEST, json.dumps({"digest": digest}).encode())

    def _settings(self, trial: ExportedTrial) -> Any:
        return self._wandb.Settings(
            mode="offline",
            root_dir=str(self._path),
            silent=True,
            console="off",
            disable_git=True,
            disable_code=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            x_start_time=trial.begin,
        )


def _notes(trial: ExportedTrial) -> dict[str, Any]:
    return {"number": trial.number, "phase": trial.phase.value, **trial.notes}


def _key(metric: str) -> str:
    name = clean(metric)
    return f"metric.{name}" if name in RESERVED else name


def _digest_of(folder: Path) -> str | None:
    with suppress(OSError, ValueError):
        content = json.loads((folder / DIGEST).read_bytes())
        return content.get("digest") if isinstance(content, dict) else None
    return None


def _library() -> Any:
    try:
        import wandb
    except ImportError:
        text = "--format wandb needs the package wandb: pip install 'kube-podium[wandb]', or give --format mlflow"
        raise CliError(Exit.USAGE, "ExtraMissing", text) from None
    return wandb
