"""Calibration of the interference model on part of the published values. Deterministic; takes about half a minute.

Each parameter is fitted to the values that it governs:
- kappa: the rate of DARIS;
- serial: two rates of SGPRS;
- threads and convoy: four rates of unmanaged networks;
- patience: the miss ratios of two SGPRS configurations at 30 tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scipy.optimize import minimize, minimize_scalar

from podium_realtime.model import published
from podium_realtime.simulation import scenarios
from podium_realtime.simulation.gpu import Interference
from podium_realtime.simulation.scenarios import HarnessModel, SimulationSettings

# the result of `fit`; the benchmark repeats the calibration and compares
CALIBRATED = HarnessModel(Interference(kappa=0.0991, serial=0.9614, threads=13.42, convoy=0.0344), patience=0.193)
FIT_SETTINGS = SimulationSettings(seconds=1.5)
UNMANAGED_FIT = ((1, 15), (5, 15), (1, 30), (5, 30))  # (contexts, networks)
SGPRS_FIT = ((2, 1.0), (3, 1.5))  # (contexts, over-subscription): their fps and miss ratio at 30 tasks
_START = HarnessModel(Interference(kappa=0.0975, serial=0.97, threads=13.0, convoy=0.036), patience=0.15)


def fit(report: Callable[[str], None] = lambda line: None) -> HarnessModel:
    """Return the model with the least squared error on the values used for calibration.

    `report`: receives a line for each fitted parameter.
    """
    model = _fit_kappa(_START)
    report(f"kappa {model.interference.kappa:.4f}")
    model = _fit_serial(model)
    report(f"serial {model.interference.serial:.4f}")
    model = _fit_convoy(model)
    report(f"threads {model.interference.threads:.2f}, convoy {model.interference.convoy:.4f}")
    model = _fit_patience(model)
    report(f"patience {model.patience:.3f}")
    return model


def _fit_kappa(model: HarnessModel) -> HarnessModel:
    def error(kappa: float) -> float:
        rate = scenarios.daris(_with(model, kappa=kappa), 48, FIT_SETTINGS).overall.fps
        return (rate / published.DARIS_FPS - 1.0) ** 2

    result = minimize_scalar(error, bounds=(0.0, 0.5), method="bounded", options={"xatol": 0.001})
    return _with(model, kappa=round(float(result.x), 4))


def _fit_serial(model: HarnessModel) -> HarnessModel:
    rows = {(row.contexts, row.oversubscription): row for row in published.SGPRS}

    def error(serial: float) -> float:
        trial = _with(model, serial=serial)
        rates = [scenarios.sgprs(trial, *key, 30, FIT_SETTINGS).fps / rows[key].fps_at_30 for key in SGPRS_FIT]
        return sum((rate - 1.0) ** 2 for rate in rates)

    result = minimize_scalar(error, bounds=(0.85, 1.0), method="bounded", options={"xatol": 0.002})
    return _with(model, serial=round(float(result.x), 4))


def _fit_convoy(model: HarnessModel) -> HarnessModel:
    """Fit the cost of the launch lock with 15 and with 30 threads, for both published numbers of contexts."""

    def error(x: tuple[float, float]) -> float:
        trial = _with(model, threads=max(x[0], 0.0), convoy=max(x[1] / 100.0, 0.0))
        rates = [
            scenarios.unmanaged(trial, contexts, networks, FIT_SETTINGS) / published.UNMANAGED[contexts][networks]
            for contexts, networks in UNMANAGED_FIT
        ]
        return sum((rate - 1.0) ** 2 for rate in rates)

    start = model.interference
    first = (start.threads, 100.0 * start.convoy)
    simplex = [first, (first[0] + 1.0, first[1]), (first[0], first[1] + 0.5)]
    options = {"xatol": 0.02, "fatol": 1e-6, "maxfev": 30, "initial_simplex": simplex}
    threads, convoy = minimize(error, first, method="Nelder-Mead", options=options).x
    return _with(model, threads=round(float(threads), 2), convoy=round(float(convoy) / 100.0, 4))


def _fit_patience(model: HarnessModel) -> HarnessModel:
    rows = {(row.contexts, row.oversubscription): row for row in published.SGPRS}

    def error(patience: float) -> float:
        trial = replace(model, patience=patience)
        return sum(
            (scenarios.sgprs(trial, *key, 30, FIT_SETTINGS).missed - rows[key].missed[30] / 100.0) ** 2
            for key in SGPRS_FIT
        )

    result = minimize_scalar(error, bounds=(0.0, 0.5), method="bounded", options={"xatol": 0.005})
    return replace(model, patience=round(float(result.x), 3))


def _with(model: HarnessModel, **parameters: float) -> HarnessModel:
    """Return the model with other interference parameters."""
    return replace(model, interference=replace(model.interference, **parameters))
