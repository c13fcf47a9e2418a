"""Generated searches as the API server stores them: curves that flatten, time slices, run queues, reasons.

Nothing here is measured. The sizes are those of real objects: a curve of 30 to 120 points, up to 32 suspensions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from podium_core.schema.base import API_VERSION

Manifest = dict[str, Any]
BEGIN = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)
NODES, GPUS = 16, 8
RUNNING_EVERY = 10  # of this number of trials of a search, one has a slot
KINDS = ("relu", "tanh", "gelu")


@dataclass(frozen=True, slots=True)
class Size:
    """How many objects to generate."""

    searches: int
    trials: int  # of all searches

    @property
    def each(self) -> int:
        """Return the trials of one search."""
        return self.trials // self.searches


def namespace_of(search: int) -> str:
    """Return the namespace of a search; ten searches share one."""
    return f"team-{search // 10}"


def jobs(size: Size) -> Iterator[Manifest]:
    """Yield the job of each search."""
    running = sum(_phase(one) == "Running" for one in range(size.each))
    ended = sum(_phase(one) == "Succeeded" for one in range(size.each))
    for number in range(size.searches):
        yield {
            "apiVersion": API_VERSION,
            "kind": "HyperParamJob",
            "metadata": _meta(f"search-{number}", namespace_of(number), f"job-{number}"),
            "spec": {
                "objective": {"metric": "val_acc", "direction": "maximize"},
                "parameters": [
                    {"name": "learning_rate", "min": 1e-5, "max": 0.5, "scale": "log"},
                    {"name": "batch_size", "values": [16, 32, 64, 128]},
                    {"name": "width", "values": [32, 64, 128, 256]},
                    {"name": "dropout", "min": 0.0, "max": 0.6},
                    {"name": "activation", "values": list(KINDS)},
                ],
                "trials": {"max": size.each, "parallel": 32, "maxSteps": 120},
                "metrics": {"stepKey": "epoch"},
                "template": {"spec": {"containers": [{"name": "train", "image": "example.invalid/train:1"}]}},
            },
            "status": {
                "phase": "Running",
                "reason": "TrialsRunning",
                "message": f"{ended} of {size.each} trials have ended",
                "trials": {"created": size.each, "succeeded": ended, "running": running},
                "done": f"{ended}/{size.each}",
                "gpuSeconds": {"training": 90_000.0, "switching": 400.0},
                "gpuHours": 25.1,
                "startedAt": _time(0),
                "eta": _time(90_000),
            },
        }


def trials(size: Size) -> Iterator[Manifest]:
    """Yield all trials, search by search."""
    for search in range(size.searches):
        for number in range(size.each):
            yield trial(search, number)


def trial(search: int, number: int, further: int = 0) -> Manifest:
    """Return one trial, which has trained for `further` steps more than at the beginning."""
    rng = random.Random(f"{search}/{number}")
    rate, top, speed = 10 ** rng.uniform(-5, -0.3), rng.uniform(0.6, 0.97), rng.uniform(0.02, 0.2)
    name, uuid = f"search-{search}-{number}", f"GPU-{rng.randrange(NODES * GPUS):032x}"
    count = rng.randrange(30, 121) + further
    points = [
        {
            "step": float(step),
            "value": top * (1 - 0.9 * math.exp(-speed * step)) + rng.gauss(0.0, 0.01),
            "time": BEGIN.timestamp() + number * 40 + step * 13.7 + rng.random(),
        }
        for step in range(1, count + 1)
    ]
    best = max(points, key=lambda point: point["value"])
    phase, slices = _phase(number), rng.randrange(3, 20)
    starts = [number * 40 + place * 120.0 for place in range(slices)]
    records = [
        {"method": "freeze", "at": _time(at), "suspendSeconds": 0.03 + rng.random() / 50, "resumeSeconds": 0.02}
        for at in starts
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "HyperParamTrial",
        "metadata": _meta(name, namespace_of(search), f"trial-{search}-{number}")
        | {"labels": {"podium.dev/job": f"search-{search}"}},
        "spec": {
            "job": f"search-{search}",
            "number": number,
            "parameters": {
                "learning_rate": rate,
                "batch_size": rng.choice([16, 32, 64, 128]),
                "width": rng.choice([32, 64, 128, 256]),
                "dropout": rng.uniform(0.0, 0.6),
                "activation": rng.choice(KINDS),
            },
        },
        "status": {
            "phase": phase,
            "reason": "Completed" if phase == "Succeeded" else "TimeSliceEnded",
            "message": f"further {further}; the trial has printed {count} values and waits behind better ones",
            **({} if phase == "Succeeded" else {"rank": number + 1, "gpus": [uuid]}),
            "pod": f"{name}-0",
            "node": f"node-{int(uuid[4:], 16) // GPUS}",
            "startedAt": _time(number * 40),
            "curve": {"points": points},
            "best": {"step": best["step"], "value": best["value"]},
            "predicted": {"value": top, "low": top - 0.03, "high": top + 0.03},
            "lastStep": points[-1]["step"],
            "lastValue": points[-1]["value"],
            "suspensions": {"count": slices, "suspendSeconds": 1.2, "resumeSeconds": 0.9, "recent": records},
            "gpuSeconds": slices * 100.0,
            "allocations": [
                {"gpus": [uuid], "node": "node", "start": _time(at), "end": _time(at + 100.0)} for at in starts
            ],
        },
    }


def nodes(stored: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the GPU nodes; the live ones of the trials are in the run queues of their GPUs."""
    here: dict[str, list[Manifest]] = {}
    for one in stored:
        for uuid in one["status"].get("gpus", ()):
            meta = one["metadata"]
            mine = {"namespace": meta["namespace"], "trial": meta["name"], "uid": meta["uid"]}
            here.setdefault(uuid, []).append(mine)
    for number in range(NODES):
        uuids = [f"GPU-{number * GPUS + place:032x}" for place in range(GPUS)]
        yield {
            "apiVersion": API_VERSION,
            "kind": "GPUNode",
            "metadata": {"name": f"node-{number}", "uid": f"node-{number}", "resourceVersion": "1"},
            "spec": {
                "epoch": 1,
                "gpus": [
                    {"uuid": uuid, "runQueue": [one | {"reason": "RankedBehind"} for one in here.get(uuid, ())[:16]]}
                    for uuid in uuids
                ],
            },
            "status": {
                "observedEpoch": 1,
                "methods": ["freeze"],
                "gpus": [_gpu(uuid, place, here.get(uuid, [])[:16]) for place, uuid in enumerate(uuids)],
            },
        }


def _gpu(uuid: str, place: int, present: list[Manifest]) -> Manifest:
    held = {"holder": present[0] | {"since": _time(0)}} if present else {}
    states = ["Running", *["Suspended"] * len(present)]
    return {
        "uuid": uuid,
        "index": place,
        "product": "NVIDIA H100 80GB HBM3",
        "memoryTotal": 80 * 2**30,
        "memoryUsed": 40 * 2**30,
        "smUtilization": 93.0,
        "health": "Healthy",
        "slots": 16,
        "epoch": 1,
        "trials": [
            one | {"pod": f"{one['trial']}-0", "podUID": one["uid"], "since": _time(0), "state": state}
            for one, state in zip(present, states, strict=False)
        ],
        **held,
    }


def _phase(number: int) -> str:
    if number % 4:
        return "Succeeded"
    return "Running" if number % (4 * RUNNING_EVERY) == 0 else "Suspended"


def _meta(name: str, namespace: str, uid: str) -> Manifest:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": _time(0),
        "managedFields": [{"manager": "podium-operator", "fieldsV1": {"f:status": {"f:phase": {}}}}],
    }


def _time(elapsed: float) -> str:
    return (BEGIN + timedelta(seconds=elapsed)).isoformat().replace("+00:00", "Z")
