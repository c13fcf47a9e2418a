"""A contender of bench-rivals: Podium's searcher and planner on processes of this machine (`local_runner`).

Run in Podium's environment: `python -m benchmarks.rivals.contender_podium SETUP.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.rivals.local_runner import LocalRunner, Machine, Trial
from benchmarks.rivals.training import Setup, Training
from podium_core.curves.best_value import best_point
from podium_core.domain.snapshot import Scalar
from podium_core.planning.job_view import job_view
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import read_manifests
from podium_core.testing.builders import change_job
from podium_searchers.base import TrialResult
from podium_searchers.registry import SEARCHERS


def main(path: str) -> None:
    setup = Setup.read(path)
    job = HyperParamJob.model_validate(read_manifests([Path(setup.job)])[0])
    search = {"seed": setup.seed, "algorithm": setup.search}
    spec = job.spec.model_copy(update={"search": job.spec.search.model_copy(update=search)})
    searcher = SEARCHERS[setup.search]
    view = change_job(
        job_view(job.model_copy(update={"spec": spec}), points=None, accepted=True, finished=False, suspendable=True),
        policy=setup.policy,
        settings={},
        max_trials=setup.trials,
        parallel=None,
        max_steps=float(setup.epochs),
        memory=None,
    )

    def propose(number: int) -> Mapping[str, Scalar]:
        parameters = searcher.propose(spec, number, [trial_result(trial) for trial in runner.trials.values()])
        assert parameters is not None, "a random search is never exhausted"
        return parameters

    def launch(name: str, parameters: Mapping[str, Scalar]) -> Training:
        return Training(setup, name, parameters)

    slots = -(-setup.trials // setup.cores)  # all trials may start, because Ray and Optuna hold none back either
    runner = LocalRunner(view, Machine(setup.cores, slots), propose, launch)
    ended = runner.run()
    if not ended.succeeded:
        sys.exit(ended.message)


def trial_result(trial: Trial) -> TrialResult:
    """Return the trial as the operator passes it to a searcher."""
    step = trial.points[-1].step if trial.points else None
    return TrialResult.at(trial.phase, trial.number, trial.parameters, step, best_point(trial.points, maximize=True))


if __name__ == "__main__":
    main(sys.argv[1])
