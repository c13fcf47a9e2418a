"""The search space of a job as Optuna's suggestions: for Optuna itself and for Ray Tune's OptunaSearch.

Only the standard library and Optuna are used, because the rivals' environment imports this module.
"""

from __future__ import annotations

from typing import Any

import optuna


def suggest(trial: optuna.Trial, space: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a trial from the `parameters` of the job's YAML."""
    parameters: dict[str, Any] = {}
    for one in space:
        name, log = one["name"], one.get("scale") == "log"
        if "values" in one:
            parameters[name] = trial.suggest_categorical(name, one["values"])
        elif one.get("type") == "int":
            parameters[name] = trial.suggest_int(name, one["min"], one["max"], step=one.get("step", 1), log=log)
        else:
            parameters[name] = trial.suggest_float(name, float(one["min"]), float(one["max"]), log=log)
    return parameters
