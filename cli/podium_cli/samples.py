"""A made-up search as API objects at any moment of its life: `podium report --sample`, and the tests of the views.

A toy world (12 trials, 2 GPUs, turns of a few seconds, best first after a look at each); nothing here is measured.
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
TRIALS, STEPS, TURN, RATE = 12, 31, 6.0, 1.25  # trials, steps of each, seconds of a turn, steps a second
SWITCH_OUT, SWITCH_IN = 0.031, 0.024
GPUS = (("node-a", "GPU-0a000000-0000-4000-8000-00000000000a"), ("node-b", "GPU-0b000000-0000-4000-8000-00000000000b"))
NODE = {uuid: node for node, uuid in GPUS}
NAMESPACE, JOB = "default", "digits"


@dataclass
class _Trial:
    number: int
    parameters: dict[str, Any]
    top: float
    speed: float
    gpu: str
    step: int = 0
    points: list[Manifest] = field(default_factory=list)
    holds: list[tuple[float, float]] = field(default_factory=list)
    records: list[Manifest] = field(default_factory=list)
    finished: float | None = None

    @property
    def best(self) -> float:
        return max((point["value"] for point in self.points), default=0.0)


def search_at(elapsed: float) -> list[Manifest]:
    """The job, its trials and the GPUNodes `elapsed` seconds after the start (it ends by itself after about 190)."""
    trials = _made_up()
    holders: dict[str, _Trial | None] = dict.fromkeys(NODE)
    now = 0.0
    while now < elapsed and any(trial.finished is None for trial in trials):
        end = min(now + TURN, elapsed)
        for uuid in NODE:
            waiting = [trial for trial in trials if trial.gpu == uuid and trial.finished is None]
            chosen = min(waiting, key=_turn, default=None)
            before = holders[uuid]
            if before is not None and before is not chosen and before.finished is None:
                before.records.append(_record(now))
            if chosen is not None:
                _train(chosen, now, end)
            holders[uuid] = chosen
        now = end
    return [
        _job(trials, now),
        *(_manifest(trial, holders, trials, now) for trial in trials),
        *_nodes(trials, holders, now),
    ]


def _made_up() -> list[_Trial]:
    dice = random.Random(7)
    found = []
    for number in range(TRIALS):
        rate = 10 ** dice.uniform(-4, -0.5)
        width, batch, kind = dice.choice([32, 64, 128]), dice.choice([16, 32, 64]), dice.choice(["relu", "tanh"])
        top = 0.985 - 0.055 * abs(math.log10(rate) + 1.9) - (0.02 if width == 32 else 0) - dice.uniform(0, 0.02)
        parameters = {"lr": round(rate, 6), "width": width, "batch": batch, "activation": kind}
        found.append(_Trial(number, parameters, top, dice.uniform(0.1, 0.35), GPUS[number % 2][1]))
    return found


def _turn(trial: _Trial) -> tuple[int, float, int]:
    """A look at every trial first, then the best one, though not for ever: some doubt is left about the others."""
    if trial.step < 6:
        return (0, trial.step, trial.number)
    return (1, 0.4 * trial.step / STEPS - trial.best, trial.number)


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
    if trial.holds and trial.holds[-1][1] == begin:
        trial.holds[-1] = (trial.holds[-1][0], stop)
    else:
        trial.holds.append((begin, stop))


def _record(at: float) -> Manifest:
    longer = 1 + (at * 7 % 5) / 6
    return {
        "method": "freeze",
        "at": _time(at),
        "suspendSeconds": SWITCH_OUT * longer,
        "resumeSeconds": SWITCH_IN * longer,
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
    used = sum(end - begin for trial in trials for begin, end in trial.holds)
    switches = [record for trial in trials for record in trial.records]
    switching = sum(record["suspendSeconds"] + record["resumeSeconds"] for record in switches)
    ended = done == TRIALS
    status: Manifest = {
        "phase": "Succeeded" if ended else "Running",
        "reason": "TrialsCompleted" if ended else "Searching",
        "message": f"{done} of {TRIALS} trials are done",
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
        told = {"trial": _name(best), "value": top["value"], "step": top["step"], "parameters": best.parameters}
        status["best"] = told
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
    phase, reason, message = "Gated", "WaitingForHolder", "has not been on a GPU yet"
    live = sorted((one for one in trials if one.finished is None), key=lambda one: (-one.best, one.number))
    if trial.finished is not None:
        phase, reason, message = "Succeeded", "StepsCompleted", f"reached {STEPS} epochs"
    elif holds_it:
        phase, reason, message = "Running", "BestOnGPU", "converges fastest of those on this GPU"
    elif trial.points:
        phase, reason, message = "Suspended", "RivalConverges", "another trial on this GPU converges faster"
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
        "gpuSeconds": sum(end - begin for begin, end in trial.holds),
        "allocations": [_hold(trial, begin, end, lasting=holds_it and end == now) for begin, end in trial.holds],
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


def _hold(trial: _Trial, begin: float, end: float, *, lasting: bool) -> Manifest:
    closed = {} if lasting and trial.finished is None else {"end": _time(end)}
    return {"gpus": [trial.gpu], "node": NODE[trial.gpu], "start": _time(begin), **closed}


def _nodes(trials: list[_Trial], holders: dict[str, _Trial | None], now: float) -> list[Manifest]:
    return [_node(node, uuid, trials, holders[uuid], now) for node, uuid in GPUS]


def _node(node: str, uuid: str, trials: list[_Trial], holder: _Trial | None, now: float) -> Manifest:
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
            | {"pod": f"{_name(trial)}-0", "podUID": f"pod-{trial.number}", "since": _time(now)}
            | {"state": "Running" if trial is holder else "Suspended" if trial.points else "Gated"}
            for trial in here
        ],
    }
    if holder in here and holder is not None:
        gpu["holder"] = _reference(holder) | {"since": _time(holder.holds[-1][0])}
    order = [_reference(trial) | {"reason": "Ranked"} for trial in here]
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": node, "uid": f"uid-{node}"},
        "spec": {"epoch": 9, "gpus": [{"uuid": uuid, "runQueue": order}]},
        "status": {"observedEpoch": 9, "driver": "sample", "methods": ["freeze"], "gpus": [gpu]},
    }
