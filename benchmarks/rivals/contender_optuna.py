"""A contender of bench-rivals: Optuna as `create_study` makes it (TPE, median pruner), with one thread for each core.

Run in the rivals' environment: `python -m benchmarks.rivals.contender_optuna SETUP.json`. Unlike the random searches it
chooses its points by the values it has seen, so the searcher is a part of what is compared.
"""

from __future__ import annotations

import sys
from typing import Any

import optuna

from benchmarks.rivals.training import Setup, Training


def suggest(trial: optuna.Trial, space: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a trial from the search space of the job."""
    parameters: dict[str, Any] = {}
    for one in space:
        name = one["name"]
        if "values" in one:
            parameters[name] = trial.suggest_categorical(name, one["values"])
        elif one.get("type") == "int":
            parameters[name] = trial.suggest_int(name, one["min"], one["max"], step=one.get("step", 1))
        else:
            parameters[name] = trial.suggest_float(name, one["min"], one["max"], log=one.get("scale") == "log")
    return parameters


def main(path: str) -> None:
    setup = Setup.read(path)
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        training = Training(setup, str(trial.number), suggest(trial, setup.space))
        try:
            value = None
            while (seen := training.next()) is not None:
                epoch, value = seen
                trial.report(value, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
        finally:
            training.kill()
        if value is None or training.process.returncode:
            raise RuntimeError(f"the training of trial {trial.number} failed ({training.process.returncode})")
        return value

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=setup.seed))
    study.optimize(objective, n_trials=setup.trials, n_jobs=setup.cores)


if __name__ == "__main__":
    main(sys.argv[1])
