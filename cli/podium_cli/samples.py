"""Synthetic search as API objects at any time, for `podium report --sample` and the tests of the views.

It has 12 trials, 2 GPUs and time slices of a few seconds. After a warm-up the best trial goes first. Nothing here is
measured.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from podium_core.schema.base import API_VERSION

Manifest = dict[str, Any]
BEGIN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)
TRIALS, STEPS, TIME_SLICE, RATE = 12, 31, 6.0, 1.25  # trials, steps of each, seconds of a time slice, steps per second
WARM_UP = 6  # steps
SUSPEND_SECONDS, RESUME_SECONDS = 0.031, 0.024
GPUS = (("node-a", "GPU-0a000000-0000-4000-8000-00000000000a"), ("node-b", "GPU-0b000000-0000-4000-8000-00000000000b"))
NODE = {uuid: node for node, uuid in GPUS}
NAMESPACE, JOB = "default", "digits"


@dataclass
class _Trial:
    """One synthetic trial and what has happened to it so far."""

    number: int
    parameters: dict[str, Any]
    top: float
    speed: float
    gpu: str
    step: int = 0
    points: list[Manifest] = field(default_factory=list)
    allocations: list[tuple[float, float]] = field(default_factory=list)
    records: list[Manifest] = field(default_factory=list)
    finished: float | None = None

    @property
    def best(self) -> float:
        """Return the best value so far."""
        return max((point["value"] for point in self.points), default=0.0)


def search_at(elapsed: float) -> list[Manifest]:
    """Return job, trials and GPUNodes `elapsed` seconds after the start; the job ends after about 190 s."""
    trials = _generate_trials()
    holders: dict[str, _Trial | None] = dict.fromkeys(NODE)
    decisions: dict[str, Manifest] = {uuid: {} for uuid in NODE}
    now = 0.0
    while now < elapsed and any(trial.finished is None for trial in trials):
        end = min(now + TIME_SLICE, elapsed)
        for uuid in NODE:
            waiting = [trial for trial in trials if trial.gpu == uuid and trial.finished is None]
            chosen = min(waiting, key=_priority, default=None)
            before = holders[uuid]
            if chosen is not None and chosen is not before:
                decisions[uuid] = _decision(chosen, before)
            if before is not None and before is not chosen and before.finished is None:
                before.records.append(_record(now))
            if chosen is not None:
                _train(chosen, now, end)
            holders[uuid] = chosen
        now = end
    return [
        _job(trials, now),
        *(_manifest(trial, holders, trials, now) for trial in trials),
        *(_node(node, uuid, trials, holders[uuid], decisions[uuid]) for node, uuid in GPUS),
    ]


def _generate_trials() -> list[_Trial]:
    rng = random.Random(7)
    trials = []
    for number in range(TRIALS):
        rate = 10 ** rng.uniform(-4, -0.5)
        width, batch, kind = rng.choice([32, 64, 128]), rng.choice([16, 32, 64]), rng.choice(["relu", "tanh"])
        top = 0.985 - 0.055 * abs(math.log10(rate) + 1.9) - (0.02 if width == 32 else 0) - rng.uniform(0, 0.02)
        parameters = {"lr": round(rate, 6), "width": width, "batch": batch, "activation": kind}
        trials.append(_Trial(number, parameters, top, rng.uniform(0.1, 0.35), GPUS[number % 2][1]))
    return trials


def _priority(trial: _Trial) -> tuple[int, float, int]:
    """Return a sort key: a warm-up of every trial, then the best one, with some exploration of the others."""
    if trial.step < WARM_UP:
        return (0, trial.step, trial.number)
    return (1, 0.4 * trial.step / STEPS - trial.best, trial.number)


def _decision(winner: _Trial, before: _Trial | None) -> Manifest:
    """Return reason, message and `preempts` of the run queue's first entry after a switch."""
    warming_up = winner.step < WARM_UP
    reason = "WarmUp" if warming_up else "BestSoFar"
    rank = "The trial has not used its warm-up yet." if warming_up else f"Best value so far {winner.best:.4g}."
    if before is None or before.finished is not None:
        return {"reason": "FreeGPU", "message": f"{rank} It takes a free GPU.", "preempts": False}
    why, numbers = "WarmUp goes before BestSoFar", {}
    if not before.step >= WARM_UP > winner.step:
        gain = round(_priority(before)[1] - _priority(winner)[1], 4)
        why, numbers = f"gain {gain:.3f} beats cost 0.004", {"gain": gain}
    message = f"{rank} It takes the GPU from {_name(before)}: {why}."
    return {"reason": reason, "message": message, "preempts": True, **numbers}


