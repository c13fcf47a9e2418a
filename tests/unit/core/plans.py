"""Snapshots for the planner's tests, and short views of a plan."""

from __future__ import annotations

from dataclasses import replace

from podium_core.domain.actions import Action, CreatePod, CreateTrial, Plan, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

P = TrialPhase
RUN = P.RUNNING


def of(made: Plan, kind: type[Action]) -> list[Action]:
    return [action for action in made.actions if isinstance(action, kind)]


def sound(snapshot: Snapshot) -> Plan:
    made = plan(snapshot)
    assert violations(snapshot, made) == ()
    return made


def orders(made: Plan) -> dict[str, list[str]]:
    """uuid -> names, of all nodes that are written."""
    found = [a for a in made.actions if isinstance(a, WriteRunQueues)]
    return {uuid: [p.trial.name for p in places] for order in found for uuid, places in order.gpus}


def created(made: Plan) -> list[str]:
    """Names of trials that get a pod."""
    return [a.trial.name for a in made.actions if isinstance(a, CreatePod)]


def numbers(made: Plan) -> list[int]:
    return [a.number for a in made.actions if isinstance(a, CreateTrial)]


def why(made: Plan, name: str) -> str:
    return next(p.reason for p in made.ranks if p.trial.name == name)


def on_gpu(*curves: list[float], **more: object) -> list[TrialView]:
    made = [make_trial(i, gpus=["gpu-0"], values=c, phase=RUN, gpu_seconds=len(c)) for i, c in enumerate(curves)]
    return [replace(trial, **more) for trial in made]  # type: ignore[arg-type]


SLOW, FAST = [0.1, 0.2, 0.3], [0.1, 0.6, 0.9]


def holding(trials: list[TrialView], since: float = 900.0, holder: int = 0) -> Snapshot:
    key = trials[holder].key
    rest = [t.key for t in trials if t.key != key]
    gpu = make_gpu(holder=key, holder_since=since, trials=[t.key for t in trials], run_queue=[key, *rest])
    return make_snapshot(jobs=[make_job(parallel=len(trials), max_trials=8)], trials=trials, gpus=[gpu])
