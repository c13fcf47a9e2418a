"""Fits the interference model to the cells that are marked as fitted in `cells`. Pure, deterministic, half a minute.

Each number on the cells that it governs: kappa on DARIS' rate; serial on two of SGPRS' rates; threads and convoy on
four rates of unmanaged networks; patience on the misses of two SGPRS rows at 30 tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scipy.optimize import minimize, minimize_scalar

from podium_realtime.model import published
from podium_realtime.simulation import scenarios
from podium_realtime.simulation.gpu import Interference
from podium_realtime.simulation.scenarios import Machine, Setting

QUICK = Setting(seconds=1.5)
UNMANAGED_CELLS = ((1, 15), (5, 15), (1, 30), (5, 30))  # (contexts, networks)
SGPRS_CELLS = ((2, 1.0), (3, 1.5))  # (contexts, over-subscription): their fps and misses at 30 tasks
_START = Machine(Interference(kappa=0.0975, serial=0.97, threads=13.0, convoy=0.036), patience=0.15)


def fit(report: Callable[[str], None] = lambda line: None) -> Machine:
    """The machine whose fitted cells are nearest to the published ones, in squared error."""
    machine = _fit_kappa(_START)
    report(f"kappa {machine.interference.kappa:.4f}")
    machine = _fit_serial(machine)
    report(f"serial {machine.interference.serial:.4f}")
    machine = _fit_convoy(machine)
    report(f"threads {machine.interference.threads:.2f}, convoy {machine.interference.convoy:.4f}")
    machine = _fit_patience(machine)
    report(f"patience {machine.patience:.3f}")
    return machine


def _fit_kappa(machine: Machine) -> Machine:
    def error(kappa: float) -> float:
        rate = scenarios.daris(_with(machine, kappa=kappa), 48, QUICK).all.fps
        return (rate / published.DARIS_FPS - 1.0) ** 2

    found = minimize_scalar(error, bounds=(0.0, 0.5), method="bounded", options={"xatol": 0.001})
    return _with(machine, kappa=round(float(found.x), 4))


def _fit_serial(machine: Machine) -> Machine:
    rows = {(row.contexts, row.oversubscription): row for row in published.SGPRS}

    def error(serial: float) -> float:
        tried = _with(machine, serial=serial)
        rates = [scenarios.sgprs(tried, *key, 30, QUICK).fps / rows[key].fps_at_30 for key in SGPRS_CELLS]
        return sum((rate - 1.0) ** 2 for rate in rates)

    found = minimize_scalar(error, bounds=(0.85, 1.0), method="bounded", options={"xatol": 0.002})
    return _with(machine, serial=round(float(found.x), 4))


def _fit_convoy(machine: Machine) -> Machine:
    """The cost of the lock with 15 and with 30 threads, over both published numbers of contexts."""

    def error(x: tuple[float, float]) -> float:
        tried = _with(machine, threads=max(x[0], 0.0), convoy=max(x[1] / 100.0, 0.0))
        rates = [
            scenarios.unmanaged(tried, contexts, networks, QUICK) / published.UNMANAGED[contexts][networks]
            for contexts, networks in UNMANAGED_CELLS
        ]
        return sum((rate - 1.0) ** 2 for rate in rates)

    start = machine.interference
    first = (start.threads, 100.0 * start.convoy)
    simplex = [first, (first[0] + 1.0, first[1]), (first[0], first[1] + 0.5)]
    options = {"xatol": 0.02, "fatol": 1e-6, "maxfev": 30, "initial_simplex": simplex}
    threads, convoy = minimize(error, first, method="Nelder-Mead", options=options).x
    return _with(machine, threads=round(float(threads), 2), convoy=round(float(convoy) / 100.0, 4))


def _fit_patience(machine: Machine) -> Machine:
    rows = {(row.contexts, row.oversubscription): row for row in published.SGPRS}

    def error(patience: float) -> float:
        tried = replace(machine, patience=patience)
        return sum(
            (scenarios.sgprs(tried, *key, 30, QUICK).missed - rows[key].missed[30] / 100.0) ** 2 for key in SGPRS_CELLS
        )

    found = minimize_scalar(error, bounds=(0.0, 0.5), method="bounded", options={"xatol": 0.005})
    return replace(machine, patience=round(float(found.x), 3))


def _with(machine: Machine, **numbers: float) -> Machine:
    return replace(machine, interference=replace(machine.interference, **numbers))