def _train(trial: _Trial, begin: float, end: float) -> None:
    stop = end
    for count in range(1, int((end - begin) * RATE) + 1):
        trial.step += 1
        at = begin + count / RATE
        wobble = 0.012 * math.sin(trial.step * 2.3 + trial.number) / (1 + trial.step / 6)
        value = trial.top * (1 - 0.88 * math.exp(-trial.speed * trial.step)) + wobble
        trial.points.append({"step": trial.step, "value": round(value, 5), "time": BEGIN.timestamp() + at})
        if trial.step >= STEPS:
            trial.finished = stop = at
            break
    if trial.allocations and trial.allocations[-1][1] == begin:
        trial.allocations[-1] = (trial.allocations[-1][0], stop)
    else:
        trial.allocations.append((begin, stop))


def _record(at: float) -> Manifest:
    longer = 1 + (at * 7 % 5) / 6
    return {
        "method": "freeze",
        "at": _time(at),
        "suspendSeconds": SUSPEND_SECONDS * longer,
        "resumeSeconds": RESUME_SECONDS * longer,
    }


def _time(elapsed: float) -> str:
    return (BEGIN + timedelta(seconds=elapsed)).isoformat().replace("+00:00", "Z")


def _name(trial: _Trial) -> str:
    return f"{JOB}-{trial.number}"


def _reference(trial: _Trial) -> Manifest:
    return {"namespace": NAMESPACE, "trial": _name(trial), "uid": f"uid-{trial.number}"}


