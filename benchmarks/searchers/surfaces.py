"""Search spaces with a known value at each point: functions of the literature, and recorded training runs.

A recorded task answers with the best value of the recorded trial whose parameters are nearest, by their shares of the
ranges. A smaller value is better everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import JobSpec
from podium_searchers.unit_cube import to_unit
from podium_simulator.traces.trace import Trace

Value = Callable[[Mapping[str, Scalar]], float]


@dataclass(frozen=True, slots=True)
class Surface:
    """A search space and the value at each of its points."""

    name: str
    parameters: tuple[Mapping[str, Any], ...]
    value: Value

    def spec(self, algorithm: str, seed: int, settings: Mapping[str, Scalar]) -> JobSpec:
        """Return a job that searches the surface."""
        return JobSpec.model_validate(
            {
                "objective": {"metric": "loss", "direction": "minimize"},
                "parameters": list(self.parameters),
                "search": {"algorithm": algorithm, "seed": seed, "settings": dict(settings)},
                "trials": {"max": 10_000, "maxSteps": 1},
                "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}},
            }
        )


def functions() -> tuple[Surface, ...]:
    """Return the functions: smooth, curved, with many minima, and with choices and conditions."""
    return (
        Surface("sphere, 4 ranges", _ranges(4, -5.0, 5.0), _sphere),
        Surface("rosenbrock, 4 ranges", _ranges(4, -2.0, 2.0), _rosenbrock),
        Surface("rastrigin, 4 ranges", _ranges(4, -5.0, 5.0), _rastrigin),
        Surface("hartmann6, 6 ranges", _ranges(6, 0.0, 1.0), _hartmann),
        Surface("training, with conditions", _TRAINING, _training),
    )


def recorded(trace: Trace) -> Surface:
    """Return a task whose trials were recorded; ranges are those of the parameters, on a log scale."""
    sign = -1.0 if trace.maximize else 1.0
    names = sorted(trace.trials[0].hparams)
    table = [{name: float(trial.hparams[name]) for name in names} for trial in trace.trials]
    parameters = tuple(
        {"name": name, "min": min(row[name] for row in table), "max": max(row[name] for row in table), "scale": "log"}
        for name in names
    )
    values = np.array([_best(sign, trial.values) for trial in trace.trials])
    ranges = Surface(trace.task, parameters, lambda point: 0.0).spec("random", 0, {}).parameters
    cube = np.array([[to_unit(one, row[one.name]) for one in ranges] for row in table])

    def value(point: Mapping[str, Scalar]) -> float:
        at = np.array([to_unit(one, point[one.name]) for one in ranges])
        return float(values[np.argmin(((cube - at) ** 2).sum(axis=1))])

    return Surface(trace.task, parameters, value)


def _best(sign: float, values: Iterable[float]) -> float:
    return min((sign * value for value in values if not diverged(value)), default=math.inf)


def _ranges(count: int, low: float, high: float) -> tuple[Mapping[str, Any], ...]:
    return tuple({"name": f"x{number}", "min": low, "max": high} for number in range(count))


def _vector(point: Mapping[str, Scalar]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([float(value) for value in point.values()])


def _sphere(point: Mapping[str, Scalar]) -> float:
    return float(((_vector(point) - 1.3) ** 2).sum())  # the minimum is not in the middle


def _rosenbrock(point: Mapping[str, Scalar]) -> float:
    x = _vector(point)
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


def _rastrigin(point: Mapping[str, Scalar]) -> float:
    x = _vector(point) - 1.3
    return float(10.0 * len(x) + (x**2 - 10.0 * np.cos(2.0 * math.pi * x)).sum())


_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(point: Mapping[str, Scalar]) -> float:
    exponents = (_A * (_vector(point) - _P) ** 2).sum(axis=1)
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-exponents))


_SGD, _ADAM = {"parameter": "optimizer", "in": ["sgd"]}, {"parameter": "optimizer", "in": ["adam"]}
_TRAINING: tuple[Mapping[str, Any], ...] = (
    {"name": "lr", "min": 1e-5, "max": 1.0, "scale": "log"},
    {"name": "optimizer", "values": ["sgd", "adam", "lion"]},
    {"name": "momentum", "min": 0.0, "max": 0.99, "when": _SGD},
    {"name": "beta2", "min": 0.9, "max": 0.9999, "when": _ADAM},
    {"name": "width", "type": "int", "min": 16, "max": 1024, "scale": "log", "step": 16},
    {"name": "layers", "type": "int", "min": 1, "max": 8},
    {"name": "batch", "values": [16, 32, 64, 128]},
)


def _training(point: Mapping[str, Scalar]) -> float:
    """Return a loss as of a training: each optimizer has its best learning rate, which grows with the batch size."""
    optimizer, batch = str(point["optimizer"]), float(point["batch"])
    best_rate, floor = {"sgd": (-1.0, 0.0), "adam": (-3.0, 0.1), "lion": (-4.0, 0.3)}[optimizer]
    own = {
        "sgd": (float(point.get("momentum", 0.0)) - 0.9) ** 2,
        "adam": 30.0 * (float(point.get("beta2", 1)) - 0.99) ** 2,
    }
    rate = math.log10(float(point["lr"])) - best_rate - 0.3 * math.log2(batch / 32.0)
    size = (math.log2(float(point["width"])) - 8.0) ** 2 / 30.0 + (float(point["layers"]) - 4.0) ** 2 / 60.0
    return floor + 0.3 * rate**2 + own.get(optimizer, 0.0) + size + 0.05 * abs(math.log2(batch / 64.0))
