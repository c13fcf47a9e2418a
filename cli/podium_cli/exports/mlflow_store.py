"""A search as a file store of MLflow (`mlruns`): an experiment for the search, and a run for each trial.

The layout is MLflow's: `EXPERIMENT/RUN/{metrics,params,tags}/NAME` and a `meta.yaml` in both. Names of folders come
from hashes, so that a second export replaces the files of the first one.
"""

from __future__ import annotations

import json
from pathlib import Path

from podium_cli.exports.names import clean, digest_of, path_name, text_of
from podium_cli.exports.search import ExportedSearch, ExportedTrial, latest_whole_steps, whole_steps
from podium_cli.exports.target import Target, claim_folder, replace, writing
from podium_core.domain.phase import TrialPhase

RUNNING, SCHEDULED, FINISHED, FAILED, KILLED = 1, 2, 3, 4, 5  # of MLflow's RunStatus
_STATUS = {
    TrialPhase.PENDING: SCHEDULED,
    TrialPhase.GATED: SCHEDULED,
    TrialPhase.SUCCEEDED: FINISHED,
    TrialPhase.EARLY_STOPPED: FINISHED,
    TrialPhase.FAILED: FAILED,
    TrialPhase.KILLED: KILLED,
}
MAX_EXPERIMENT = 10**18  # MLflow's own numbers of experiments have 18 digits


class MlflowStore(Target):
    """A file store with one experiment."""

    def __init__(self, path: Path, search: ExportedSearch, *, force: bool) -> None:
        super().__init__()
        claim_folder(path, force, "mlflow", search)
        self._search = search
        self._experiment = str(int.from_bytes(digest_of(search.identity)[:8]) % MAX_EXPERIMENT)
        self._path = path.absolute() / self._experiment
        created = int((search.created or 0.0) * 1000)
        with writing(path):
            self._path.mkdir(exist_ok=True)
            meta = {
                "artifact_location": self._path.as_uri(),
                "creation_time": created,
                "experiment_id": self._experiment,
                "last_update_time": created,
                "lifecycle_stage": "active",
                "name": search.name,
            }
            replace(self._path / "meta.yaml", _yaml(meta))
            _write(self._path / "tags", {"podium.metric": clean(search.metric), "podium.goal": search.goal})

    def add(self, trial: ExportedTrial) -> None:
        """Write one run, or replace what it held."""
        points = whole_steps(trial.points)
        self.omitted_values += len(trial.points) - len(points)
        metrics = {self._search.metric: [(trial.time_of(p), p.value, int(p.step)) for p in points]}
        last = trial.time_of(points[-1]) if points else trial.begin
        for one in latest_whole_steps(trial):
            metrics[one.metric] = [(last, one.value, int(one.step))]
        run = digest_of(f"{self._search.identity}/{trial.name}").hex()[:32]
        folder = self._path / run
        with writing(folder):
            folder.mkdir(exist_ok=True)
            (folder / "artifacts").mkdir(exist_ok=True)
            lines = {name: "".join(map(_line, history)) for name, history in metrics.items() if history}
            _write(folder / "metrics", lines, self._search.metrics)
            _write(folder / "params", {name: text_of(value) for name, value in trial.parameters.items()})
            _write(folder / "tags", _tags(trial))
            replace(folder / "meta.yaml", _yaml(self._meta(run, folder, trial)))
        self.trials += 1
        self.values += len(points)

    def _meta(self, run: str, folder: Path, trial: ExportedTrial) -> dict[str, object]:
        ended = trial.ended if trial.final else None
        return {
            "artifact_uri": (folder / "artifacts").as_uri(),
            "end_time": None if ended is None else int(ended * 1000),
            "entry_point_name": "",
            "experiment_id": self._experiment,
            "lifecycle_stage": "active",
            "run_id": run,
            "run_name": clean(trial.name),
            "run_uuid": run,
            "source_name": "",
            "source_type": 4,  # local
            "source_version": "",
            "start_time": int(trial.begin * 1000),
            "status": _STATUS.get(trial.phase, RUNNING),
            "tags": [],
            "user_id": "",
        }


def _tags(trial: ExportedTrial) -> dict[str, str]:
    notes = {f"podium.{name}": note for name, note in trial.notes.items()}
    return {
        "mlflow.runName": clean(trial.name),
        "podium.number": str(trial.number),
        "podium.phase": trial.phase.value,
        **notes,
    }


def _write(folder: Path, contents: dict[str, str], others: tuple[str, ...] = ()) -> None:
    """Write one file for each name."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        path = folder / path_name(name, others)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content.encode("utf-8", "replace"))


def _line(entry: tuple[float, float, int]) -> str:
    time, value, step = entry
    return f"{int(time * 1000)} {value!r} {step}\n"


def _yaml(content: dict[str, object]) -> bytes:
    """Return YAML; JSON is a part of it."""
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")