def _meta(name: str, uid: str) -> Manifest:
    return {"name": name, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": _time(0)}


def _job(trials: list[_Trial], now: float) -> Manifest:
    done = sum(trial.finished is not None for trial in trials)
    best = max(trials, key=lambda trial: trial.best)
    used = sum(end - begin for trial in trials for begin, end in trial.allocations)
    switches = [record for trial in trials for record in trial.records]
    switching = sum(record["suspendSeconds"] + record["resumeSeconds"] for record in switches)
    ended = done == TRIALS
    status: Manifest = {
        "phase": "Succeeded" if ended else "Running",
        "reason": "AllTrialsEnded" if ended else "TrialsRunning",
        "message": f"{done} of {TRIALS} trials have ended",
        "trials": {"created": TRIALS, "succeeded": done, "running": 0 if ended else 2},
        "done": f"{done}/{TRIALS}",
        "gpuSeconds": {"training": used - switching, "switching": switching},
        "gpuHours": used / 3600,
        "suspensions": len(switches),
        "startedAt": _time(0),
        **({"finishedAt": _time(now)} if ended else {"eta": _time(195)}),
    }
    if best.points:
        top = max(best.points, key=lambda point: float(point["value"]))
        best_point = {"trial": _name(best), "value": top["value"], "step": top["step"], "parameters": best.parameters}
        status["best"] = best_point
    parameters = [
        {"name": "lr", "min": 1e-4, "max": 0.5, "scale": "log"},
        {"name": "width", "values": [32, 64, 128]},
        {"name": "batch", "values": [16, 32, 64]},
        {"name": "activation", "values": ["relu", "tanh"]},
    ]
    spec = {
        "objective": {"metric": "val_acc", "direction": "maximize"},
        "parameters": parameters,
        "trials": {"max": TRIALS, "parallel": 8, "maxSteps": STEPS},
        "metrics": {"stepKey": "epoch"},
        "template": {"spec": {"containers": [{"name": "train", "image": "example.invalid/digits:1"}]}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "HyperParamJob",
        "metadata": _meta(JOB, "uid-job"),
        "spec": spec,
        "status": status,
    }


def _manifest(trial: _Trial, holders: dict[str, _Trial | None], trials: list[_Trial], now: float) -> Manifest:
    holds_it = holders[trial.gpu] is trial
    phase, reason, message = "Gated", "WaitingForTimeSlice", "the trial waits at its gate for its first time slice"
    live = sorted((one for one in trials if one.finished is None), key=lambda one: (-one.best, one.number))
    if trial.finished is not None:
        phase, reason, message = "Succeeded", "Completed", f"the trial completed {STEPS} epochs"
    elif holds_it:
        phase, reason, message = "Running", "TimeSliceStarted", "the trial holds its GPU"
    elif trial.points:
        phase, reason, message = "Suspended", "TimeSliceEnded", "another trial holds the GPU"
    status: Manifest = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "rank": live.index(trial) + 1 if trial in live else None,
        "pod": f"{_name(trial)}-0",
        "node": NODE[trial.gpu],
        "gpus": [trial.gpu],
        "startedAt": _time(0),
        "finishedAt": None if trial.finished is None else _time(trial.finished),
        "curve": {"points": trial.points},
        "suspensions": {
            "count": len(trial.records),
            "suspendSeconds": sum(record["suspendSeconds"] for record in trial.records),
            "resumeSeconds": sum(record["resumeSeconds"] for record in trial.records),
            "recent": trial.records[-32:],
        },
        "gpuSeconds": sum(end - begin for begin, end in trial.allocations),
        "allocations": [
            _allocation(trial, begin, end, lasting=holds_it and end == now) for begin, end in trial.allocations
        ],
    }
    if trial.points:
        top = max(trial.points, key=lambda point: float(point["value"]))
        status |= {"best": {"step": top["step"], "value": top["value"]}}
        status |= {"lastStep": trial.points[-1]["step"], "lastValue": trial.points[-1]["value"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "HyperParamTrial",
        "metadata": _meta(_name(trial), f"uid-{trial.number}") | {"labels": {"podium.dev/job": JOB}},
        "spec": {"job": JOB, "number": trial.number, "parameters": trial.parameters},
        "status": {key: value for key, value in status.items() if value is not None},
    }


def _allocation(trial: _Trial, begin: float, end: float, *, lasting: bool) -> Manifest:
    closed = {} if lasting and trial.finished is None else {"end": _time(end)}
    return {"gpus": [trial.gpu], "node": NODE[trial.gpu], "start": _time(begin), **closed}


def _last_change(trial: _Trial) -> float:
    return trial.allocations[-1][1] if trial.allocations else 0.0


def _node(node: str, uuid: str, trials: list[_Trial], holder: _Trial | None, decision: Manifest) -> Manifest:
    here = [trial for trial in trials if trial.gpu == uuid and trial.finished is None]
    here.sort(key=lambda trial: (trial is not holder, -trial.best, trial.number))
    gpu: Manifest = {
        "uuid": uuid,
        "index": 0,
        "product": "Fake H100",
        "memoryTotal": 80 * 2**30,
        "memoryUsed": len(here) * 12 * 2**30,
        "smUtilization": 93.0 if here else 0.0,
        "health": "Healthy",
        "slots": 8,
        "epoch": 9,
        "trials": [
            _reference(trial)
            | {"pod": f"{_name(trial)}-0", "podUID": f"pod-{trial.number}", "since": _time(_last_change(trial))}
            | {"state": "Running" if trial is holder else "Suspended" if trial.points else "Gated"}
            for trial in here
        ],
    }
    if holder in here and holder is not None:
        gpu["holder"] = _reference(holder) | {"since": _time(holder.allocations[-1][0])}
    queue = [_reference(trial) | {"reason": "RankedBehind"} for trial in here]
    if queue and holder is here[0]:
        queue[0] |= decision
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": node, "uid": f"uid-{node}"},
        "spec": {"epoch": 9, "gpus": [{"uuid": uuid, "runQueue": queue}]},
        "status": {"observedEpoch": 9, "driver": "sample", "methods": ["freeze"], "gpus": [gpu]},
    }
