"""A contender of bench-rivals: Optuna's TPE with its Hyperband pruner, one thread for each core.

Run in the rivals' environment: `python -m benchmarks.rivals.contender_optuna SETUP.json`.
"""

from __future__ import annotations

import sys

import optuna

from benchmarks.rivals.optuna_suggestions import suggest
from benchmarks.rivals.training import Setup, Training


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

    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=setup.seed),
        pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=setup.epochs),
    )
    study.optimize(objective, n_trials=setup.trials, n_jobs=setup.cores)


if __name__ == "__main__":
    main(sys.argv[1])
